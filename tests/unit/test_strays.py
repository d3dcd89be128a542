"""The records of jobs that reached no queue, and of those that one gave up."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from amqpjobs.model.rejected import rejected
from amqpjobs.model.strays import stray


def record(raw: bytes, key: str, **more: Any) -> dict[str, Any]:
    given: dict[str, Any] = {"now": 5.0, "jid": "made", "message_id": None, "worker": "w", "properties": {}} | more
    found: dict[str, Any] = json.loads(stray(raw, key, "why", **given))
    assert (found["type"], found["error_class"], found["error_message"], found["died_at"]) == (
        "dead_job",
        "Unroutable",
        "why",
        5.0,
    )
    return found


def test_a_job_that_can_be_sent_somewhere_is_kept_as_a_job_digit_by_digit() -> None:
    raw = b'{"class":"C","args":[12345678901234567890123],"dead":false,"queue":"mail"}'
    found = stray(
        raw, "a/b", "why", now=5.0, jid="made", message_id="m", worker="w", properties={"priority": 3, "headers": {}}
    )
    assert b"12345678901234567890123" in found
    value = json.loads(found)
    assert (value["jid"], value["job"]["queue"], value["properties"]) == ("m", "mail", {"priority": 3})
    assert record(b'{"class":"C"}', "emails")["job"]["queue"] == "emails"


@pytest.mark.parametrize(
    ("raw", "key", "members"),
    [
        (b'{"class":"C","jid":"j"}', "a/b", {"raw": '{"class":"C","jid":"j"}', "class": "C", "jid": "j"}),
        (b'{"class":"C","queue":"no/name"}', "", {"class": "C", "jid": "made"}),
        (b"\xff\x00", "default", {"raw_base64": base64.b64encode(b"\xff\x00").decode(), "jid": "made"}),
        (b"", "x", {"raw": "", "jid": "made"}),
        (b" not json\n", "x", {"raw": " not json\n", "jid": "made"}),
        (b'{"args":[1]}', "default", {"raw": '{"args":[1]}'}),
    ],
)
def test_anything_else_is_kept_as_its_bytes(raw: bytes, key: str, members: dict[str, Any]) -> None:
    found = record(raw, key)
    assert members.items() <= found.items()
    assert "job" not in found


DEATH = {
    "x-first-death-queue": "queue.mail",
    "x-first-death-reason": "rejected",
    "x-first-death-exchange": "jobs.direct",
}


@pytest.mark.parametrize(
    ("body", "jid", "cls"),
    [
        (b'{"jid":"j","class":"C","type":"command","job":{}}', "j", "C"),
        (b'[{"jid":"j","class":"C"}]', None, None),
        (b'{"jid":"j","class":7}', "j", None),
        (b"\xff", None, None),
        (b" \xff\n", None, None),
        (b' {"class":7}\n', None, None),
    ],
)
def test_what_a_queue_gave_up_is_one_record_whatever_it_is(body: bytes, jid: str | None, cls: str | None) -> None:
    found = rejected(body, DEATH)
    assert found is not None
    assert (found.error_class, found.raw, found.queue) == ("Rejected", body, "mail")
    assert found.cls == cls
    assert found.jid in (jid, None)
    assert "queue mail" in found.error_message


@pytest.mark.parametrize(
    ("reason", "says"),
    [("delivery_limit", "too often"), ("expired", "longer"), ("maxlen", "full"), ("odd", "odd"), (7, "rejected")],
)
def test_the_reason_is_told(reason: Any, says: str) -> None:
    found = rejected(b"{}", DEATH | {"x-first-death-reason": reason})
    assert found is not None
    assert says in found.error_message


@pytest.mark.parametrize("headers", [{}, {"x-first-death-queue": "theirs"}, {"x-first-death-queue": 7}])
def test_what_comes_from_elsewhere_is_no_rejected_job(headers: dict[str, Any]) -> None:
    assert rejected(b'{"class":"C"}', headers) is None


def test_a_record_of_a_worker_is_read_as_such_however_it_came() -> None:
    assert rejected(b'{"type":"dead_job","jid":"j"}', DEATH) is None
