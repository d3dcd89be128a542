"""A private RabbitMQ node: own name, ports, cookie, plugins and data folder; loopback only; a child of this process.

It needs the `rabbitmq-server` package installed and nothing of it running: no system node, no root, no epmd.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import IO

from amqpjobs.broker.ports import LOOPBACK, free_ports
from amqpjobs.settings import Settings
from amqpjobs.streams.aio import connect
from amqpjobs.streams.errors import BrokerError

Probe = Callable[[str], Awaitable[None]]
"""Opens an AMQP connection to the address and closes it again; raises BrokerError while that is not possible."""

INSTALL_HINT = "RabbitMQ is not installed: `apt-get install rabbitmq-server`, or set AMQPJOBS_URL to a broker that runs"

HEAPS = "+MHsbct 16384 +MHlmbcs 32768 +hmbs 262144"
"""How Erlang treats the heaps of busy queues (docs/brokers.md, "A faster RabbitMQ", has what each is worth).

Heaps of up to 16 MB share carriers of 32 MB (both in KiB, as `erts_alloc` has them). RabbitMQ's own is 512 KiB, to keep
memory small: then a busy queue's heap of 4 MB is mapped and unmapped at each of its hundred collections a second.

A heap may refer to 2 MB of binaries (in words) before these alone make Erlang collect it. Its own is 0.4 MB: the jobs
that a busy queue has in hand are more, and then every second collection goes through all of its heap.
"""

# Debian's /usr/sbin/rabbitmq-server is a wrapper that insists on root and switches to the user `rabbitmq`, who may not
# enter our data folder: the script behind it is asked first.
_FOLDERS = ("/usr/lib/rabbitmq/bin", "/usr/local/sbin", "/opt/homebrew/sbin", "/usr/sbin")


class NodeError(Exception):
    """The node cannot be started; the message says what to do, in one line."""


def find_server() -> Path | None:
    """The script that starts a node, or None when RabbitMQ is not installed."""
    found = [Path(folder) / "rabbitmq-server" for folder in _FOLDERS[:1]]
    on_path = shutil.which("rabbitmq-server")
    found += [Path(on_path)] if on_path else []
    found += [Path(folder) / "rabbitmq-server" for folder in _FOLDERS[1:]]
    return next((script for script in found if os.access(script, os.X_OK)), None)


async def connect_once(url: str) -> None:
    """The usual probe: open an AMQP connection and close it."""
    connection = await connect(Settings(url=url), name="amqpjobs node probe")
    await connection.close()


class PrivateNode:
    """One node over one data folder. `start` and `stop` may be repeated; ports and data stay the same in between.

    The node ends with this process, however that ends: the kernel sends it TERM (PR_SET_PDEATHSIG). The kernel means
    the thread that started it, so call `start` where the process begins and ends, not in a worker thread.
    `config`: more lines for its rabbitmq.conf.
    """

    def __init__(
        self, data: Path, *, port: int | None = None, probe: Probe = connect_once, config: Sequence[str] = ()
    ) -> None:
        self.data = data.absolute()
        ports = free_ports(5)
        self.port, self.stream_port, self.management_port, self._distribution, self._epmd_port = ports
        if port is not None:
            self.port = port
        self._probe = probe
        self._more = tuple(config)
        self._server: subprocess.Popen[bytes] | None = None
        self._epmd: subprocess.Popen[bytes] | None = None
        self._lock: IO[str] | None = None

    @property
    def url(self) -> str:
        """The AMQP address of the default virtual host."""
        return f"amqp://guest:guest@{LOOPBACK}:{self.port}/"

    @property
    def stream_url(self) -> str:
        """The address of the stream protocol."""
        return f"rabbitmq-stream://guest:guest@{LOOPBACK}:{self.stream_port}/"

    @property
    def management_url(self) -> str:
        """The address of the management API, without credentials (they are the AMQP address's)."""
        return f"http://{LOOPBACK}:{self.management_port}"

    @property
    def pid(self) -> int | None:
        """The process id of the node, or None when it does not run."""
        return self._server.pid if self.running and self._server else None

    @property
    def running(self) -> bool:
        """Whether the process lives (it may not be ready yet)."""
        return self._server is not None and self._server.poll() is None

    async def start(self, timeout: float = 90.0) -> None:
        """Start the node and return when it serves AMQP, the stream protocol and HTTP.

        Raises NodeError when it is not installed, its data folder is in use, it dies, or `timeout` seconds pass.
        """
        if self.running:
            return
        await self.stop()  # what is left of a node that died: its epmd would keep the new one from its port
        script = find_server()
        epmd = shutil.which("epmd") or shutil.which("epmd", path="/usr/bin:/usr/lib/erlang/bin:/usr/local/bin")
        if script is None or epmd is None:
            raise NodeError(INSTALL_HINT)
        if _listens(self.port):
            raise NodeError(f"port {self.port} is taken: stop what listens there, or choose another with --port")
        self._prepare()
        try:
            address = ["-port", str(self._epmd_port), "-address", LOOPBACK]
            self._epmd = self._spawn([epmd, *address], "epmd.log")
            self._server = self._spawn([str(script)], "node.log")
            await self._wait_ready(timeout)
        except BaseException:
            await self.stop()
            raise

    async def wait_ended(self) -> None:
        """Return when the node runs no more, whoever ended it."""
        while self.running:  # noqa: ASYNC110 - a child's end is no event of the loop's, and threads would outlive it
            await asyncio.sleep(0.2)

    async def stop(self, timeout: float = 60.0) -> None:
        """Stop the node cleanly, with KILL after `timeout` seconds; safe to repeat."""
        server, self._server = self._server, None
        if server is not None:
            await _end(server, timeout)
        epmd, self._epmd = self._epmd, None
        if epmd is not None:
            await _end(epmd, 5.0)
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.close()

    async def ctl(self, *arguments: str, timeout: float = 60.0) -> str:
        """Run `rabbitmqctl` on the node and return what it prints; NodeError when it fails. Takes some seconds."""
        script = find_server()
        if script is None:
            raise NodeError(INSTALL_HINT)
        command = await asyncio.create_subprocess_exec(
            str(script.with_name("rabbitmqctl")),
            "--quiet",
            *arguments,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        async with asyncio.timeout(timeout):
            out, _ = await command.communicate()
        text = out.decode("utf-8", "replace")
        if command.returncode != 0:
            raise NodeError(f"rabbitmqctl {arguments[0]} failed: {text.strip()}")
        return text

    def kill(self) -> None:
        """End the node as a power cut would, for tests; `stop` or `start` afterwards."""
        if self._server is not None:
            self._server.kill()
            self._server.wait()

    def _prepare(self) -> None:
        for folder in ("mnesia", "log", "home", "config"):
            (self.data / folder).mkdir(parents=True, exist_ok=True)
        if self._lock is None:
            self._lock = self._take_lock()
        (self.data / "rabbitmq.conf").write_text(self._config(), encoding="utf-8")
        plugins = "[rabbitmq_management,rabbitmq_stream]."
        (self.data / "enabled_plugins").write_text(plugins + "\n", encoding="utf-8")

    def _take_lock(self) -> IO[str]:
        """Two nodes over one folder would destroy it."""
        lock = (self.data / "lock").open("w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            lock.close()
            raise NodeError(f"another private broker is using {self.data}: stop it, or give another folder") from error
        return lock

    def _config(self) -> str:
        return "\n".join(
            (
                f"listeners.tcp.local = {LOOPBACK}:{self.port}",
                f"stream.listeners.tcp.local = {LOOPBACK}:{self.stream_port}",
                f"stream.advertised_host = {LOOPBACK}",
                f"stream.advertised_port = {self.stream_port}",
                f"management.tcp.ip = {LOOPBACK}",
                f"management.tcp.port = {self.management_port}",
                *self._more,
                "",
            )
        )

    def _environment(self) -> dict[str, str]:
        """Nothing of the caller's RABBITMQ_* or ERL_* gets through: it would point the node at someone else's data."""
        data, home = str(self.data), str(self.data / "home")
        local = "-kernel inet_dist_use_interface {127,0,0,1}"
        quiet = "+sbwt none +sbwtdcpu none +sbwtdio none"  # idle schedulers must not spin on a machine that is shared
        return {
            "PATH": os.environ.get("PATH", "") + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "LANG": "C.UTF-8",
            "HOME": home,
            "RABBITMQ_HOME_DIR": home,
            "ERL_EPMD_PORT": str(self._epmd_port),
            "ERL_EPMD_ADDRESS": LOOPBACK,
            "RABBITMQ_NODENAME": "amqpjobs@localhost",
            "RABBITMQ_DIST_PORT": str(self._distribution),
            "RABBITMQ_NODE_IP_ADDRESS": LOOPBACK,
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_CONFIG_FILE": f"{data}/rabbitmq.conf",
            "RABBITMQ_ADVANCED_CONFIG_FILE": f"{data}/advanced.config",
            "RABBITMQ_CONF_ENV_FILE": f"{data}/no-such-file.conf",
            "RABBITMQ_GENERATED_CONFIG_DIR": f"{data}/config",
            "RABBITMQ_ENABLED_PLUGINS_FILE": f"{data}/enabled_plugins",
            "RABBITMQ_MNESIA_BASE": f"{data}/mnesia",
            "RABBITMQ_LOG_BASE": f"{data}/log",
            "RABBITMQ_PID_FILE": f"{data}/node.pid",
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": f"{quiet} {HEAPS} {local}",
            "RABBITMQ_CTL_ERL_ARGS": local,
            # Without a service manager the start script stays as a shell between us and the node: then its process id
            # is not the node's, and the signal at our death would reach the shell only.
            "RUNNING_UNDER_SYSTEMD": "true",
        }

    def _spawn(self, command: list[str], log: str) -> subprocess.Popen[bytes]:
        """Start a child in a session of its own, so that a Ctrl-C at the terminal reaches us and not the node."""
        setpriv = shutil.which("setpriv", path=self._environment()["PATH"])
        if setpriv is not None:
            command = [setpriv, "--pdeathsig", "TERM", "--", *command]
        with (self.data / log).open("ab") as out:
            return subprocess.Popen(  # noqa: S603
                command,
                cwd=self.data,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    async def _wait_ready(self, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        while True:
            if not self.running:
                raise NodeError(f"the private broker ended while starting: see {self.data / 'node.log'}")
            if await self._ready():
                return
            if time.monotonic() > deadline:
                raise NodeError(f"the private broker is not ready after {timeout:.0f} s: see {self.data / 'node.log'}")
            await asyncio.sleep(0.1)

    async def _ready(self) -> bool:
        if not all(_listens(port) for port in (self.port, self.stream_port, self.management_port)):
            return False
        try:
            await self._probe(self.url)
        except BrokerError:
            return False
        return True


def _listens(port: int) -> bool:
    try:
        socket.create_connection((LOOPBACK, port), timeout=1.0).close()
    except OSError:
        return False
    return True


async def _end(process: subprocess.Popen[bytes], timeout: float) -> None:
    """TERM, then KILL after `timeout` seconds. Erlang's own children end with it: they watch a pipe to it."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    deadline = time.monotonic() + timeout
    while process.poll() is None:
        if time.monotonic() > deadline:
            process.kill()
            process.wait()
            return
        await asyncio.sleep(0.05)
