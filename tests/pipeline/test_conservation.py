"""Each job ended exactly once, or is on the right list."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from amqpjobs.client import Client
from amqpjobs.history import lag
from amqpjobs.history.conservation import Conservation, conservation
from amqpjobs.history.lag import Lag
from amqpjobs.model import names
from amqpjobs.pipeline import conservation as command
from amqpjobs.pipeline import decode
from amqpjobs.pipeline.reading import ask, messages
from amqpjobs.settings import Settings
from amqpjobs.streams import ranges
from amqpjobs.sync import SyncClient
from tests.pipeline import streams, sums
from tests.pipeline.streams import NOON

HOUR = 3600.0


class Story:
    """What the lake is told, table by table."""

    def __init__(self) -> None:
        self.tables: dict[str, list[dict[str, Any]]] = {}

    def tell(self, table: str, jid: str | None, at: float, **members: Any) -> dict[str, Any]:
        rows = self.tables.setdefault(table, [])
        place = {"epoch": 0, "offset": len(rows), "item": 0}
        rows.append({**place, "at": at, "jid": jid, "class": "A", "queue": "low", **members})
        return rows[-1]

    def born(self, jid: str | None, at: float = NOON, queue: str = "low") -> None:
        self.tell("raw_enqueued", jid, at, queue=queue, type="enqueued")

    def ran(self, jid: str | None, status: str = "success", at: float = NOON + 60) -> None:
        self.tell("raw_metrics", jid, at, status=status, run_us=1_000_000, wait_us=1_000_000)

    def failed(self, jid: str, settled: str | None = "enqueued") -> None:
        self.ran(jid, "failed")
        entry = self.tell("raw_retries", jid, NOON + 60, type="retry")
        if settled is not None:
            self.tell("raw_retries", None, NOON + 90, type="settled", how=settled, entry=str(entry["offset"]))

    def died(self, jid: str, again: bool = False) -> None:
        entry = self.tell("raw_dead", jid, NOON + 60, type="dead_job")
        if again:
            self.tell("raw_dead", None, NOON + 90, type="settled", how="enqueued", entry=f"{entry['offset']}:0")

    def write(self, lake: Path) -> None:
        for table, rows in self.tables.items():
            sums.write(lake, table, rows)


@pytest.fixture
def story() -> Story:
    return Story()


def holding(**held: int) -> Callable[[Iterable[str]], Mapping[str, int]]:
    return lambda queues: {queue: held.get(queue, 0) for queue in queues}


def told(lake: Path, story: Story, now: float = NOON + 5 * HOUR, **held: int) -> Conservation:
    story.write(lake)
    return conservation(lake, NOON - HOUR, NOON + 2 * HOUR, now=now, depths=holding(**held))


def jids(cases: Iterable[Any]) -> list[str]:
    return [case.jid for case in cases]


def test_every_way_to_end_is_one_end(tmp_path: Path, story: Story) -> None:
    for jid in ("ran", "retried", "dead", "killed", "requeued", "cancelled", "expired", "discarded", "deleted", "late"):
        story.born(jid)
    story.ran("ran")
    story.failed("retried")
    story.ran("retried")
    story.ran("dead", "failed")
    story.died("dead")
    story.failed("killed", settled="killed")
    story.died("killed")
    story.ran("requeued", "failed")
    story.died("requeued", again=True)
    story.ran("requeued")
    story.ran("cancelled", "cancelled")
    story.ran("expired", "expired")
    story.ran("discarded", "failed")
    story.failed("deleted", settled=None)
    story.tell("raw_retries", "deleted", NOON + 80, type="command", how="delete")
    story.failed("late", settled="expired")
    found = told(tmp_path, story)
    assert found.holds
    assert (found.enqueued, found.ended_once, found.deleted, found.waiting) == (10, 10, 2, [])


def test_what_did_not_end_once_is_on_its_list(tmp_path: Path, story: Story) -> None:
    for jid in ("fine", "twice", "dead and done", "to be retried", "lost"):
        story.born(jid)
    story.ran("fine")
    story.ran("twice")
    story.ran("twice", at=NOON + 90)
    story.died("dead and done")
    story.ran("dead and done")
    story.failed("to be retried", settled=None)
    story.ran("orphan")
    story.tell("raw_scheduled", "scheduled", NOON, type="scheduled_job")
    story.born("restored")
    story.failed("restored", settled=None)
    for how in ("delete", "restore"):
        story.tell("raw_retries", "restored", NOON + 80, type="command", how=how)
    story.born("another day", at=NOON - 3 * HOUR)
    found = told(tmp_path, story)
    assert not found.holds
    assert (found.enqueued, found.ended_once) == (7, 1)
    assert jids(found.lost) == ["lost"]
    assert [(case.jid, case.ends) for case in found.doubled] == [("dead and done", 2), ("twice", 2)]
    assert jids(found.orphaned) == ["orphan"]
    assert {(case.jid, case.why) for case in found.waiting} == {
        ("to be retried", "in retries"),
        ("restored", "in retries"),
        ("scheduled", "in scheduled_jobs"),
    }
    listed = sum(len(each) for each in (found.waiting, found.lost, found.doubled))
    assert found.enqueued == found.ended_once + listed


def test_of_what_has_no_end_the_youngest_wait_in_the_queue(tmp_path: Path, story: Story) -> None:
    for minute in range(4):
        story.born(f"j{minute}", at=NOON + 60 * minute)
    story.born("other", queue="high")
    found = told(tmp_path, story, low=2)
    assert (jids(found.waiting), jids(found.lost)) == (["j2", "j3"], ["other", "j0", "j1"])
    assert not conservation(tmp_path, NOON, NOON + HOUR, now=NOON + HOUR, depths=holding()).lost, "patience"


def test_what_cannot_be_joined_is_counted_apart(tmp_path: Path, story: Story) -> None:
    story.born("j", at=NOON)
    story.ran("j")
    story.born(None)
    story.ran(None)
    story.ran("from before the log", at=NOON + 1.5)
    story.tell("raw_metrics", None, NOON, bad="Malformed")
    found = told(tmp_path, story)
    assert found.holds
    assert (found.ended_once, found.without_jid, found.unreadable, found.unlogged) == (1, 2, 1, 1)


def test_copies_of_the_same_job_are_one_beginning_and_a_retry_is_none(tmp_path: Path, story: Story) -> None:
    for at in (NOON, NOON + 30, NOON + 3 * HOUR):
        story.born("released", at=at)
    story.ran("released")
    story.born("retried")
    story.failed("retried")
    for jid in ("retried", "from before the log"):
        story.tell("raw_enqueued", jid, NOON + 90, type="requeued")
        story.ran(jid, at=NOON + 100)
    story.tables["raw_metrics"][-1]["wait_us"] = 101_000_000
    found = told(tmp_path, story)
    assert found.holds
    assert (found.enqueued, found.ended_once, found.unlogged, found.log_since) == (2, 2, 1, NOON)


def test_without_a_log_nobody_is_an_orphan(tmp_path: Path, story: Story) -> None:
    story.ran("j")
    found = told(tmp_path, story)
    assert (found.holds, found.orphaned, found.unlogged, found.log_since) == (True, [], 1, None)


def event(op: str, at: float, **members: Any) -> dict[str, Any]:
    return {"type": "command", "uuid": f"{op} {at}", "at": at, "op": op, **members}


def test_tracked_jobs_are_folded(tmp_path: Path, story: Story) -> None:
    events = [event("dispatch", NOON - 3 * HOUR, queue="q")]
    events += [event("dispatch", NOON + n, queue="q") for n in range(4)]
    events += [event("take", NOON + 10, queue="q", worker="w"), event("take", NOON + 11, queue="q", worker="w")]
    for offset, each in enumerate(events):
        if each["op"] == "dispatch":
            story.tell("raw_events", None, each["at"], type="command", job=json.dumps(each), offset=offset, item=0)
    taken = [each for each in events if each["op"] == "take"]
    for item, each in enumerate(taken):  # one message
        body = json.dumps(each)
        story.tell("raw_events", None, NOON, type="command", offset=len(events), job=body, item=item)
    for table in story.tables.values():
        for row in table:
            del row["class"], row["queue"]
    found = told(tmp_path, story).tracked
    assert (found.dispatched, found.ended, found.states) == (4, 0, {"queued": 3, "running": 1})


async def test_with_the_log_on_each_enqueued_job_is_on_record(settings: Settings) -> None:
    logged = settings.model_copy(update={"enqueue_log": True})
    async with Client(logged) as client:
        jids = [await client.enqueue("A", 1, queue="low"), *await client.enqueue_many([("B", [n]) for n in range(30)])]
        jids.append(await client.enqueue_in(-5, "C"))
    found = await _log(logged)
    assert [(row["jid"], row["class"], row["queue"]) for row in found] == [
        (jid, cls, "low" if cls == "A" else "default") for jid, cls in zip(jids, ["A", *["B"] * 30, "C"], strict=True)
    ]
    assert all(row["bad"] is None and row["at"] is not None for row in found)
    assert [json.loads(row["job"])["args"] for row in found] == [[1], *([n] for n in range(30)), []]


async def _log(settings: Settings) -> list[dict[str, Any]]:
    import asyncio

    def read() -> list[dict[str, Any]]:
        wanted = ask(settings, lambda connection: ranges.following(connection, names.ENQUEUED, None, 10**6))
        assert wanted is not None
        batches = [decode.batch("raw_enqueued", 0, batch) for batch in messages(settings, wanted, skip=False)]
        return [row for batch in batches for row in batch.to_pylist()]

    return await asyncio.to_thread(read)


async def test_it_is_off_by_default(settings: Settings) -> None:
    async with Client(settings) as client:
        await client.enqueue("A")
        connection = await client._link.connection()
        assert await connection.passive(names.ENQUEUED) is None


def test_the_command_asks_the_queues_and_says_what_is_wrong(
    settings: Settings,
    tmp_path: Path,
    story: Story,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    lake = tmp_path / "lake"
    monkeypatch.setenv("AMQPJOBS_URL", settings.url)
    monkeypatch.setenv("AMQPJOBS_LAKE_DIR", str(lake))
    streams.declare(settings)
    with SyncClient(settings) as client:
        client.enqueue("A", queue="low", jid="waits")
    story.born("lost")
    story.born("waits", at=NOON + 60)
    story.write(lake)
    span = ("--from", "2026-01-01T12:00", "--to", "2026-01-01T13:00")
    lag.write(lake, [Lag("job_metrics", 0, NOON + 9 * HOUR, NOON + 9 * HOUR)])
    assert command.main(span) == command.BROKEN
    shown = capsys.readouterr().out
    assert "lost                   1" in shown
    assert "lost  A  low  neither ended nor in its queue" in shown
    assert "waits  A  low  in its queue" in shown
    assert command.main([*span, "--patience", str(9 * HOUR), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["enqueued"] == 2
