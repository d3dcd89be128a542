"""A lean driver behind the port: deliveries, acks and publishes straight from and to the socket's bytes.

An AMQP client is what a job costs in Python. This one makes no task, no lock and (for deliveries) no future per
message; `pamqp` reads and writes every frame that is not per message.
"""
