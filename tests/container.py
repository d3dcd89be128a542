"""A broker in a container for the tests' session, through testcontainers: `pip install 'amqpjobs[containers]'`.

The image must bring RabbitMQ with its management API on the usual ports, such as `rabbitmq:4-management`, and take
guest from outside (`loopback_users = none`), as the official images do.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

AMQP_PORT = 5672
MANAGEMENT_PORT = 15672


@contextlib.contextmanager
def running(image: str) -> Iterator[tuple[str, str]]:
    """AMQP and management addresses of a container that lives as long as the context; it may not be ready yet."""
    from testcontainers.core.container import DockerContainer

    # A node's name, and so the place of its data, is made of its host's name.
    container = DockerContainer(image, hostname="amqpjobs-tests").with_exposed_ports(AMQP_PORT, MANAGEMENT_PORT)
    with container:
        host = container.get_container_host_ip()
        amqp, management = (container.get_exposed_port(port) for port in (AMQP_PORT, MANAGEMENT_PORT))
        yield f"amqp://guest:guest@{host}:{amqp}/", f"http://{host}:{management}"
