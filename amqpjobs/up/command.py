"""The command itself: what is started, in which order, with what in its environment, and how it all ends."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Iterator

from amqpjobs.broker.node import NodeError
from amqpjobs.clock import Clock, SystemClock
from amqpjobs.service import Service
from amqpjobs.settings import Settings, load, redact
from amqpjobs.up.child import Child
from amqpjobs.up.private_broker import USUAL_PORT, PrivateBroker, is_free

READY_WITHIN = 90.0
"""Seconds that the processes have to say that they are ready."""

_WIDTH = 9


class CannotStart(Exception):
    """Why not, in one line."""


def emit(name: str, line: str) -> None:
    """Print one line of what the process `name` says. A terminal that has gone away stops nothing."""
    with contextlib.suppress(OSError, ValueError):
        print(f"{name:{_WIDTH}} | {line}", flush=True)


def say(line: str) -> None:
    """Print one line of our own."""
    emit("up", line)


class Together:
    """All the processes of one `amqpjobs up`."""

    def __init__(self, options: argparse.Namespace, settings: Settings, clock: Clock) -> None:
        self._options = options
        self._settings = settings
        self._clock = clock
        self._environment = os.environ | {"PYTHONUNBUFFERED": "1"}
        self._started: list[Service] = []

    async def start(self) -> None:
        """Start everything; return when all of it serves. Raises CannotStart."""
        options = self._options
        if not is_free(options.host, options.port):
            raise CannotStart(f"port {options.port} is taken: stop what listens there, or choose another with --port")
        await self._start_broker()
        scheduler = self._child("scheduler", _module("scheduler"))
        worker = self._child("worker", _module("worker", *worker_arguments(options)), grace=options.timeout + 5.0)
        web = self._child("web", _module("web", "--host", options.host, "--port", str(options.port)))
        await self._all_ready([scheduler, worker, web])
        extra = [self._child(name, command, announces=False) for name, command in options.also]
        await self._all_ready(extra)

    async def stop(self) -> None:
        """Stop everything, what was started last first: the broker outlives those who still have to tell it things."""
        while self._started:
            await self._started.pop().stop()

    async def _start_broker(self) -> None:
        if "url" in self._settings.model_fields_set:
            say(f"broker: {redact(self._settings.url)} (AMQPJOBS_URL)")
            return
        data = self._settings.state_dir / "broker"
        say(f"starting a private broker, its data in {data} …")
        broker = PrivateBroker(data, say=lambda line: emit("broker", line), clock=self._clock)
        self._started.append(broker)
        try:
            await broker.start()
        except NodeError as error:
            raise CannotStart(str(error)) from error
        node = broker.node
        self._environment |= {
            "AMQPJOBS_URL": node.url,
            "AMQPJOBS_STREAM_URL": node.stream_url,
            "AMQPJOBS_MANAGEMENT_URL": node.management_url,
        }
        elsewhere = "" if node.port == USUAL_PORT else f"; in other terminals: export AMQPJOBS_URL={redact(node.url)}"
        emit("broker", f"ready on port {node.port}{elsewhere}")

    def _child(self, name: str, command: list[str], *, grace: float = 10.0, announces: bool = True) -> Child:
        return Child(
            name,
            command,
            environment=self._environment,
            emit=emit,
            clock=self._clock,
            grace=grace,
            announces=announces,
        )

    async def _all_ready(self, children: list[Child]) -> None:
        for child in children:
            self._started.append(child)
            await child.start()
        try:
            async with asyncio.timeout(READY_WITHIN):
                await asyncio.gather(*(_ready(child) for child in children))
        except TimeoutError:
            late = ", ".join(child.name for child in children if not child.ready.is_set())
            raise CannotStart(f"not ready after {READY_WITHIN:.0f} s: {late}") from None


async def _ready(child: Child) -> None:
    ready = asyncio.create_task(child.ready.wait())
    ended = asyncio.create_task(child.wait_failed())
    await asyncio.wait([ready, ended], return_when=asyncio.FIRST_COMPLETED)
    ready.cancel()
    ended.cancel()
    if not child.ready.is_set():
        raise CannotStart(f"the {child.name} {child.failure or 'could not be started'} (its last lines say why)")


def _module(name: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", f"amqpjobs.{name}", *arguments]


def worker_arguments(options: argparse.Namespace) -> list[str]:
    """What the worker is told of the options of `amqpjobs up`; what was not given comes from its own settings."""
    arguments = ["-t", f"{options.timeout:g}"]
    for flag, values in (("-A", options.app), ("-q", options.queue)):
        for value in values:
            arguments += [flag, value]
    return arguments if options.concurrency is None else [*arguments, "-c", str(options.concurrency)]


@contextlib.contextmanager
def _signals(stop: asyncio.Event) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, stop.set)
    try:
        yield
    finally:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.remove_signal_handler(number)


async def _unless(stop: asyncio.Event, work: Awaitable[None]) -> bool:
    """Do `work`; False when `stop` came first, and then `work` is cancelled."""
    task, stopped = asyncio.ensure_future(work), asyncio.create_task(stop.wait())
    await asyncio.wait([task, stopped], return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if not task.done():
        task.cancel()
        await asyncio.wait([task])
        return False
    task.result()
    return True


async def _serve(options: argparse.Namespace, settings: Settings) -> int:
    stop = asyncio.Event()
    together = Together(options, settings, SystemClock())
    with _signals(stop):
        try:
            if await _unless(stop, together.start()):
                address = f"http://{_shown(options.host)}:{options.port}/job-queues"
                say(f"ready. Dashboard: {address} (Ctrl-C stops everything)")
                await stop.wait()
            say("stopping …")
            return 0
        except CannotStart as error:
            say(f"error: {error}")
            return 1
        finally:
            await together.stop()
            say("all stopped")


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def run(options: argparse.Namespace) -> int:
    """Run until INT, TERM or HUP; the exit status."""
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    return asyncio.run(_serve(options, load()))
