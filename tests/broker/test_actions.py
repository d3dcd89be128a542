"""What operators do to jobs that wait, on a real broker: each action, each verdict, and what the record says of it."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from amqpjobs.action import Action, Order
from amqpjobs.clock import SystemClock
from amqpjobs.model import control, names, text
from amqpjobs.model.protocol import Target, Verdict
from amqpjobs.scheduler.app import Scheduler
from amqpjobs.sets import Desk, desk
from amqpjobs.settings import Settings
from amqpjobs.streams.append import Appender
from amqpjobs.streams.follow import Follower
from amqpjobs.streams.link import Link
from amqpjobs.streams.marks import Where
from amqpjobs.streams.views import DelayedView
from tests.broker.bench import Bench, scheduled
from tests.broker.test_scheduler import scheduler as scheduler  # noqa: PLC0414 (a fixture)
from tests.conftest import Broker, Eventually
from tests.patience import PATIENCE

DONE, NOT_FOUND, CONFLICT = Verdict.DONE, Verdict.NOT_FOUND, Verdict.CONFLICT


def failed(jid: str, due_in: float = 3600.0, **job: Any) -> dict[str, Any]:
    inner = {"class": "C", "args": [1], "queue": "default", "jid": jid} | job
    now = time.time()
    return {
        "type": "retry", "jid": jid, "retry_at": now + due_in, "retry_count": 3, "failed_at": now,
        "error_class": "E", "error_message": "m", "job": inner,
    }  # fmt: skip


def dead(jid: str, **job: Any) -> dict[str, Any]:
    inner = {"class": "C", "args": [1], "queue": "default", "jid": jid, "retry_count": 25} | job
    return {
        "type": "dead_job", "jid": jid, "died_at": time.time(), "retry_count": 25, "error_class": "E",
        "error_message": "m", "job": inner,
    }  # fmt: skip


class Operator:
    """Somebody at a desk."""

    def __init__(self, it: Desk) -> None:
        self.desk = it

    async def does(
        self, word: str, stream: str, *jids: str | Target, due: float | None = None, timeout: float = 20
    ) -> Action:
        jobs = [jid if isinstance(jid, Target) else Target(jid, None) for jid in jids]
        action = self.desk.actions.begin(Order(word, stream, "ann", "client", due), jobs)
        await action.wait(timeout)
        return action

    async def verdicts(self, word: str, stream: str, *jids: str | Target, due: float | None = None) -> list[Any]:
        return [result.verdict for result in (await self.does(word, stream, *jids, due=due)).told]

    async def does_to_all(self, word: str, stream: str, where: Where | None = None) -> Action:
        action = self.desk.actions.begin_all(Order(word, stream, "ann", "client"), where or Where())
        assert await action.wait(60)
        return action

    async def waiting(self, stream: str) -> list[str]:
        view, follower = self.desk.sets[stream]
        return sorted(row.jid for row in await follower.query(lambda: view.page(10_000)))

    async def knows(self, stream: str, count: int, eventually: Eventually) -> None:
        """Its view has so many entries."""

        async def there() -> bool:
            return len(await self.waiting(stream)) == count

        await eventually(there)


@pytest.fixture
async def operator(settings: Settings, bench: Bench) -> AsyncIterator[Operator]:
    async with desk(settings) as it:
        yield Operator(it)


async def record(link: Link, tmp_path: Path, settings: Settings) -> list[tuple[Any, ...]]:
    """What a reader that comes anew finds in the audit, newest first."""
    fresh = settings.model_copy(update={"state_dir": tmp_path / f"fresh-{time.monotonic_ns()}"})
    async with desk(fresh, ()) as it:
        found = await it.record.follower.query(lambda: it.record.store.page(100))
    return [(a.op, a.place, a.by, a.via, a.jobs, a.done, a.not_found, a.conflict) for a in found]


async def test_each_action_and_its_verdict(
    scheduler: Scheduler, bench: Bench, operator: Operator, eventually: Eventually
) -> None:
    """One at a time and many: what is there is done, what is not is not found; a job that was triggered runs once."""
    far = time.time() + 3600
    await bench.put(names.SCHEDULED, json.dumps([scheduled(j, far) for j in ("s1", "s2", "s3")]).encode())
    await bench.put(names.RETRIES, json.dumps([failed(j) for j in ("r1", "r2", "r3")]).encode())
    await bench.put(names.DEAD, json.dumps([dead(j) for j in ("d1", "d2")]).encode())
    await eventually(lambda: scheduler.leading)
    for stream, count in ((names.SCHEDULED, 3), (names.RETRIES, 3), (names.DEAD, 2)):
        await operator.knows(stream, count, eventually)
    assert await operator.verdicts("delete", names.SCHEDULED, "s1", "none") == [DONE, NOT_FOUND]
    assert await operator.verdicts("reschedule", names.SCHEDULED, "s2", due=far + 60) == [DONE]
    assert await operator.verdicts("trigger", names.SCHEDULED, "s3") == [DONE]
    assert await operator.verdicts("retry", names.RETRIES, "r1", "none") == [DONE, NOT_FOUND]
    assert await operator.verdicts("kill", names.RETRIES, "r2") == [DONE]
    assert await operator.verdicts("delete", names.RETRIES, "r3") == [DONE]
    assert await operator.verdicts("requeue", names.DEAD, "d1", "none") == [DONE, NOT_FOUND]
    assert await operator.verdicts("delete", names.DEAD, "d2") == [DONE]
    await eventually(lambda: bench.counts == Counter(["s3", "r1", "d1"]))
    counts = {job["jid"]: job["retry_count"] for job in bench.jobs}
    assert counts == {"s3": 0, "r1": 3, "d1": 0}, "a dead job begins anew"
    await operator.knows(names.RETRIES, 0, eventually)

    async def buried() -> bool:
        return await operator.waiting(names.DEAD) == ["r2"]

    await eventually(buried)
    assert await operator.waiting(names.SCHEDULED) == ["s2"]
    view, follower = operator.desk.sets[names.SCHEDULED]
    [row] = await follower.query(lambda: view.find("s2"))
    assert row.due == far + 60
    assert await operator.verdicts("trigger", names.SCHEDULED, "s3") == [NOT_FOUND], "it has left"
    assert bench.counts == Counter(["s3", "r1", "d1"])


@pytest.mark.parametrize(
    ("word", "stream", "due"),
    [("vanish", names.DEAD, None), ("trigger", names.DEAD, None), ("reschedule", names.SCHEDULED, None),
     ("kill", names.SCHEDULED, None), ("delete", names.METRICS, None)],
)  # fmt: skip
def test_what_has_no_meaning_is_refused(word: str, stream: str, due: float | None) -> None:
    with pytest.raises(ValueError, match=r"no action|no meaning|takes the time"):
        Order(word, stream, "ann", "client", due)


async def test_an_entry_that_is_named_is_the_one(bench: Bench, operator: Operator, eventually: Eventually) -> None:
    far = time.time() + 3600
    for _ in range(3):
        await bench.put(names.SCHEDULED, scheduled("twice", far))
    await operator.knows(names.SCHEDULED, 3, eventually)
    view, follower = operator.desk.sets[names.SCHEDULED]
    newest, middle, oldest = [row.entry for row in await follower.query(lambda: view.find("twice"))]
    assert await operator.verdicts("delete", names.SCHEDULED, Target("twice", middle)) == [DONE]
    assert await operator.verdicts("delete", names.SCHEDULED, Target("other", oldest)) == [NOT_FOUND]
    assert await operator.verdicts("delete", names.SCHEDULED, "twice") == [DONE]
    assert [row.entry for row in await follower.query(lambda: view.find("twice"))] == [oldest]
    assert newest != oldest


async def test_what_the_leader_has_claimed_is_a_conflict_and_every_view_says_so(
    link: Link, bench: Bench, operator: Operator, eventually: Eventually, tmp_path: Path
) -> None:
    """The test leads by hand: it claims, and does not settle."""
    leader = Appender(link, names.SCHEDULED, clock=SystemClock())
    await bench.put(names.SCHEDULED, json.dumps([scheduled(j, 1.0) for j in ("claimed", "free")]).encode())
    await operator.knows(names.SCHEDULED, 2, eventually)
    view, follower = operator.desk.sets[names.SCHEDULED]
    [row] = await follower.query(lambda: view.find("claimed"))
    for entry in (
        control.write_epoch("E", at=1.0),
        control.write_term("E", 7, by="test", at=1.0),
        control.write_claimed("E", 7, [row.entry]),
    ):
        await leader.append([text.dump(entry)], timeout=PATIENCE)
    action = await operator.does("delete", names.SCHEDULED, "claimed", "free")
    assert [result.verdict for result in action.told] == [CONFLICT, DONE]
    assert await operator.verdicts("trigger", names.SCHEDULED, "claimed") == [CONFLICT]
    assert await operator.verdicts("reschedule", names.SCHEDULED, "claimed", due=time.time() + 60) == [CONFLICT]
    (tmp_path / "foreign").mkdir()
    other = DelayedView(tmp_path / "foreign", names.SCHEDULED)
    reader = Follower(link, other, names.SCHEDULED, clock=SystemClock())
    await reader.start()
    await reader.wait_caught_up(10)
    uuids = await asked(link, names.SCHEDULED)
    assert [await reader.query(lambda u=uuid: other.verdicts(u)) for uuid in uuids] == [  # type: ignore[misc]
        [CONFLICT, DONE],
        [CONFLICT],
        [CONFLICT],
    ]
    await reader.stop()
    other.close()
    await leader.close()


async def asked(link: Link, stream: str) -> list[str]:
    """The uuids of the commands in a stream."""
    from tests.broker.reading import entries, read_all

    found = [each for message in await read_all(await link.connection(), stream) for each in entries(message)]
    return [each["uuid"] for each in found if each["type"] == "command"]


async def test_deleted_or_run_and_never_both_while_the_leader_works(
    scheduler: Scheduler, bench: Bench, operator: Operator, eventually: Eventually
) -> None:
    """300 jobs come due while they are deleted: a verdict of done means never run, any other means run once."""
    await eventually(lambda: scheduler.leading)
    due = time.time() + 0.5
    jids = [f"j{n}" for n in range(300)]
    await bench.put(names.SCHEDULED, json.dumps([scheduled(j, due + n / 300) for n, j in enumerate(jids)]).encode())
    await operator.knows(names.SCHEDULED, 300, eventually)
    verdicts: dict[str, Any] = {}
    await eventually(lambda: time.time() > due)
    for start in range(0, 300, 20):
        chunk = jids[start : start + 20]
        verdicts |= dict(zip(chunk, await operator.verdicts("delete", names.SCHEDULED, *chunk), strict=True))
    kept = {jid for jid, verdict in verdicts.items() if verdict is not DONE}
    await eventually(lambda: set(bench.counts) >= kept)
    await operator.knows(names.SCHEDULED, 0, eventually)
    assert bench.counts == Counter(kept)
    print(Counter(verdicts.values()))


async def test_a_thousand_dead_jobs_requeued_by_all_run_once_each(
    scheduler: Scheduler, bench: Bench, operator: Operator, eventually: Eventually, link: Link,
    settings: Settings, tmp_path: Path,
) -> None:  # fmt: skip
    await eventually(lambda: scheduler.leading)
    jids = [f"d{n}" for n in range(1000)]
    await bench.put(names.DEAD, json.dumps([dead(jid) for jid in jids]).encode())
    await bench.put(names.DEAD, json.dumps([dead("other", queue="low"), dead("kind", **{"class": "D"})]).encode())
    await operator.knows(names.DEAD, 1002, eventually)
    action = await operator.does_to_all("requeue", names.DEAD, Where(cls="C", queue="default"))
    assert (action.asked, action.counts, action.unknown) == (1000, Counter({DONE: 1000}), 0)
    assert len(action.told) == 1000
    await eventually(lambda: len(bench.jobs) >= 1000)
    await operator.knows(names.DEAD, 2, eventually)
    assert bench.counts == Counter(jids)
    assert {job["retry_count"] for job in bench.jobs} == {0}
    assert await record(link, tmp_path, settings) == [("requeue", names.DEAD, "ann", "client", 1000, 1000, 0, 0)]
    rest = await operator.does_to_all("delete", names.DEAD)
    assert rest.counts == Counter({DONE: 2})
    assert (await operator.does_to_all("delete", names.DEAD)).asked == 0


@pytest.mark.parametrize(
    ("stream", "make"),
    [(names.SCHEDULED, lambda jid: scheduled(jid, time.time() + 3600)), (names.RETRIES, failed), (names.DEAD, dead)],
)
async def test_a_deletion_is_undone_once_with_the_same_bytes(
    stream: str, make: Any, bench: Bench, operator: Operator, eventually: Eventually
) -> None:
    await bench.put(stream, json.dumps([make("a"), make("b"), make("c")]).encode())
    await operator.knows(stream, 3, eventually)
    view, follower = operator.desk.sets[stream]
    before = {row.jid: row for row in await follower.query(lambda: view.page(10))}
    action = await operator.does("delete", stream, "a", "b")
    assert await operator.waiting(stream) == ["c"]
    assert await operator.verdicts("restore", stream, "c") == [NOT_FOUND], "nobody deleted it"
    assert await operator.verdicts("restore", stream, "a") == [DONE]
    assert await operator.verdicts("restore", stream, "a") == [NOT_FOUND], "it is undone already"
    [undone] = await operator.desk.actions.undo(action.id, by="ann", via="client")
    await undone.wait(20)
    assert [(r.jid, r.verdict) for r in undone.told] == [("b", DONE)]
    assert {row.jid: row for row in await follower.query(lambda: view.page(10))} == before
    assert await operator.verdicts("delete", stream, "a") == [DONE]
    assert await operator.verdicts("restore", stream, "a") == [DONE], "what was restored can be deleted and restored"
    assert {row.jid: row for row in await follower.query(lambda: view.page(10))} == before


async def test_a_restored_job_keeps_the_time_that_it_was_rescheduled_to(
    bench: Bench, operator: Operator, eventually: Eventually
) -> None:
    due = time.time() + 3600
    await bench.put(names.SCHEDULED, scheduled("j", due))
    await operator.knows(names.SCHEDULED, 1, eventually)
    await operator.does("reschedule", names.SCHEDULED, "j", due=due + 100)
    await operator.does("delete", names.SCHEDULED, "j")
    assert await operator.verdicts("restore", names.SCHEDULED, "j") == [DONE]
    view, follower = operator.desk.sets[names.SCHEDULED]
    [row] = await follower.query(lambda: view.find("j"))
    assert row.due == due + 100


async def test_after_retention_nothing_can_be_restored_and_it_says_why(
    settings: Settings, link: Link, eventually: Eventually, bench: Bench, broker: Broker
) -> None:
    """A stream that keeps very little: what was deleted is trimmed away by what comes later."""
    connection = await link.connection()
    await connection.delete_queue(names.DEAD)
    small = {"max_age": "30D", "max_bytes": 20_000, "segment_bytes": 4096}
    tiny = settings.model_copy(update={"streams": {names.DEAD: small}})
    filler = "x" * (1_000_000 if broker.lavinmq else 3000)  # its segments are 8 MiB, whatever is asked for
    from amqpjobs.streams import topology

    await topology.ensure_stream(connection, tiny, names.DEAD)
    async with desk(tiny) as it:
        operator = Operator(it)
        await bench.put(names.DEAD, dead("gone"))
        await operator.knows(names.DEAD, 1, eventually)
        assert await operator.verdicts("delete", names.DEAD, "gone") == [DONE]

        async def trimmed() -> bool:
            await bench.put(names.DEAD, dead("filler", args=[filler]))
            [result] = (await operator.does("restore", names.DEAD, "gone")).told
            return (result.verdict, result.why) == (NOT_FOUND, "dead_jobs no longer holds its bytes")

        for _ in range(30):
            await bench.put(names.DEAD, dead("filler", args=[filler]))
        await eventually(trimmed)


async def test_the_record_says_who_did_what_and_survives(
    settings: Settings, link: Link, bench: Bench, operator: Operator, eventually: Eventually, tmp_path: Path
) -> None:
    await bench.put(names.RETRIES, json.dumps([failed(j) for j in ("r1", "r2")]).encode())
    await operator.knows(names.RETRIES, 2, eventually)
    await operator.does("delete", names.RETRIES, "r1", "none")
    await operator.does("restore", names.RETRIES, "r1")
    await operator.does_to_all("retry", names.RETRIES, Where(queue="low"))
    expected = [
        ("restore", names.RETRIES, "ann", "client", 1, 1, 0, 0),
        ("delete", names.RETRIES, "ann", "client", 2, 1, 1, 0),
    ]
    assert await record(link, tmp_path, settings) == expected
    connection = await link.connection()
    await connection.delete_queue(names.AUDIT)

    async def again() -> bool:
        return await connection.passive(names.AUDIT) is not None

    await eventually(again)
    await operator.does("delete", names.RETRIES, "r2")
    kept = await operator.desk.record.follower.query(lambda: operator.desk.record.store.page(10))
    assert [(a.op, a.jobs) for a in kept] == [("delete", 1), ("restore", 1), ("delete", 2)]


async def test_without_a_view_that_moves_the_outcome_is_not_known_yet(
    bench: Bench, operator: Operator, eventually: Eventually
) -> None:
    """The view stands still; the action goes on, and its outcome comes with the view."""
    await bench.put(names.DEAD, dead("d"))
    await operator.knows(names.DEAD, 1, eventually)
    _, follower = operator.desk.sets[names.DEAD]
    await follower.stop()
    action = operator.desk.actions.begin(Order("delete", names.DEAD, "ann", "client"), [Target("d", None)])
    assert not await action.wait(1.0)
    assert (action.asked, action.unknown, action.told) == (1, 1, [])
    await follower.start()
    assert await action.wait(20)
    assert action.counts == Counter({DONE: 1})


async def test_two_who_act_at_once_agree(
    settings: Settings, bench: Bench, operator: Operator, eventually: Eventually, tmp_path: Path
) -> None:
    """Each of 20 jobs is deleted by one of two, and the other one is told that it is not there."""
    jids = [f"d{n}" for n in range(20)]
    await bench.put(names.DEAD, json.dumps([dead(jid) for jid in jids]).encode())
    async with AsyncExitStack() as stack:
        elsewhere = settings.model_copy(update={"state_dir": tmp_path / "elsewhere"})
        other = Operator(await stack.enter_async_context(desk(elsewhere)))
        for each in (operator, other):
            await each.knows(names.DEAD, 20, eventually)

        async def one_by_one(who: Operator, order: Sequence[str]) -> dict[str, Any]:
            return {jid: (await who.verdicts("delete", names.DEAD, jid))[0] for jid in order}

        mine, theirs = await asyncio.gather(one_by_one(operator, jids), one_by_one(other, jids[::-1]))
    assert {frozenset((mine[jid], theirs[jid])) for jid in jids} == {frozenset((DONE, NOT_FOUND))}
