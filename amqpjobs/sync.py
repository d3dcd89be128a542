"""`SyncClient`: the client for code without an event loop, usable from many threads and after a fork."""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import logging
import os
import threading
import weakref
from collections import deque
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from amqpjobs.batch import UNDER_WAY, Bulk, Call
from amqpjobs.client import Client, JobName
from amqpjobs.payload import EnqueueOptions
from amqpjobs.settings import Settings
from amqpjobs.streams.errors import BrokerError
from amqpjobs.streams.port import Outgoing
from amqpjobs.waiting import Verdicts

log = logging.getLogger("amqpjobs")

T = TypeVar("T")

_GRACE = 5.0
"""Seconds beyond the publish timeout after which a silent loop thread is taken for dead."""


class _Engine:
    """One event loop in one thread of one process, with the client that lives on it."""

    def __init__(self, settings: Settings) -> None:
        self.pid = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="amqpjobs-client", daemon=True)
        self._thread.start()
        self.client = asyncio.run_coroutine_threadsafe(self._open(settings), self._loop).result()

    async def _open(self, settings: Settings) -> Client:
        return Client(settings)

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Run a coroutine of the client on the loop."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def close(self) -> None:
        """Close the client, then end the thread."""
        try:
            asyncio.run_coroutine_threadsafe(self.client.close(), self._loop).result(_GRACE)
        except concurrent.futures.TimeoutError:
            log.warning("the client's connection did not close within %g s", _GRACE)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_GRACE)
        if not self._thread.is_alive():
            self._loop.close()


class SyncClient:
    """As `Client`, for threads: same methods, same arguments, same errors, each call blocks until the broker confirms.

    Connects at the first call; a forked child connects anew (the parent's connection is not the child's to use).
    """

    def __init__(self, settings: Settings | None = None) -> None:
        self.settings = settings or Settings()
        self._lock = threading.Lock()
        self._engine: _Engine | None = None
        _clients.add(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def enqueue(
        self, job: JobName, *args: Any, kwargs: Mapping[str, Any] | None = None, **options: Unpack[EnqueueOptions]
    ) -> str:
        """Put a job on its queue and return its jid; see `Client.enqueue`."""
        return self.submit(job, args, kwargs or {}, options).result()

    def enqueue_in(
        self,
        delay: float | timedelta,
        job: JobName,
        *args: Any,
        kwargs: Mapping[str, Any] | None = None,
        **options: Unpack[EnqueueOptions],
    ) -> str:
        """Put a job on its queue in `delay` seconds and return its jid; see `Client.enqueue_in`."""
        return self.submit(job, args, kwargs or {}, options, delay=delay).result()

    def enqueue_at(
        self,
        when: datetime | float,
        job: JobName,
        *args: Any,
        kwargs: Mapping[str, Any] | None = None,
        **options: Unpack[EnqueueOptions],
    ) -> str:
        """Put a job on its queue at `when` and return its jid; see `Client.enqueue_at`."""
        return self.submit(job, args, kwargs or {}, options, at=when).result()

    def enqueue_many(self, calls: Iterable[Call]) -> list[str]:
        """Put many jobs on their queues and return their jids in order; see `Client.enqueue_many`.

        The iterable is read here, in the calling thread: it may be a database's cursor.
        """
        engine = self._ready()
        bulk = Bulk(calls, engine.client.message)
        sending: deque[tuple[list[Outgoing], concurrent.futures.Future[dict[int, BrokerError]]]] = deque()
        while window := bulk.read():
            sending.append((window, engine.submit(engine.client.send(window))))
            if len(sending) >= UNDER_WAY:
                first, sent = sending.popleft()
                bulk.settled(first, sent.result())
        for first, sent in sending:
            bulk.settled(first, sent.result())
        if last := bulk.last():
            bulk.settled(last, engine.submit(engine.client.send(last)).result())
        return bulk.result()

    def cancel(self, *jids: str) -> None:
        """Cancel jobs wherever they are; see `Client.cancel`."""
        engine = self._ready()
        engine.submit(engine.client.cancel(*jids)).result()

    def delete(self, *jids: str, where: str | None = None) -> Verdicts:
        """Take jobs that wait out of their set; see `Client.act`."""
        return self.act("delete", jids, where=where)

    def trigger(self, *jids: str) -> Verdicts:
        """Run scheduled jobs now; see `Client.act`."""
        return self.act("trigger", jids)

    def reschedule(self, *jids: str, at: datetime | float, where: str | None = None) -> Verdicts:
        """Let jobs that wait run at another time; see `Client.act`."""
        return self.act("reschedule", jids, where=where, at=at)

    def retry(self, *jids: str) -> Verdicts:
        """Run the next try of failed jobs now; see `Client.act`."""
        return self.act("retry", jids)

    def kill(self, *jids: str) -> Verdicts:
        """Try failed jobs no more; see `Client.act`."""
        return self.act("kill", jids)

    def requeue(self, *jids: str) -> Verdicts:
        """Run dead jobs again; see `Client.act`."""
        return self.act("requeue", jids)

    def restore(self, *jids: str, where: str | None = None) -> Verdicts:
        """Undo the last deletion of jobs; see `Client.act`."""
        return self.act("restore", jids, where=where)

    def act(
        self,
        word: str,
        jids: Sequence[str],
        *,
        where: str | None = None,
        at: datetime | float | None = None,
        by: str = "client",
        patience: float = 30.0,
    ) -> Verdicts:
        """Act on jobs that wait, and wait for the verdicts; see `Client.act`."""
        engine = self._ready()
        return engine.submit(engine.client.act(word, jids, where=where, at=at, by=by, patience=patience)).result()

    def submit(
        self,
        job: JobName,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        options: EnqueueOptions,
        *,
        delay: float | timedelta | None = None,
        at: datetime | float | None = None,
    ) -> concurrent.futures.Future[str]:
        """Begin one of the three calls; the future ends with the jid or with the call's error."""
        engine = self._ready()
        client = engine.client
        if at is not None:
            return engine.submit(client.enqueue_at(at, job, *args, kwargs=kwargs, **options))
        if delay is not None:
            return engine.submit(client.enqueue_in(delay, job, *args, kwargs=kwargs, **options))
        return engine.submit(client.enqueue(job, *args, kwargs=kwargs, **options))

    def close(self) -> None:
        """Close the connection and end the thread; safe to repeat. A later call connects again."""
        with self._lock:
            engine, self._engine = self._engine, None
        if engine is not None and engine.pid == os.getpid():
            engine.close()

    def _ready(self) -> _Engine:
        with self._lock:
            if self._engine is None or self._engine.pid != os.getpid():
                self._engine = _Engine(self.settings)
            return self._engine

    def _forked(self) -> None:
        """In a forked child: the lock may have been held by a thread that does not exist here."""
        self._lock = threading.Lock()
        self._engine = None


_clients: weakref.WeakSet[SyncClient] = weakref.WeakSet()
_default_lock = threading.Lock()
_default: SyncClient | None = None


def default_client() -> SyncClient:
    """The process's own client, which `@job` functions enqueue through; made from the settings at its first use."""
    global _default  # noqa: PLW0603 - one per process is the point
    with _default_lock:
        if _default is None:
            _default = SyncClient()
        return _default


def configure(settings: Settings) -> None:
    """Let `@job` functions of this process enqueue with these settings; closes the client that they used before."""
    global _default
    with _default_lock:
        before, _default = _default, SyncClient(settings)
    if before is not None:
        before.close()


def _after_fork() -> None:
    global _default_lock  # noqa: PLW0603 - see SyncClient._forked
    _default_lock = threading.Lock()
    for client in list(_clients):
        client._forked()


def _close_all() -> None:
    for client in list(_clients):
        client.close()


os.register_at_fork(after_in_child=_after_fork)
atexit.register(_close_all)
