"""`python -m amqpjobs.web`: serve the dashboard until told to stop."""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import socket
import sys
from collections.abc import Sequence
from types import FrameType

import uvicorn
from fastapi import FastAPI
from pydantic import ValidationError

from amqpjobs.settings import Settings, Unreadable, redact
from amqpjobs.streams import state
from amqpjobs.streams.aio import connect
from amqpjobs.streams.errors import BrokerUnavailable, Refused
from amqpjobs.streams.state import NoStateFolder
from amqpjobs.web import ocypod_config
from amqpjobs.web.access import BindRefused, check_bind
from amqpjobs.web.app import create_app
from amqpjobs.web.ocypod_config import BadOcypodFile

log = logging.getLogger("amqpjobs.web")

LAST_WORDS = 3
"""Seconds that answers under way may take at a stop."""


SWITCH = 0.0005
"""Seconds that a thread which folds or renders may keep the interpreter when the loop waits for it. The loop asks for
it again after each write to a socket: at Python's 5 ms, ten pages to be told are 50 ms in which it does no more."""


class CannotServe(Exception):
    """Why the process must exit; one line for a person."""


class Server(uvicorn.Server):
    """Says when it is ready, and ends the pages' event streams before it waits for them to end."""

    def __init__(self, app: FastAPI, config: uvicorn.Config, ready: str) -> None:
        super().__init__(config)
        self._app, self._ready = app, ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start serving."""
        self._app.openapi()  # made when it is asked for, it would hold up the loop for 100 ms
        await super().startup(sockets)
        gc.collect()
        gc.freeze()  # what is loaded stays: to go through it all takes 100 ms, in any thread, and again and again
        sys.setswitchinterval(SWITCH)
        if self.started and not self.should_exit:
            log.info("%s", self._ready)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop serving."""
        await self._app.state.pulse.shut()
        await super().shutdown(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """INT or TERM: stop in good order; a second one at once. It is not an error, so nothing is raised again."""
        self.force_exit = self.should_exit
        self.should_exit = True


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    options = _parser().parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)  # it logs every request, and we ask for depths all the time
    try:
        settings = Settings()
        said = ocypod_config.read(settings.ocypod)
        host = options.host or said.host or "127.0.0.1"
        port = options.port if options.port is not None else said.port if said.port is not None else 8484
        asyncio.run(serve(settings, host, port))
    except (CannotServe, BindRefused, NoStateFolder, Unreadable, BadOcypodFile) as error:
        return _fail(str(error))
    except ValidationError as error:
        faults = "; ".join(f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors())
        return _fail(f"settings: {faults}")
    except KeyboardInterrupt:
        return 130
    return 0


async def serve(settings: Settings, host: str, port: int) -> None:
    """Serve until a signal. Raises CannotServe, BindRefused or NoStateFolder before the first request is taken."""
    check_bind(host, settings)
    with _listen(host, port) as listener:
        await _check_login(settings)
        app = create_app(settings, folder=state.hold(settings, "web"), hosts=[host])
        config = uvicorn.Config(
            app, log_level="warning", access_log=False, server_header=False, lifespan="on",
            timeout_graceful_shutdown=LAST_WORDS, ws="none",
            proxy_headers=False,  # it would let a header say which address a request comes from
        )  # fmt: skip
        address = f"http://{_written(host)}:{listener.getsockname()[1]}{settings.web_root_path}/job-queues"
        server = Server(app, config, f"web ready: {address} (broker {redact(settings.url)})")
        await server.serve([listener])
        if not server.started:
            raise CannotServe("the dashboard could not start; the lines above say why")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m amqpjobs.web", description="The dashboard and its JSON interface.")
    parser.add_argument("--host", help="address to serve on (default: 127.0.0.1)")
    parser.add_argument("--port", type=int, help="port, 0 for a free one (default: 8484)")
    return parser


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        return socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise CannotServe(f"cannot serve on {_written(host)}:{port}: {reason}; choose another with --port") from error


async def _check_login(settings: Settings) -> None:
    """A broker that is away will come; one that refuses this user or virtual host must be put right by a person."""
    try:
        connection = await connect(settings, name="amqpjobs web start")
    except BrokerUnavailable as error:
        log.warning("%s; the dashboard says so and keeps trying", error)
    except Refused as error:
        raise CannotServe(str(error)) from error
    else:
        await connection.close()


def _written(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _fail(reason: str) -> int:
    log.error("%s", reason)
    return 1


if __name__ == "__main__":
    sys.exit(main())
