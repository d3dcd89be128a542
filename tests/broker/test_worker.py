"""One worker against a real broker: what becomes of each job, and that it is recorded before it is acknowledged."""

from __future__ import annotations

import asyncio
import base64
import gzip
import logging
import os
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from amqpjobs import Fail, Retry, Snooze, current
from amqpjobs.clock import SystemClock
from amqpjobs.jobs import Registry
from amqpjobs.model import names
from amqpjobs.streams.link import Link
from amqpjobs.streams.port import Outgoing, Properties
from amqpjobs.streams.sender import Sender
from amqpjobs.worker.logs import JobFilter
from tests.broker.conftest import Watches, Workers
from tests.patience import PATIENCE

Eventually = Callable[..., Awaitable[Any]]


@pytest.fixture
def jobs() -> Registry:
    return Registry()


@pytest.fixture
def publish(link: Link) -> Callable[..., Awaitable[None]]:
    """Publishes raw bytes as a foreign client would."""
    sender = Sender(link, clock=SystemClock())

    async def send(body: bytes, queue: str = "default", **properties: Any) -> None:
        message = Outgoing(body, names.JOBS_EXCHANGE, queue, Properties(**properties))
        await sender.publish(message, timeout=PATIENCE)

    return send


async def test_jobs_run_and_are_acknowledged_with_a_metric_each(
    jobs: Registry, client: Any, workers: Workers, watch: Watches
) -> None:
    ran: list[Any] = []

    @jobs.job
    def sync_job(*args: Any, **kwargs: Any) -> None:
        ran.append((args, kwargs, current().jid, threading.current_thread() is threading.main_thread()))

    @jobs.job
    async def async_job(*args: Any, **kwargs: Any) -> None:
        await asyncio.sleep(0)
        ran.append((args, kwargs, current().jid, threading.current_thread() is threading.main_thread()))

    metrics = await watch(names.METRICS)
    first = await client.enqueue("sync_job", 1, "a", None, tags=["t"])
    second = await client.enqueue("async_job", kwargs={"x": [1.5]})
    worker = await workers(jobs)
    found = {entry["jid"]: entry for entry in await metrics.until(2)}
    assert sorted(ran, key=lambda each: each[3]) == [
        ((1, "a", None), {}, first, False),
        ((), {"x": [1.5]}, second, True),
    ]
    for jid, cls in ((first, "sync_job"), (second, "async_job")):
        metric = found[jid]
        assert (metric["type"], metric["job_class"], metric["status"]) == ("job_metric", cls, "success")
        assert (metric["attempt"], metric["queue"]) == (1, "default")
        assert metric["worker_identity"] == worker.identity.name
        assert 0 <= metric["duration_ms"] <= metric["wait_ms"] + metric["duration_ms"] < 1000 * PATIENCE
    assert await workers.left() == 0


async def test_a_failure_waits_in_retries_with_its_backoff_and_is_acknowledged(
    jobs: Registry, client: Any, workers: Workers, watch: Watches
) -> None:
    @jobs.job
    def breaks(n: int) -> None:
        raise ValueError(f"no {n}")

    retries, metrics = await watch(names.RETRIES), await watch(names.METRICS)
    jid = await client.enqueue("breaks", 7, meta={"mine": 1})
    await workers(jobs)
    [entry] = await retries.until(1)
    assert (entry["type"], entry["jid"], entry["retry_count"], entry["attempt"]) == ("retry", jid, 1, 1)
    assert (entry["error_class"], entry["error_message"]) == ("ValueError", "no 7")
    assert 15 <= entry["retry_at"] - entry["failed_at"] <= 45
    assert abs(entry["failed_at"] - time.time()) < PATIENCE
    assert (entry["job"]["jid"], entry["job"]["args"], entry["job"]["meta"]) == (jid, [7], {"mine": 1})
    assert 'raise ValueError(f"no {n}")' in entry["backtrace"]
    assert "executor.py" not in entry["backtrace"]
    [metric] = await metrics.until(1)
    assert (metric["status"], metric["error_class"], metric["jid"]) == ("failed", "ValueError", jid)
    assert await workers.left() == 0


RETRY_VALUES: dict[str, Any] = {
    "false": "dead",
    "0": "dead",
    "-1": "dead",
    "true": 25,
    "null": 25,
    "absent": 25,
    '"5"': 5,
    "2.7": 2,
}


@pytest.mark.parametrize("value", RETRY_VALUES)
async def test_ret_02_each_value_of_retry_has_its_documented_outcome(
    value: str, jobs: Registry, publish: Any, workers: Workers, watch: Watches
) -> None:
    """Every value is followed to the end: the last allowed failure is the one that is dead."""

    @jobs.job
    def fails() -> None:
        raise OSError("always")

    retries, dead, metrics = await watch(names.RETRIES), await watch(names.DEAD), await watch(names.METRICS)
    given = "" if value == "absent" else f',"retry":{value}'
    await publish(b'{"jid":"first","class":"fails","args":[]%s}' % given.encode())
    expected = RETRY_VALUES[value]
    await workers(jobs)
    if expected == "dead":
        [entry] = await dead.until(1)
        assert (entry["type"], entry["jid"], entry["retry_count"]) == ("dead_job", "first", 0)
        assert entry["error_class"] == "OSError"
        assert retries.entries == []
        await metrics.until(1)
    else:
        [entry] = await retries.until(1)
        assert (entry["jid"], entry["retry_count"]) == ("first", 1)
        last = b'{"jid":"last","class":"fails","args":[]%s,"retry_count":%d}'
        await publish(last % (given.encode(), expected))
        [entry] = await dead.until(1)
        assert (entry["jid"], entry["retry_count"]) == ("last", expected)
        await metrics.until(2)
        assert len(retries.entries) == 1
    assert {metric["status"] for metric in metrics.entries} == {"failed"}
    assert await workers.left() == 0


RETRY_COUNTS: dict[str, Any] = {"1000000": "dead", str(10**30): "dead", '"3"': 4, "-5": 1}


@pytest.mark.parametrize("count", RETRY_COUNTS)
async def test_ret_01_odd_counts_are_held_and_the_delay_is_capped(
    count: str, jobs: Registry, publish: Any, workers: Workers, watch: Watches
) -> None:
    @jobs.job
    def fails() -> None:
        raise OSError("always")

    retries, dead = await watch(names.RETRIES), await watch(names.DEAD)
    await publish(b'{"jid":"a","class":"fails","retry":1000000000,"retry_count":%s}' % count.encode())
    worker = await workers(jobs)
    expected = RETRY_COUNTS[count]
    if expected == "dead":
        [entry] = await dead.until(1)
        assert entry["retry_count"] == 1000
    else:
        [entry] = await retries.until(1)
        assert entry["retry_count"] == expected
    before = len(retries.entries)
    await publish(b'{"jid":"b","class":"fails","retry":1000000000,"retry_count":999}')
    waits = [each["retry_at"] - each["failed_at"] for each in await retries.until(before + 1)]
    assert max(waits) <= 30 * 86400 + 1
    assert worker.state == "running"
    assert await workers.left() == 0


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


class OddError(BaseException):
    pass


async def test_poi_06_whatever_a_handler_raises_is_one_failed_try_and_the_worker_goes_on(
    jobs: Registry, client: Any, workers: Workers, watch: Watches
) -> None:
    errors: dict[str, Callable[[], Any]] = {
        "exit": lambda: sys.exit(1),
        "interrupt": lambda: raising(KeyboardInterrupt()),
        "unprintable": lambda: raising(UnprintableError()),
        "odd": lambda: raising(OddError("odd")),
        "cancelled": lambda: raising(asyncio.CancelledError()),
        "generator": lambda: raising(GeneratorExit()),
        "stop": lambda: raising(StopIteration()),
    }

    @jobs.job(name="sync")
    def in_thread(what: str) -> None:
        errors[what]()

    @jobs.job(name="async")
    async def on_loop(what: str) -> None:
        await asyncio.sleep(0)
        errors[what]()

    @jobs.job
    def unserialisable() -> object:
        return object()

    retries, metrics = await watch(names.RETRIES), await watch(names.METRICS)
    for kind in ("sync", "async"):
        for what in errors:
            await client.enqueue(kind, what, jid=f"{kind} {what}")
    await client.enqueue("sync")  # misses its argument
    await client.enqueue("unserialisable", jid="fine")
    await workers(jobs, concurrency=2)
    total = 2 * len(errors) + 1
    entries = {entry["jid"]: entry for entry in await retries.until(total)}
    await metrics.until(total + 1)
    assert await workers.left() == 0
    assert len(retries.entries) == total
    assert {entry["jid"]: entry["status"] for entry in metrics.entries if entry["status"] == "success"} == {
        "fine": "success"
    }
    assert entries["sync exit"]["error_class"] == entries["async exit"]["error_class"] == "SystemExit"
    assert entries["async cancelled"]["error_class"] == "CancelledError"
    assert "no message" in entries["sync unprintable"]["error_message"]
    assert "missing 1 required positional argument" in str([entry["error_message"] for entry in retries.entries])


def raising(error: BaseException) -> None:
    raise error


async def test_an_unknown_class_fails_and_retries_like_any_error(
    jobs: Registry, client: Any, workers: Workers, watch: Watches
) -> None:
    retries = await watch(names.RETRIES)
    await client.enqueue("Nobody", 1)
    await workers(jobs)
    [entry] = await retries.until(1)
    assert (entry["error_class"], entry["retry_count"]) == ("UnknownJobClass", 1)


POISON = {
    "brace": b"{",
    "empty": b"",
    "ff fe": b"\xff\xfe",
    "utf-16": '{"class":"X"}'.encode("utf-16"),
    "deep": b"[" * 10_000,
    "digits": b'{"class":"X","args":[' + b"9" * 5000 + b"]}",
    "list": b'[{"class":"X"}]',
    "blanks": b" \xff\n",
    "mark": b"\xef\xbb\xbf{",
}


async def test_poi_02_poison_is_one_dead_record_each_with_its_bytes_and_is_acknowledged(
    jobs: Registry, publish: Any, workers: Workers, watch: Watches
) -> None:
    ran = []
    jobs.job(name="X")(lambda: ran.append(1))
    dead, metrics = await watch(names.DEAD), await watch(names.METRICS)
    for name, body in POISON.items():
        await publish(body, message_id=name)
    await publish(b'{"class":"X"}')
    await workers(jobs)
    entries = {entry["jid"]: entry for entry in await dead.until(len(POISON))}
    await metrics.until(len(POISON) + 1)
    assert await workers.left() == 0
    assert set(entries) == set(POISON)
    assert len(dead.entries) == len(POISON)
    for name, body in POISON.items():
        entry = entries[name]
        kept = entry["raw"].encode() if "raw" in entry else base64.b64decode(entry["raw_base64"])
        assert kept == body
        assert (entry["type"], entry["error_class"], entry["queue"]) == ("dead_job", "Malformed", "default")
    assert ran == [1]
    assert sorted(metric["status"] for metric in metrics.entries) == ["failed"] * len(POISON) + ["success"]


async def test_poi_04_content_types_do_not_matter_valid_json_runs_and_the_rest_is_dead(
    jobs: Registry, publish: Any, workers: Workers, watch: Watches
) -> None:
    ran: list[str] = []
    jobs.job(name="X")(ran.append)
    metrics, dead = await watch(names.METRICS), await watch(names.DEAD)
    for kind in (None, "application/json; charset=UTF-8", "text/plain"):
        await publish(b'{"class":"X","args":["%s"]}' % str(kind).encode(), content_type=kind)
    await publish(b'{"class":"X","args":["gzip"]}', content_encoding="gzip")
    rest = [gzip.compress(b'{"class":"X","args":["packed"]}'), b"\x1f\x8b\x08 not really", b"plain words"]
    for body in rest:
        await publish(body, content_type="text/plain", content_encoding="gzip")
    await workers(jobs)
    await metrics.until(7)
    records = await dead.until(3)
    assert sorted(ran) == ["None", "application/json; charset=UTF-8", "gzip", "text/plain"]
    kept = [each["raw"].encode() if "raw" in each else base64.b64decode(each["raw_base64"]) for each in records]
    assert sorted(kept) == sorted(rest)
    assert await workers.left() == 0


async def test_retry_fail_and_snooze_are_what_a_handler_may_ask_for(
    jobs: Registry, client: Any, workers: Workers, watch: Watches
) -> None:
    @jobs.job
    async def asks(what: str) -> None:
        raise {"retry": Retry(in_=500), "fail": Fail("never"), "snooze": Snooze(300)}[what]

    retries, dead, scheduled = await watch(names.RETRIES), await watch(names.DEAD), await watch(names.SCHEDULED)
    metrics = await watch(names.METRICS)
    for what in ("retry", "fail", "snooze"):
        await client.enqueue("asks", what, jid=what, priority=4)
    await workers(jobs)
    [again], [final], [later] = await retries.until(1), await dead.until(1), await scheduled.until(1)
    assert again["retry_at"] - again["failed_at"] == pytest.approx(500)
    assert (final["jid"], final["error_message"]) == ("fail", "never")
    assert (later["jid"], later["reschedule"], later["job"]["retry_count"]) == ("snooze", True, 0)
    assert abs(later["scheduled_at"] - time.time() - 300) < PATIENCE
    assert await workers.left() == 0
    assert sorted(entry["jid"] for entry in metrics.entries) == ["fail", "retry"]


async def test_time_limits(jobs: Registry, client: Any, workers: Workers, watch: Watches) -> None:
    cleaned: list[str] = []
    seen: list[bool] = []

    @jobs.job(name="async")
    async def endless() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.append(current().jid)

    @jobs.job(name="sync")
    def overruns() -> None:
        deadline = time.monotonic() + 20
        while not current().cancelled and time.monotonic() < deadline:
            time.sleep(0.01)
        seen.append(current().cancelled)

    @jobs.job(name="own")
    async def own_timeout() -> None:
        raise TimeoutError("of its own")

    retries = await watch(names.RETRIES)
    for kind in ("async", "sync", "own"):
        await client.enqueue(kind, timeout=0.3, jid=kind)
    await workers(jobs)
    entries = {entry["jid"]: entry for entry in await retries.until(3)}
    assert {jid: entry["error_class"] for jid, entry in entries.items()} == {
        "async": "JobTimeout",
        "sync": "JobTimeout",
        "own": "TimeoutError",
    }
    assert "its time limit is 0.3 s" in entries["sync"]["error_message"]
    assert cleaned == ["async"]
    assert seen == [True]


async def test_what_waited_too_long_in_its_queue_is_dropped_and_counted(
    jobs: Registry, publish: Any, workers: Workers, watch: Watches
) -> None:
    ran: list[str] = []
    jobs.job(name="X")(ran.append)
    metrics = await watch(names.METRICS)
    old, now = time.time() - 100, time.time()
    await publish(b'{"jid":"old","class":"X","args":["old"],"expires_in":50,"enqueued_at":%f}' % old)
    await publish(
        b'{"jid":"new","class":"X","args":["new"],"expires_in":50,"created_at":%f,"enqueued_at":%f}' % (old, now)
    )
    await workers(jobs)
    found = {entry["jid"]: entry["status"] for entry in await metrics.until(2)}
    assert found == {"old": "expired", "new": "success"}
    assert ran == ["new"]
    assert await workers.left() == 0


async def test_discarded_when_dead_is_false_but_counted(
    jobs: Registry, client: Any, workers: Workers, watch: Watches
) -> None:
    jobs.job(name="X")(lambda: 1 / 0)
    dead, retries, metrics = await watch(names.DEAD), await watch(names.RETRIES), await watch(names.METRICS)
    await client.enqueue("X", retry=False, dead=False)
    await workers(jobs)
    [metric] = await metrics.until(1)
    assert (metric["status"], metric["error_class"]) == ("failed", "ZeroDivisionError")
    assert await workers.left() == 0
    assert (dead.entries, retries.entries) == ([], [])


async def test_priority_correlation_and_headers_travel_in_the_entry(
    jobs: Registry, publish: Any, workers: Workers, watch: Watches
) -> None:
    jobs.job(name="X")(lambda: 1 / 0)
    retries = await watch(names.RETRIES)
    headers = {"traceparent": "00-ab-cd-01", "number": 7}
    await publish(b'{"class":"X","jid":"j"}', priority=6, correlation_id="c", headers=headers)
    await workers(jobs)
    [entry] = await retries.until(1)
    assert entry["properties"] == {"priority": 6, "correlation_id": "c", "headers": headers}


async def test_every_log_line_of_a_job_carries_its_jid(
    jobs: Registry, client: Any, workers: Workers, watch: Watches, caplog: pytest.LogCaptureFixture
) -> None:
    logger = logging.getLogger("mine")

    @jobs.job(name="sync")
    def in_thread() -> None:
        logger.warning("from the thread")

    @jobs.job(name="async")
    async def on_loop() -> None:
        await asyncio.sleep(0)
        logger.warning("from the loop")
        raise ValueError("logged by us")

    metrics = await watch(names.METRICS)
    job_filter = JobFilter()
    caplog.handler.addFilter(job_filter)
    try:
        first, second = await client.enqueue("sync"), await client.enqueue("async")
        await workers(jobs)
        await metrics.until(2)
    finally:
        caplog.handler.removeFilter(job_filter)
    lines = {record.getMessage(): record.__dict__.get("jid") for record in caplog.records}
    assert lines["from the thread"] == first
    assert lines["from the loop"] == second
    assert [jid for message, jid in lines.items() if "logged by us" in message] == [second]


async def test_heartbeats_at_start_at_change_and_goodbye(
    jobs: Registry, client: Any, workers: Workers, watch: Watches, eventually: Eventually
) -> None:
    release = asyncio.Event()

    @jobs.job
    async def holds() -> None:
        await release.wait()

    beats = await watch(names.HEARTBEATS)
    worker = await workers(jobs, queues="default low", concurrency=3)
    [first] = await beats.until(1)
    assert first["type"] == "heartbeat"
    assert first["identity"] == f"{first['hostname']}:{os.getpid()}:production" == worker.identity.name
    assert (first["pid"], first["tag"], first["concurrency"]) == (os.getpid(), "production", 3)
    assert (first["queues"], first["state"], first["busy"]) == (["default", "low"], "running", 0)
    assert len(first["nonce"]) == 16
    assert first["rss_kb"] > 1000
    assert first["boot_at"] <= first["beat"] <= time.time()
    jid = await client.enqueue("holds")
    await eventually(lambda: worker.busy == 1)
    await worker.quiet()
    second = (await beats.until(2))[1]
    assert (second["state"], second["busy"]) == ("quiet", 1)
    assert [(run["jid"], run["class"], run["queue"]) for run in second["running"]] == [(jid, "holds", "default")]
    release.set()
    await worker.stop()
    last = (await beats.until(3))[-1]
    assert (last["state"], last["goodbye"], last["busy"]) == ("stopped", True, 0)


async def test_acks_in_any_order_leave_nothing_behind(
    jobs: Registry, client: Any, workers: Workers, watch: Watches
) -> None:
    """Long and short jobs end out of order; a wrong multiple ack would close the channel and run jobs again."""
    ran: list[int] = []

    @jobs.job
    async def uneven(n: int) -> None:
        await asyncio.sleep((n * 7919 % 13) / 200)
        ran.append(n)

    metrics = await watch(names.METRICS)
    await workers(jobs, concurrency=7)
    await asyncio.gather(*(client.enqueue("uneven", n) for n in range(400)))
    await metrics.until(400)
    assert await workers.left() == 0
    assert sorted(ran) == list(range(400))


async def test_queues_are_served_in_the_order_given(
    jobs: Registry, client: Any, workers: Workers, watch: Watches, eventually: Eventually
) -> None:
    ran: list[str] = []
    jobs.job(name="X")(lambda: ran.append(current().queue))
    metrics = await watch(names.METRICS)
    for n in range(20):
        await client.enqueue("X", queue="low" if n % 2 else "critical")
    gate = threading.Event()
    jobs.job(name="gate")(lambda: gate.wait(PATIENCE))
    await client.enqueue("gate", queue="first")
    worker = await workers(jobs, queues="first critical low", concurrency=1, prefetch=20)
    await eventually(lambda: worker._fetcher.buffered == 20)
    gate.set()
    await metrics.until(21)
    assert ran == ["critical"] * 10 + ["low"] * 10


@pytest.fixture
def patient_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue keeps its turn however long a slow machine needs to bring its next jobs."""
    monkeypatch.setattr("amqpjobs.worker.fetch.LONGEST_HOLD", PATIENCE)
    monkeypatch.setattr("amqpjobs.worker.subscription.REFILL", 1.0)


@pytest.mark.parametrize(("concurrency", "seconds"), [(1, 0.0), (4, 0.004), (10, 0.0)])
async def test_weighted_queues_share_the_starts_while_both_are_full(
    concurrency: int,
    seconds: float,
    jobs: Registry,
    client: Any,
    workers: Workers,
    watch: Watches,
    patient_turns: None,
) -> None:
    ran: list[str] = []

    @jobs.job
    async def X() -> None:
        ran.append(current().queue)
        await asyncio.sleep(seconds)

    metrics = await watch(names.METRICS)
    await client.enqueue_many(("X", (), {"queue": queue}) for queue in ("critical", "default") for _ in range(400))
    await workers(jobs, queues="critical,3 default,1", concurrency=concurrency)
    await metrics.until(800)
    last = max(number for number, queue in enumerate(ran) if queue == "critical")
    both_full = ran[: last + 1]
    share = both_full.count("default") / 400
    assert 0.9 / 3 <= share <= 1.1 / 3, f"{both_full.count('default')} of default while critical ran its 400"
    for begin in range(0, len(both_full) - 80, 40):
        part = both_full[begin : begin + 80]
        assert 50 <= part.count("critical") <= 70, "evenly spread, not in bursts"


async def test_without_weights_the_order_is_strict_while_the_first_is_full(
    jobs: Registry, client: Any, workers: Workers, watch: Watches, patient_turns: None
) -> None:
    ran: list[str] = []

    @jobs.job
    async def X() -> None:
        ran.append(current().queue)

    metrics = await watch(names.METRICS)
    await client.enqueue_many(("X", (), {"queue": queue}) for queue in ("low", "critical") for _ in range(200))
    await workers(jobs, queues="critical low", concurrency=2)
    await metrics.until(400)
    assert sorted(ran) == ["critical"] * 200 + ["low"] * 200
    early = ran[:200].count("low")
    assert early <= 10, f"{early} of low before the last of critical"


async def test_a_deleted_queue_is_declared_again_and_consumed(
    jobs: Registry, client: Any, workers: Workers, watch: Watches, link: Link
) -> None:
    jobs.job(name="X")(lambda: None)
    metrics = await watch(names.METRICS)
    await workers(jobs)
    await client.enqueue("X", jid="before")
    await metrics.until(1)
    connection = await link.connection()
    await connection.delete_queue("queue.default")
    await client.enqueue("X", jid="after")
    assert [entry["jid"] for entry in await metrics.until(2)] == ["before", "after"]
    state = await connection.passive("queue.default")
    assert state is not None
    assert state.consumers == 1
