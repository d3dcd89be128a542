"""Messages as rows: total, and the same figures as the dashboard's own count."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amqpjobs.model import names
from amqpjobs.model.tally import tally
from amqpjobs.pipeline import decode, runs
from amqpjobs.pipeline.fingerprint import fingerprint
from amqpjobs.pipeline.tables import RAW
from amqpjobs.streams.port import Incoming, Properties
from tests.pipeline.streams import NOON, metric
from tests.unit.odd import VALUES, maybe, objects


def message(body: Any, **headers: Any) -> Incoming:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Incoming(raw, 1, "", "", False, Properties(headers=headers), 7)


def rows(table: str, *bodies: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = decode.batch(table, 0, [message(body) for body in bodies]).to_pylist()
    return found


TYPES = st.sampled_from(["job_metric", "dead_job", "retry", "scheduled_job", "settled", "command", "heartbeat", "made"])
TIMES = st.floats(0, 4e9)
ENTRIES = objects(
    type=maybe(TYPES),
    timestamp=maybe(TIMES),
    job_class=maybe(st.just("A")),
    status=maybe(st.sampled_from(["success", "failed"])),
    duration_ms=maybe(st.floats()),
    attempt=maybe(st.integers()),
    died_at=maybe(TIMES),
    failed_at=maybe(TIMES),
    retry_at=maybe(TIMES),
    scheduled_at=maybe(TIMES),
    identity=maybe(st.just("h:1:t")),
    beat=maybe(TIMES),
    busy=maybe(st.integers()),
    entries=maybe(st.lists(VALUES, max_size=3)),
    job=maybe(objects(**{"class": maybe(st.just("A")), "enqueued_at": maybe(TIMES)})),
)
BODIES = st.one_of(st.binary(max_size=20), st.one_of(VALUES, ENTRIES, st.lists(ENTRIES, max_size=3)).map(json.dumps))


@settings(max_examples=150, deadline=None)
@given(raw=st.sampled_from(RAW), body=BODIES)
def test_whatever_is_in_a_message_it_is_rows(raw: Any, body: bytes | str) -> None:
    for row in rows(raw.name, body.encode() if isinstance(body, str) else body):
        assert row["offset"] == 7
        assert row["bad"] is None or row["body"] is not None


ODD_MEMBERS = st.sampled_from([None, True, 0, -1, 1.0, 1.5, -0.0, 2**53 + 1, 2**63, 10**25, 1e300, "", "5", "é" * 256])
ODD_RUNS = st.dictionaries(st.sampled_from([*metric(1), "from", "seq", "error_class", "code_version"]), ODD_MEMBERS)
RUNS = st.builds(lambda odd: metric(3) | {"from": "w", "seq": 3} | odd, ODD_RUNS)


@settings(max_examples=150, deadline=None)
@given(bodies=st.lists(st.one_of(RUNS, st.lists(RUNS, max_size=3), ENTRIES), min_size=1, max_size=3))
def test_by_the_column_or_one_by_one_the_rows_are_the_same(bodies: list[Any]) -> None:
    messages = [message(body)._replace(offset=number) for number, body in enumerate(bodies * decode.FEW)]
    apart = [decode.batch("raw_metrics", 1, [each]) for each in messages]
    assert decode.batch("raw_metrics", 1, messages).to_pylist() == pa.Table.from_batches(apart).to_pylist()


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 2**64, -(2**64), 10**25, -(10**25)])
@pytest.mark.parametrize("name", ["attempt", "seq", "duration_ms", "wait_ms", "timestamp"])
def test_an_integer_that_no_column_holds_stops_nobody(name: str, number: int) -> None:
    bodies = [metric(1) | {"from": "w", "seq": 1, name: number}] * (2 * decode.FEW)
    assert len(rows("raw_metrics", *bodies)) == len(bodies)


def test_what_workers_append_is_read_by_the_column_whatever_stands_beside_it() -> None:
    plain = [message([metric(1), metric(2, wait_ms=0.00012345678901234567)])] * decode.FEW
    assert runs.batch(0, plain) is not None
    odd = [*plain, message(metric(1, duration_ms=float("nan"))), message(b"?"), *plain]
    assert runs.batch(0, odd) is None
    found = decode.batch("raw_metrics", 0, odd).to_pylist()
    assert len(found) == 4 * decode.FEW + 2
    assert [row["bad"] is None for row in found].count(False) == 1


def test_a_metric_has_its_place_its_day_and_its_figures() -> None:
    [_, row] = rows("raw_metrics", [metric(1) | {"from": "w", "seq": 3}, metric(2, wait_ms=None)])
    assert (row["offset"], row["item"], row["source"], row["seq"]) == (7, 1, "w", 3)
    assert row["at"].timestamp() == NOON + 2
    assert row["date"].isoformat() == "2026-01-01"
    assert (row["run_us"], row["wait_us"]) == (3000, None)


def test_it_counts_what_the_dashboard_counts() -> None:
    entries = [metric(n) for n in range(200)] + [metric(1, status="cancelled"), {"type": "marker"}, {"no": "metric"}]
    counted = tally([json.dumps(entries).encode()], {})
    found = [row for row in rows("raw_metrics", entries) if row["status"] in ("success", "failed")]
    days = list(counted.days.values())
    assert len(found) == sum(day.count for day in days) == 200
    assert sum(row["run_us"] for row in found) == sum(day.run_us for day in days)


def test_a_dead_job_tells_its_error_and_keeps_its_job() -> None:
    job = {"class": "Mail", "args": [12345678901234567890], "queue": "low", "jid": "j1"}
    entry = {"type": "dead_job", "jid": "j1", "died_at": NOON, "error_class": "Timeout", "error_message": "after 5 s",
             "retry_count": 3, "job": job}  # fmt: skip
    [row] = rows("raw_dead", entry)
    told = [row[name] for name in ("type", "jid", "class", "queue", "retry_count", "error_class")]
    assert told == ["dead_job", "j1", "Mail", "low", 3, "Timeout"]
    assert json.loads(row["job"]) == job
    assert row["fingerprint"] == fingerprint("Timeout", "after 17 s")


def test_what_became_of_jobs_is_one_row_each() -> None:
    settled = {"type": "settled", "epoch": "e", "n": 1, "entries": ["4", "5:1"], "how": "enqueued"}
    command = {"type": "command", "op": "delete", "entries": [{"jid": "j", "entry": "9"}], "at": NOON}
    found = rows("raw_retries", settled, command, {"type": "term", "n": 1})
    told = [(row["type"], row["how"], row["entry"], row["jid"]) for row in found]
    assert told == [
        ("settled", "enqueued", "4", None),
        ("settled", "enqueued", "5:1", None),
        ("command", "delete", "9", "j"),
    ]


def test_a_job_too_large_to_be_wrapped_is_an_entry_all_the_same() -> None:
    headers = {"amqpjobs-type": "retry", "amqpjobs-jid": "j", "amqpjobs-retry-at": str(NOON + 60)}
    headers |= {"amqpjobs-failed-at": str(NOON), "amqpjobs-error-class": "Late"}
    big = message({"class": "Big", "args": []}, **headers)
    [row] = decode.batch("raw_retries", 0, [big]).to_pylist()
    assert (row["class"], row["jid"], row["error_class"], row["at"].timestamp()) == ("Big", "j", "Late", NOON)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("no answer in 5 s", "no answer in 17.5 s", True),
        ("user 'ann' is gone", 'user "bob" is gone', True),
        ("at 0x7f3a", "at 0x11", True),
        ("job 3f2504e0-4f89-11d3-9a0c-0305e82c3301 failed", "job 00000000-4f89-11d3-9a0c-0305e82c3301 failed", True),
        ("first\nsecond", "first\nother", True),
        ("no answer", "no route", False),
    ],
)
def test_errors_that_differ_in_figures_only_are_one(one: str, other: str, same: bool) -> None:
    assert (fingerprint("E", one) == fingerprint("E", other)) is same
    assert fingerprint("E", one) != fingerprint("F", one)


def test_the_names_of_streams_are_all_of_ours() -> None:
    assert {raw.stream for raw in RAW} <= {*names.STREAMS, names.ENQUEUED}


def routed(body: Any, *, exchange: str = names.JOBS_EXCHANGE, message_id: str | None = None) -> dict[str, Any]:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    found = Incoming(raw, 1, exchange, "low", False, Properties(message_id=message_id), 7)
    [row] = decode.batch("raw_enqueued", 0, [found]).to_pylist()
    return {name: value for name, value in row.items() if value is not None}


def test_a_job_that_the_broker_put_on_record_is_read_as_its_worker_reads_it() -> None:
    job = {"class": "A", "jid": "j", "args": [1], "queue": "elsewhere", "enqueued_at": NOON, "type": "any"}
    row = routed(job)
    assert (row["type"], row["jid"], row["class"], row["queue"]) == ("enqueued", "j", "A", "low")
    assert (row["at"].timestamp(), json.loads(row["job"])) == (NOON, job)
    assert routed(job | {"retry_count": 2})["type"] == "requeued"
    assert routed({"class": "A"}, message_id="m", exchange=names.LOG_EXCHANGE)["jid"] == "m"
    untold = routed({"class": "A", "created_at": NOON})
    assert ("jid" in untold, untold["at"].timestamp()) == (False, NOON)
    assert "at" in routed({"class": "A"}), "where no time was told it is that of our reading"
    for bad in (b"\xff", [job], {"jid": "j"}, {"class": "A", "args": 7}):
        assert routed(bad)["bad"].startswith("Malformed"), "as by a worker, who makes a dead job of it"
    assert rows("raw_enqueued", {"type": "marker", "nonce": "n"}) == []


def test_an_entry_of_a_client_is_one_whatever_its_routing_key() -> None:
    entry = {"type": "enqueued", "jid": "j", "queue": "q", "at": NOON, "job": {"class": "A"}}
    assert routed(entry, exchange="")["queue"] == "q"
