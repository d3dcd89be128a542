"""Jobs of the past once more: those that were chosen, once, and on record."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from amqpjobs.history.past import BadCondition, past_jobs
from amqpjobs.model import names
from amqpjobs.pipeline import replay
from amqpjobs.pipeline.reading import ask
from amqpjobs.settings import Settings
from amqpjobs.streams.port import Connection, Incoming
from tests.patience import PATIENCE
from tests.pipeline import streams, sums
from tests.pipeline.streams import NOON


def dead(number: int, cls: str = "Mail", error: str = "Timeout", **members: Any) -> dict[str, Any]:
    job = {"class": cls, "args": [number, "x"], "queue": "default", "jid": f"j{number}", "retry_count": 3}
    job |= {"stall_count": 1, "priority": 4, "more": 1.10}
    entry = {"epoch": 0, "offset": number, "item": 0, "type": "dead_job", "at": NOON + number, "jid": f"j{number}"}
    return {**entry, "class": cls, "queue": "default", "error_class": error, "job": json.dumps(job), **members}


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    rows = [dead(n) for n in range(5)] + [dead(n, error="Other") for n in range(5, 8)] + [dead(8, cls="Import")]
    rows += [dead(2, offset=50, at=NOON + 3), {**dead(9), "bad": "Malformed", "job": None}]
    sums.write(tmp_path / "lake", "raw_dead", rows)
    return tmp_path / "lake"


@pytest.fixture
def command(lake: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    monkeypatch.setenv("AMQPJOBS_URL", settings.url)
    monkeypatch.setenv("AMQPJOBS_LAKE_DIR", str(lake))
    streams.declare(settings)
    return lambda *words: replay.main(["--from", str(NOON), "--to", str(NOON + 60), *words])


CHOICE = ("--where", "class = 'Mail' and error_class = 'Timeout'")


def queued(settings: Settings, count: int) -> list[Incoming]:
    """The messages in the queue, which stay there; `count` of them are waited for."""

    async def look(connection: Connection) -> list[Incoming]:
        found: list[Incoming] = []
        all_there = asyncio.Event()

        def take(message: Incoming) -> None:
            found.append(message)
            if len(found) >= count:
                all_there.set()

        consumer = await connection.consume(names.broker_queue("default"), take, prefetch=count + 1)
        await asyncio.wait_for(all_there.wait(), PATIENCE)
        await consumer.close()
        state = await connection.passive(names.broker_queue("default"))
        assert state is not None
        assert len(found) == count
        return found

    return ask(settings, look)


def test_without_yes_it_only_shows(command: Any, settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(*CHOICE) == 0
    shown = capsys.readouterr().out
    assert "5 jobs, of which 0 are enqueued already" in shown
    assert "nothing is enqueued without --yes" in shown
    state = ask(settings, lambda connection: connection.passive(names.broker_queue("default")))
    assert state is None or state.ready == 0


def test_a_replay_run_twice_enqueues_once(command: Any, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "WINDOW", 2)
    assert command(*CHOICE, "--id", "again", "--yes") == 0
    assert command(*CHOICE, "--id", "again", "--yes") == 0
    found = queued(settings, 5)
    jobs = [json.loads(message.body) for message in found]
    assert {job["replay_of"] for job in jobs} == {f"j{n}" for n in range(5)}
    for job, message in zip(jobs, found, strict=True):
        assert job["jid"] == replay.new_jid("again", job["replay_of"]) == message.properties.message_id
        assert (job["retry_count"], job["replay"], job["args"][1]) == (0, "again", "x")
        assert "stall_count" not in job
        assert message.properties.priority == 4
    records = [entry for entry in streams.entries(settings, names.AUDIT) if entry.get("type") == "action"]
    assert [(entry["op"], entry["in"]) for entry in records] == [("replay", "again")] * 3
    on_record = {job["jid"] for entry in records for job in entry["jobs"]}
    assert on_record == {job["jid"] for job in jobs}


def test_a_replay_is_no_quicker_than_its_rate(
    command: Any, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "WINDOW", 2)
    began = time.monotonic()
    assert command(*CHOICE, "--yes", "--rate", "4") == 0
    assert time.monotonic() - began >= 1.0, "the third window of two may go after a second"
    assert len({json.loads(message.body)["replay"] for message in queued(settings, 5)}) == 1


def test_a_replay_that_was_cut_short_goes_on(command: Any, settings: Settings, lake: Path) -> None:
    done = [replay.new_jid("half", f"j{n}") for n in range(3)]
    replay.ledger_of(lake, "half").add(done)
    assert command(*CHOICE, "--id", "half", "--yes") == 0
    assert {json.loads(message.body)["replay_of"] for message in queued(settings, 2)} == {"j3", "j4"}


@pytest.mark.parametrize(
    "condition",
    [
        "klass = 'A'",
        "true; DROP TABLE chosen",
        "class = (SELECT content FROM read_text('/etc/hostname'))",
    ],
)
def test_a_condition_that_is_none_is_refused(lake: Path, condition: str) -> None:
    with pytest.raises(BadCondition):
        past_jobs(lake, "dead", NOON, NOON + 60, condition)


def test_any_run_of_the_past_is_chosen_by_what_became_of_it(lake: Path) -> None:
    """Of jobs in the enqueue log the lake has the arguments, whether they failed or not."""
    shared = {"type": "enqueued", "class": "Mail", "queue": "default", "epoch": 0, "item": 0}
    jobs = [json.dumps({"class": "Mail", "args": [n], "jid": f"e{n}"}) for n in range(4)]
    log = [{**shared, "at": NOON + n, "jid": f"e{n}", "job": job, "offset": n} for n, job in enumerate(jobs)]
    sums.write(lake, "raw_enqueued", log)
    assert [job.jid for job in past_jobs(lake, "enqueued", NOON, NOON + 3)] == ["e0", "e1", "e2"]
    place = {"epoch": 0, "item": 0, "class": "Mail", "queue": "default"}
    ran = [("e0", "success", None), ("e1", "failed", "Timeout"), ("e1", "success", None), ("e2", "failed", "Timeout")]
    runs = [
        {**place, "offset": n, "at": NOON + 60 + n, "jid": jid, "status": status, "error_class": error}
        for n, (jid, status, error) in enumerate(ran)
    ]
    sums.write(lake, "raw_metrics", runs)
    found = past_jobs(lake, "enqueued", NOON, NOON + 60, "status = 'success'")
    assert [(job.jid, json.loads(job.job)["args"]) for job in found] == [("e0", [0]), ("e1", [1])]
    assert [job.jid for job in past_jobs(lake, "enqueued", NOON, NOON + 60, "error_class = 'Timeout'")] == ["e1", "e2"]
    assert [job.jid for job in past_jobs(lake, "enqueued", NOON, NOON + 60, "status IS NULL")] == ["e3"]


def test_a_lake_without_dead_jobs_has_none(tmp_path: Path) -> None:
    assert past_jobs(tmp_path, "dead", NOON, NOON + 60) == []


def test_of_a_job_with_several_entries_the_newest_counts(lake: Path) -> None:
    [job] = past_jobs(lake, "dead", NOON, NOON + 60, "jid = 'j2'")
    assert job.at == NOON + 3
