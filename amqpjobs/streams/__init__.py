"""All that touches the broker: topology, connection, publisher, reader, view store. The only importer of aio_pika."""
