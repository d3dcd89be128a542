"""A worker's checklist (docs/protocol.md): what each language's worker does beside our scheduler, on a real broker."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from amqpjobs.broker.node import PrivateNode
from amqpjobs.clock import SystemClock
from amqpjobs.model import names, reading
from amqpjobs.model.controls import write_cancel, write_order, write_pause, write_resume
from amqpjobs.model.messages import DeadJob, Heartbeat, JobMetric, RetryEntry
from amqpjobs.model.processes import STALE_AFTER
from amqpjobs.settings import Settings
from amqpjobs.streams import topology
from amqpjobs.streams.link import Link
from amqpjobs.sync import SyncClient
from tests.broker.languages import LANGUAGES, Language, Log, Logs, Site, statuses
from tests.broker.programs import Program, Programs, environment
from tests.conftest import Broker, Eventually
from tests.forwarding import swallowing
from tests.patience import PATIENCE, SOON

# One virtual host, scheduler and worker for each language: the tests share them, and tell their jobs apart by jid.


@pytest.fixture(scope="module", params=LANGUAGES, ids=lambda language: language.name)
def language(request: pytest.FixtureRequest) -> Language:
    found: Language = request.param
    missing = found.missing()
    if missing:
        pytest.fail(missing, pytrace=False)
    return found


@pytest.fixture(scope="module")
def settings(broker: Broker, language: Language, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    vhost = broker.create_vhost()
    state = tmp_path_factory.mktemp(language.name)
    yield Settings(url=broker.url_of(vhost), management_url=broker.management_url, state_dir=state)
    broker.delete_vhost(vhost)


@pytest.fixture(scope="module")
def site(language: Language, settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    programs = Programs()
    site = Site(language, settings, programs, tmp_path_factory.mktemp("out") / "out")
    try:
        programs.start("-m", "amqpjobs.scheduler", env=environment(settings)).wait_for(r"\bready\b")
        site.default = site.start("-q", "default", "-c", "4")
        yield site
    finally:
        programs.end()


@pytest.fixture
async def logs(site: Site, link: Link) -> AsyncIterator[Logs]:
    yield await Logs(link).start()


@pytest.fixture
def alone(language: Language, broker: Broker, tmp_path: Path) -> Iterator[Site]:
    """A virtual host without a scheduler, which would say what it knows of controls."""
    vhost = broker.create_vhost()
    settings = Settings(url=broker.url_of(vhost), management_url=broker.management_url, state_dir=tmp_path)
    programs = Programs()
    yield Site(language, settings, programs, tmp_path / "out")
    programs.end()
    broker.delete_vhost(vhost)


@pytest.fixture
def client(site: Site) -> Iterator[SyncClient]:
    with SyncClient(site.settings) as client:
        yield client


def job(jid: str, job_class: str, *args: Any, **more: Any) -> dict[str, Any]:
    return {"jid": jid, "class": job_class, "args": list(args), "queue": "default"} | more


UNCONSUMED = {"queue": "nowhere"}
"""Where the retries go that no test waits for: back on `default` they would be in the way of others."""


async def beat_of(logs: Logs, program: Program, count: int = 1, **members: Any) -> dict[str, Any]:
    """The last heartbeat of a program, once there are so many with these members."""
    return (await logs.beats.until(count, pid=program.pid, **members))[-1]


async def metric_of(logs: Logs, jid: str, **members: Any) -> JobMetric:
    metric = reading.read_metric(await logs.metrics.one(jid=jid, **members))
    assert isinstance(metric, JobMetric)
    return metric


# Runs.


async def test_it_runs_what_our_client_enqueues(site: Site, logs: Logs, client: SyncClient) -> None:
    positional = client.enqueue("echo", "crème brûlée", 7, None, [1.5, {"a": True}])
    named = client.enqueue("echo", kwargs={"to": "ada", "n": 2})
    for jid in (positional, named):
        metric = await metric_of(logs, jid)
        assert (metric.status, metric.attempt, metric.job_class, metric.queue) == ("success", 1, "echo", "default")
        assert metric.duration_ms is not None
        assert metric.wait_ms is not None
    assert ["crème brûlée", 7, None, [1.5, {"a": True}]] in site.written()
    assert {"to": "ada", "n": 2} in site.written()


async def test_its_producer_enqueues(site: Site, logs: Logs) -> None:
    jid = await asyncio.to_thread(site.produce, "enqueue", "default", "echo", ["from its producer"])
    assert (await metric_of(logs, jid)).status == "success"
    assert ["from its producer"] in site.written()


async def test_its_producer_schedules_and_our_scheduler_releases(site: Site, logs: Logs) -> None:
    sent = time.time()
    jid = await asyncio.to_thread(site.produce, "schedule", "default", "echo", ["later"], 2.0)
    metric = await metric_of(logs, jid)
    assert metric.status == "success"
    assert metric.timestamp >= sent + 2.0
    assert ["later"] in site.written()


# Failures.


async def test_a_retry_comes_back_and_succeeds(site: Site, logs: Logs, client: SyncClient) -> None:
    jid = client.enqueue("flaky", 2, retry_delays=[0.2, 0.4])
    assert statuses(await logs.metrics.until(3, jid=jid)) == [("failed", 1), ("failed", 2), ("success", 3)]
    entries = [entry for entry in logs.retries.of(jid=jid) if entry["type"] == "retry"]
    assert [entry["retry_count"] for entry in entries] == [1, 2]
    assert [round(entry["retry_at"] - entry["failed_at"], 3) for entry in entries] == [0.2, 0.4]


async def test_the_job_travels_on_as_it_came_digit_by_digit(site: Site, logs: Logs) -> None:
    exact = b'"mine":{"long":12345678901234567890,"digits":1.10,"text":"\xc3\xa9 <&>"}'
    await logs.enqueue("default", b'{"jid":"exact","class":"fail","retry_delays":[3600],' + exact + b"}")
    await logs.retries.until(jid="exact")
    body = logs.retries.body(jid="exact")
    [piece] = await asyncio.to_thread(reading.pieces, body)  # type: ignore[misc]
    entry = reading.read_retry(piece, jid="")
    assert isinstance(entry, RetryEntry)
    assert (entry.job.cls, entry.job.queue, entry.retry_count) == ("fail", "default", 1)
    assert b'"long":12345678901234567890,"digits":1.10' in entry.job_raw
    assert json.loads(entry.job_raw)["mine"]["text"] == "é <&>"


@pytest.mark.parametrize(
    ("more", "least", "most"),
    [
        ({}, 15, 45),
        ({"retry_count": 3}, 81 + 15, 81 + 15 + 120),
        ({"retry_delays": [7, 9], "retry_count": 5}, 9, 9),
        ({"min_backoff": 2, "retry_count": 3}, 16, 16),
        ({"min_backoff": 2, "max_backoff": 10, "retry_count": 3}, 10, 10),
        ({"retry_count": 900, "retry": 1000}, 30 * 86400, 30 * 86400),
    ],
    ids=["first", "formula", "delays", "doubling", "held", "a month at most"],
)
async def test_how_long_it_waits_for_the_next_run(
    site: Site, logs: Logs, more: dict[str, Any], least: float, most: float
) -> None:
    jid = os.urandom(12).hex()
    await logs.enqueue("default", job(jid, "fail", **more | UNCONSUMED))
    entry = await logs.retries.one(jid=jid, type="retry")
    assert least <= round(entry["retry_at"] - entry["failed_at"], 3) <= most


async def test_after_the_last_retry_the_job_is_dead(site: Site, logs: Logs, client: SyncClient) -> None:
    before = time.time()
    jid = client.enqueue("fail", "one", retry=1, retry_delays=[0.1])
    await logs.dead.until(jid=jid)
    [piece] = reading.pieces(logs.dead.body(jid=jid))  # type: ignore[misc]
    dead = reading.read_dead(piece, jid="")
    assert isinstance(dead, DeadJob)
    assert dead.job is not None
    assert (dead.job.cls, dead.job.args, dead.retry_count) == ("fail", ["one"], 1)
    assert "this job always fails" in dead.error_message
    assert dead.error_class
    assert before < (dead.failed_at or 0) <= dead.died_at < time.time()
    assert (dead.worker_identity or "").split(":")[1] == str(site.default.pid)
    assert statuses(await logs.metrics.until(2, jid=jid)) == [("failed", 1), ("failed", 2)]


async def test_a_job_that_is_not_to_be_kept_is_only_counted(site: Site, logs: Logs) -> None:
    await logs.enqueue("default", job("unkept", "fail", retry=0, dead=False), job("kept", "fail", retry=0))
    assert (await metric_of(logs, "unkept")).status == "failed"
    await logs.dead.until(jid="kept")  # it came later
    assert logs.dead.of(jid="unkept") == logs.retries.of(jid="unkept") == []


async def test_odd_retries_are_read_as_the_contract_says(site: Site, logs: Logs) -> None:
    dying: list[Any] = [False, 0, "0", -1, 0.9]
    living: list[Any] = [None, True, "x", 2.7, "5", 1e9, []]
    odd = [job(f"odd {value!r}", "Nothing", retry=value, retry_count=-3, **UNCONSUMED) for value in dying + living]
    await logs.enqueue("default", *odd)
    for value in dying:
        assert (await logs.dead.one(jid=f"odd {value!r}"))["error_class"] == "UnknownJobClass"
    for value in living:
        entry = await logs.retries.one(jid=f"odd {value!r}", type="retry")
        assert (entry["error_class"], entry["retry_count"]) == ("UnknownJobClass", 1)


async def test_a_tracked_job_is_left_to_those_that_take_leases(site: Site, logs: Logs) -> None:
    """A job of that kind, a singleton, and an offer whose retries are all used: none is run, each is kept."""
    kinds: dict[str, dict[str, Any]] = {"track": {"track": True}, "key": {"key": "k"}}
    offer = job("offer", "echo", "offer", track=True, tracked=7, retry=0)
    await logs.enqueue("default", *(job(jid, "echo", jid, **more | UNCONSUMED) for jid, more in kinds.items()), offer)
    for jid in kinds:
        assert (await logs.retries.one(jid=jid, type="retry"))["error_class"] == "Tracked"
    dead = await logs.dead.one(jid="offer")
    assert (dead["error_class"], dead["job"]["tracked"]) == ("Tracked", 7)
    assert "takes no leases" in dead["error_message"]
    assert not [written for written in site.written() if written in (["track"], ["key"], ["offer"])]


async def test_what_is_no_job_is_buried_as_it_came(site: Site, logs: Logs) -> None:
    bodies = [b"{", b"[1]", b"7", b"", b'{"args": []}', b'{"class": "X", "args": 7}', b"[" * 20_000, b" \xff\xfe{\n"]
    await logs.enqueue("default", *bodies)
    await logs.dead.until(len(bodies), error_class="Malformed", type="dead_job")
    found = [reading.read_dead(piece, jid="") for body in logs.dead.bodies for piece in reading.pieces(body)]  # type: ignore[union-attr]
    originals = [dead.original for dead in found if isinstance(dead, DeadJob) and dead.error_class == "Malformed"]
    assert sorted(filter(None, originals)) == sorted(filter(None, bodies))
    assert len(originals) == len(bodies)
    assert {dead.queue for dead in found if isinstance(dead, DeadJob) and dead.original} == {"default"}
    assert await logs.waiting("default") == (0, 1)


async def test_what_waited_too_long_is_not_run(site: Site, logs: Logs) -> None:
    stale = job("stale", "echo", "stale", enqueued_at=time.time() - 60, expires_in=30)
    await logs.enqueue("default", stale)
    assert (await metric_of(logs, "stale")).status == "expired"
    assert ["stale"] not in site.written()


# Reports.


async def test_its_heartbeat_says_who_it_is(site: Site, logs: Logs) -> None:
    beat = reading.read_heartbeat(await beat_of(logs, site.default))
    assert isinstance(beat, Heartbeat)
    host, pid, tag = beat.identity.split(":")
    assert (host, int(pid), tag) == (beat.hostname, beat.pid, beat.tag)
    assert (beat.concurrency, beat.queues, beat.state) == (4, ["default"], "running")
    assert beat.nonce
    assert beat.rss_kb
    assert beat.boot_at is not None
    assert beat.beat is not None
    assert beat.boot_at <= beat.beat <= time.time()


async def test_it_beats_every_ten_seconds(site: Site, logs: Logs) -> None:
    """Also while its handlers are busy."""
    await logs.enqueue("default", *(job(f"busy {n}", "slow", 12, queue="default") for n in range(4)))
    beats = await logs.beats.until(3, pid=site.default.pid, state="running")
    pauses = [later["beat"] - earlier["beat"] for earlier, later in itertools.pairwise(beats)]
    assert all(8 < pause < STALE_AFTER for pause in pauses)
    busy = await logs.beats.until(pid=site.default.pid, busy=4)
    assert {running["jid"] for running in busy[0]["running"]} == {f"busy {n}" for n in range(4)}
    for n in range(4):
        await logs.metrics.until(jid=f"busy {n}")


# Controls.


async def test_a_paused_queue_starts_nothing_until_it_is_resumed(site: Site, logs: Logs) -> None:
    ordered = await logs.order(write_pause("default", by="ann", at=time.time()))
    beat = await beat_of(logs, site.default, state="paused: default")
    assert beat["beat"] < ordered + SOON
    assert beat["paused"] == ["default"]
    later = site.start("-q", "default")  # one that starts now knows of it too
    await beat_of(logs, later, state="paused: default")
    await logs.enqueue("default", job("paused", "echo", "paused"))
    assert await logs.waiting("default") == (1, 0)
    resumed = await logs.order(write_resume("default", by="ann", at=time.time()))
    metric = await metric_of(logs, "paused")
    assert resumed - 0.5 < metric.timestamp < resumed + SOON
    assert (await beat_of(logs, later, state="running"))["beat"] > resumed - 0.5
    assert later.stop() == 0


async def test_a_snapshot_of_controls_says_all_of_it(alone: Site, broker: Broker) -> None:
    link = Link(alone.settings, "test", SystemClock())
    await link.start()
    await topology.ensure(await link.connection(timeout=PATIENCE), alone.settings)
    logs = await Logs(link).start()
    worker = alone.start("-q", "elsewhere", "-q", "there")
    await logs.order(write_pause("elsewhere", by="ann", at=time.time()))
    await beat_of(logs, worker, state="paused: elsewhere")
    at = time.time()
    snapshot = {"type": "controls_snapshot", "paused": ["there"], "orders": [], "cancelled": [{"jid": "c", "at": at}]}
    outdated = snapshot | {"paused": ["elsewhere"], "after": -1}  # its writer had not read the pause
    await logs.order(snapshot | {"at": at}, outdated | {"at": at}, {"type": "control", "op": "unheard of"})
    await beat_of(logs, worker, state="paused: there")
    await logs.enqueue("elsewhere", job("c", "echo", "cancelled by a snapshot"))
    assert (await metric_of(logs, "c")).status == "cancelled"
    await logs.order([write_resume("there", by="ann", at=at)])  # type: ignore[arg-type]  # entries come in arrays too
    await beat_of(logs, worker, state="running")
    assert worker.stop() == 0
    await link.stop()


async def test_a_cancelled_job_is_not_run(site: Site, logs: Logs) -> None:
    await logs.order(write_pause("default", by="ann", at=time.time()))
    await beat_of(logs, site.default, 2, state="paused: default")
    await logs.enqueue("default", job("unwanted", "echo", "unwanted"), job("wanted", "echo", "wanted"))
    cancel = write_cancel("unwanted", by="ann", at=time.time())
    await logs.order(cancel, write_resume("default", by="ann", at=time.time()))
    assert (await metric_of(logs, "unwanted")).status == "cancelled"
    assert (await metric_of(logs, "wanted")).status == "success"
    assert ["wanted"] in site.written()
    assert ["unwanted"] not in site.written()


async def test_a_job_that_runs_stops_when_it_is_cancelled(site: Site, logs: Logs) -> None:
    await logs.enqueue("default", job("endless", "slow", 600))
    await asyncio.to_thread(site.default.wait_for, "endless slow starts")
    await logs.order(write_cancel("endless", by="ann", at=time.time()))
    metric = await metric_of(logs, "endless")
    assert metric.status == "cancelled"
    assert logs.retries.of(jid="endless") == logs.dead.of(jid="endless") == []


async def test_a_quiet_worker_finishes_what_runs_and_takes_no_more(site: Site, logs: Logs) -> None:
    worker = site.start("-q", "calm", "-c", "2")
    me = await beat_of(logs, worker)
    await logs.enqueue("calm", job("running", "slow", 2, queue="calm"))
    await asyncio.to_thread(worker.wait_for, "running slow starts")
    early = write_order("stop", me["nonce"], by="ann", at=me["boot_at"] - 1)  # not for one that started since
    ordered = await logs.order(early, write_order("quiet", me["nonce"], by="ann", at=time.time()))
    assert (await beat_of(logs, worker, state="quiet"))["beat"] < ordered + SOON
    await logs.enqueue("calm", job("left", "echo", "left", queue="calm"))
    assert (await metric_of(logs, "running")).status == "success"
    assert await logs.waiting("calm") == (1, 0)
    assert worker.running
    await logs.order(write_order("stop", me["identity"], by="ann", at=time.time()))
    assert await asyncio.to_thread(worker.wait) == 0
    assert (await beat_of(logs, worker, state="stopped"))["busy"] == 0
    assert site.default.running


# Coming and going.


async def test_a_stopped_worker_finishes_what_runs_and_gives_the_rest_back(
    site: Site, logs: Logs, eventually: Eventually
) -> None:
    worker = site.start("-q", "first", "-q", "second", "-c", "1")
    await logs.enqueue("first", job("finished", "slow", 2, queue="first"))
    await asyncio.to_thread(worker.wait_for, "finished slow starts")
    await logs.enqueue("second", job("given back", "echo", "given back", queue="second"))
    await until_taken(logs, "second", eventually)
    assert await asyncio.to_thread(worker.stop) == 0
    assert (await metric_of(logs, "finished")).status == "success"
    assert await logs.waiting("second") == (1, 0)
    await beat_of(logs, worker, state="stopped")
    beats = [beat for beat in logs.beats.of(pid=worker.pid) if beat["state"] != "running"]
    assert [beat["state"] for beat in beats] == ["stopping", "stopped"]
    assert [running["jid"] for running in beats[0]["running"]] == ["finished"]
    assert ["given back"] not in site.written()


async def test_a_killed_worker_loses_no_job(site: Site, logs: Logs) -> None:
    worker = site.start("-q", "fatal", "-c", "1")
    await logs.enqueue("fatal", job("survivor", "slow", 1, queue="fatal"))
    await asyncio.to_thread(worker.wait_for, "survivor slow starts")
    worker.send(signal.SIGKILL)
    await asyncio.to_thread(worker.wait)
    assert logs.metrics.of(jid="survivor") == []
    heir = site.start("-q", "fatal")
    assert (await metric_of(logs, "survivor")).status == "success"
    assert heir.stop() == 0


async def test_a_lost_connection_is_made_anew(site: Site, logs: Logs, broker: Broker, eventually: Eventually) -> None:
    worker = site.start("-q", "resumed", "-c", "2")
    await logs.enqueue("resumed", job("again", "slow", 1.5, queue="resumed"))
    await asyncio.to_thread(worker.wait_for, "again slow starts")
    name = f"{site.language.name.removesuffix('-pika')} worker {(await beat_of(logs, worker))['identity']}"
    vhost = site.settings.url.rpartition("/")[2]
    await eventually(lambda: broker.close_connections(vhost, named=name), timeout=PATIENCE)
    assert (await metric_of(logs, "again")).status == "success"
    await logs.enqueue("resumed", job("next", "echo", "next", queue="resumed"))
    assert (await metric_of(logs, "next")).status == "success"
    assert worker.stop() == 0


async def test_a_confirm_that_never_comes_is_not_awaited_for_ever(
    site: Site, logs: Logs, broker: Broker, tmp_path: Path, eventually: Eventually
) -> None:
    if site.language.name == "python-pika":
        pytest.skip("pika's BlockingConnection has no limit for that")
    if site.language.name == "javascript" and broker.lavinmq:
        pytest.skip("no line 'again in' comes there, and nobody has found out why")
    programs = Programs()
    try:
        async with swallowing(site.settings) as (swallower, away):
            there = Site(site.language, away, programs, tmp_path / "out")
            worker = await asyncio.to_thread(there.start, "-q", "forgotten")
            swallower.swallowing = True
            await logs.enqueue("forgotten", job("forgotten", "echo", "now", queue="forgotten"))
            await eventually(lambda: swallower.swallowed > 0)
            swallower.swallowing = False
            await asyncio.to_thread(worker.wait_for, "again in")
            assert (await metric_of(logs, "forgotten")).status == "success"
            assert await asyncio.to_thread(worker.stop) == 0
    finally:
        programs.end()


async def test_a_queue_that_was_deleted_is_declared_again(
    site: Site, logs: Logs, broker: Broker, eventually: Eventually
) -> None:
    worker = site.start("-q", "deleted")
    vhost = site.settings.url.rpartition("/")[2]
    with broker.api() as api:
        api.delete(f"/queues/{vhost}/queue.deleted").raise_for_status()
    worker.wait_for("again in")
    jid = "on a new queue"

    async def consumed() -> bool:
        return await logs.waiting("deleted") == (0, 1)

    await eventually(consumed, timeout=PATIENCE)
    await logs.enqueue("deleted", job(jid, "echo", jid, queue="deleted"))
    assert (await metric_of(logs, jid)).status == "success"
    assert worker.stop() == 0


async def test_an_order_to_all_stops_it_with_a_goodbye(site: Site, logs: Logs) -> None:
    """The last one with this worker."""
    await logs.order(write_order("stop", "*", by="ann", at=time.time()))
    assert await asyncio.to_thread(site.default.wait) == 0
    goodbye = reading.read_heartbeat(await beat_of(logs, site.default, state="stopped"))
    assert isinstance(goodbye, Heartbeat)
    assert (goodbye.state, goodbye.busy) == ("stopped", 0)
    for entry in logs.metrics.of(type="job_metric"):
        assert isinstance(reading.read_metric(entry), JobMetric)
    for entry in logs.beats.of(type="heartbeat"):
        assert isinstance(reading.read_heartbeat(entry), Heartbeat)


async def until_taken(logs: Logs, queue: str, eventually: Eventually) -> None:
    """Until a worker has what is on the queue."""

    async def taken() -> bool:
        ready, consumers = await logs.waiting(queue)
        return not ready and consumers > 0

    await eventually(taken, timeout=PATIENCE)


async def test_a_broker_that_restarts_is_awaited_in_every_language(
    node: PrivateNode, tmp_path: Path, eventually: Eventually
) -> None:
    missing = [line for language in LANGUAGES if (line := language.missing())]
    assert not missing, missing
    settings = Settings(url=node.url, management_url=node.management_url, state_dir=tmp_path)
    programs = Programs()
    link = Link(settings, "test", SystemClock())
    await link.start()
    try:
        await topology.ensure(await link.connection(timeout=PATIENCE), settings)
        sites = [Site(language, settings, programs, tmp_path / "out") for language in LANGUAGES]
        workers = [site.start("-q", site.language.name) for site in sites]
        await node.stop()
        for worker in workers:
            worker.wait_for("again in")
        await node.start()
        for worker in workers:  # it consumes from its queue again: what its producer sends now has a place to go
            await eventually(lambda worker=worker: sum("ready" in line for line in worker.lines) == 2)
        metrics = Log(names.METRICS)
        await metrics.start(link)
        for site, worker in zip(sites, workers, strict=True):
            jid = await asyncio.to_thread(site.produce, "enqueue", site.language.name, "echo", ["after the restart"])
            assert (await metrics.one(jid=jid))["status"] == "success"
            assert worker.stop() == 0
    finally:
        programs.end()
        await link.stop()
