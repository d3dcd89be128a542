"""DESIGN section 3's table of odd inputs: each ends as a job that runs, an entry that waits, or a dead record."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqpjobs.model import outcomes, reading, text
from amqpjobs.model.messages import DeadJob, Job, Unreadable
from tests.unit.odd import ABSENT, JOBS, NEVER, PLAIN, VALUES, check_job, pieces, safe_words, same, written


def read(changes: dict[str, Any] | None = None, **how: Any) -> Job | Unreadable:
    members = {k: v for k, v in (PLAIN | (changes or {})).items() if v is not ABSENT}
    return reading.read_job(written(members), **({"queue": "from", "jid": "derived"} | how))


def job(changes: dict[str, Any] | None = None, **how: Any) -> Job:
    found = read(changes, **how)
    assert isinstance(found, Job), found
    return found


def retry_means(value: Any) -> int:
    """The row of the table, said once more and differently."""
    if value is None or value is True or value is ABSENT:
        return 25
    if value is False:
        return 0
    if isinstance(value, str):
        try:
            value = json.loads(value.removeprefix("+"))
        except (ValueError, RecursionError):
            return 25
    if not isinstance(value, (int, float)) or isinstance(value, bool) or math.isnan(value):
        return 25
    return 1000 if value > 1000 else 0 if value < 0 else int(value)


@pytest.mark.parametrize(
    ("value", "retries"),
    [
        (ABSENT, 25),
        (None, 25),
        (True, 25),
        (False, 0),
        (0, 0),
        (1, 1),
        ("5", 5),
        ("2.7", 2),
        ("1e999", 1000),
        (2.7, 2),
        (-1, 0),
        (-0.5, 0),
        (10**9, 1000),
        (10**400, 1000),
        (math.inf, 1000),
        (-math.inf, 0),
        (math.nan, 25),
        ("NaN", 25),
        ("soon", 25),
        ("", 25),
        ("0x5", 25),
        ("٥", 25),
        ("9" * 5000, 1000),
        ([], 25),
        ({}, 25),
    ],
)
def test_retry(value: Any, retries: int) -> None:
    assert job({"retry": value}).retry == retries


@given(VALUES)
def test_any_retry(value: Any) -> None:
    assert job({"retry": value}).retry == retry_means(value)


@pytest.mark.parametrize(
    ("value", "count"),
    [
        (ABSENT, 0),
        (None, 0),
        (10**6, 1000),
        (10**30, 1000),
        ("3", 3),
        (-5, 0),
        (2.9, 2),
        (True, 0),
        (math.nan, 0),
        (math.inf, 1000),
        ([3], 0),
    ],
)
def test_retry_count(value: Any, count: int) -> None:
    assert job({"retry_count": value}).retry_count == count


@pytest.mark.parametrize("args", [[], [1], {}, {"a": [1]}, [math.inf], [2**70, "\ud800"]])
def test_args_that_are_some(args: Any) -> None:
    assert same(job({"args": args}).args, args)


def test_args_absent_are_none() -> None:
    assert job({"args": ABSENT}).args == []


def test_null_args_are_none_at_all() -> None:
    """Go writes an empty slice so."""
    found = read({"args": None})
    assert isinstance(found, Job)
    assert found.args == []


@pytest.mark.parametrize("args", [1, "x", True, 1.5, math.nan])
def test_args_of_another_kind_are_no_job(args: Any) -> None:
    found = read({"args": args})
    assert isinstance(found, Unreadable)
    assert (found.error_class, found.jid, found.cls) == ("Malformed", "a1", "SendEmailJob")
    assert "args" in found.error_message


@pytest.mark.parametrize("cls", [ABSENT, None, 1, True, [], {}])
def test_class_that_is_no_string_is_no_job(cls: Any) -> None:
    found = read({"class": cls})
    assert isinstance(found, Unreadable)
    assert (found.error_class, found.jid, found.cls) == ("Malformed", "a1", None)
    assert "class" in found.error_message


@pytest.mark.parametrize(
    "name", [ABSENT, None, "", "a/b", "ü", "x" * 201, "..%", "a b", "a\n", "\ud800", 5, True, [], {}]
)
def test_a_queue_that_is_no_name_is_the_one_it_came_from(name: Any) -> None:
    assert job({"queue": name}).queue == "from"


@pytest.mark.parametrize("name", ["low", "A.b_c:d-9", "x" * 200, ".."])
def test_a_queue_that_is_a_name_is_kept(name: str) -> None:
    assert job({"queue": name}).queue == name


@pytest.mark.parametrize(
    ("jid", "message_id", "called"),
    [
        ("a", "m", "a"),
        (ABSENT, "m", "m"),
        (None, "m", "m"),
        ("", "m", "m"),
        (True, "m", "m"),
        ([], "m", "m"),
        (ABSENT, None, "derived"),
        (ABSENT, "", "derived"),
        (5, None, "5"),
        (1.5, None, "1.5"),
        (2**70, None, str(2**70)),
        (math.nan, None, "NaN"),
        ("\ud800", None, "\\ud800"),
    ],
)
def test_jid(jid: Any, message_id: str | None, called: str) -> None:
    assert job({"jid": jid}, message_id=message_id).jid == called


@given(VALUES)
def test_every_time_is_seconds_that_can_be_shown_or_a_problem(value: Any) -> None:
    seconds = reading.read_instant(value)
    if isinstance(seconds, float):
        assert 1 <= datetime.fromtimestamp(seconds, UTC).year <= 9999
    else:
        assert isinstance(seconds, reading.Problem)
        assert seconds.encode()


@pytest.mark.parametrize("when", NEVER)
def test_times_for_the_record_do_not_keep_a_job_from_running(when: Any) -> None:
    found = job({"enqueued_at": when, "created_at": when})
    assert found.enqueued_at is None
    assert found.created_at is None


@pytest.mark.parametrize(
    "raw",
    [
        b"{",
        b"",
        b"\xff\xfe",
        written(PLAIN).decode().encode("utf-16"),
        b"[" * 10_000,
        b'{"class":"A","args":[' + b"9" * 5000 + b"]}",
        written([PLAIN]),
        b'{"class":"A","args":' + b"[" * 201 + b"]" * 201 + b"}",
        b"null",
        b"5",
        b'"text"',
        b"\x1f\x8b\x08\x00\x00",
        b" \xff\xfe\n",
        b"\xef\xbb\xbf\xff",
        b"\xef\xbb\xbf",
        b"\t{not json\r\n",
        b" [1] ",
        b'\n{"class":5} ',
        b' {"class":"A","args":5}\n',
    ],
)
def test_what_is_no_job_is_one_dead_record_with_the_raw_body(raw: bytes) -> None:
    bad = reading.read_job(raw, queue="from", jid="derived", message_id="m")
    assert isinstance(bad, Unreadable)
    assert (bad.error_class, bad.jid, bad.queue, bad.raw) == ("Malformed", "m", "from", raw)
    (piece,) = pieces(outcomes.unreadable(bad, now=9.0, jid="x", queue="y", worker="w"))
    dead = reading.read_dead(piece, jid="z")
    assert isinstance(dead, DeadJob)
    assert (dead.original, dead.jid, dead.queue, dead.died_at, dead.job) == (raw, "m", "from", 9.0, None)
    assert (dead.error_class, dead.error_message) == (bad.error_class, bad.error_message)


@given(st.binary(max_size=20), st.sampled_from([b"", b" ", b"\n", b"\t", b"\r", b"\xef\xbb\xbf", b"\0"]), st.booleans())
def test_no_byte_of_garbage_is_lost(garbage: bytes, around: bytes, before: bool) -> None:
    raw = around + garbage if before else garbage + around
    bad = reading.read_job(raw, queue="from", jid="derived")
    assert isinstance(bad, Unreadable)
    assert bad.raw == raw


def test_words_that_cannot_be_encoded_become_safe_and_arguments_stay_as_sent() -> None:
    odd = "\ud800x"
    found = job({"jid": odd, "class": odd, "tags": [odd], "key": odd, "args": [odd], "queue": odd}, queue="low")
    assert (found.jid, found.cls, found.tags, found.key) == ("\\ud800x", "\\ud800x", ["\\ud800x"], "\\ud800x")
    assert (found.queue, found.args) == ("low", [odd])


def test_a_byte_order_mark_and_white_space_do_no_harm() -> None:
    found = reading.read_job(b"\xef\xbb\xbf " + written(PLAIN) + b"\n", queue="from", jid="derived")
    assert isinstance(found, Job)
    assert found.raw == written(PLAIN)


@given(JOBS)
def test_every_object_is_a_job_or_a_dead_record(value: dict[str, Any]) -> None:
    raw = written(value)
    found = reading.read_job(raw, queue="from", jid="derived")
    is_job = isinstance(value.get("class"), str) and isinstance(value.get("args", []), (list, dict, type(None)))
    assert isinstance(found, Job if is_job else Unreadable)
    assert found.raw == raw
    if isinstance(found, Job):
        check_job(found)
        args = value.get("args")
        assert same(found.args, [] if args is None else args)
    else:
        safe_words(found.error_message, found.jid, found.queue, found.cls)
    again = reading.read_job(raw, queue="from", jid="derived", value=text.parse(raw))
    assert repr(again) == repr(found)
