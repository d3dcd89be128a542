"""Verdicts of tracked jobs' commands as messages, for who asked by AMQP and named an address for the answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from amqpjobs.model import text, values
from amqpjobs.model.lifecycle import State
from amqpjobs.model.tracked import Judged, Tracked, Word


class Granted(NamedTuple):
    """What an attempt's holder must know of its job. `heartbeat_timeout` and `timeout` in seconds, 0: none."""

    id: int
    token: str
    jid: str
    cls: str
    retried: int
    retries: int
    timeout: float
    heartbeat_timeout: float
    data: bytes


class Answer(NamedTuple):
    """A verdict as it came. `granted`: the job, where the command took it and it is still so."""

    uuid: str
    word: Word
    granted: Granted | None


def write_verdict(judged: Judged) -> bytes:
    """The message of a verdict."""
    found = {"type": "verdict", "uuid": judged.uuid, "word": judged.verdict.word, "job": None}
    return text.dump(found if judged.job is None else found | {"job": _job(judged.job, judged.uuid)})


def _job(job: Tracked, uuid: str) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "id": job.id,
        "jid": job.jid,
        "class": job.type,
        "queue": job.queue,
        "key": job.key,
        "state": job.state,
        "retried": job.retried,
        "stalled": job.stalled,
    }
    if job.token != uuid or job.state is not State.RUNNING:
        return shown
    policy = job.policy
    limits = {"retries": policy.retries, "timeout": policy.timeout, "heartbeat_timeout": policy.heartbeat_timeout}
    return shown | limits | {"token": job.token, "data": text.Verbatim(job.data)}


def read_verdict(raw: bytes) -> Answer | None:
    """A verdict; None for what is none."""
    try:
        value = text.parse(raw)
        if value.get("type") != "verdict":
            return None
        job = value["job"]
        granted = None if job is None or "token" not in job else _granted(job, raw)
        return Answer(values.text(value["uuid"]), Word(value["word"]), granted)
    except (text.NotJson, AttributeError, KeyError, TypeError, ValueError):
        return None


def _granted(job: Mapping[str, Any], raw: bytes) -> Granted:
    data = text.member(text.member(raw, "job") or b"{}", "data") or b"null"
    return Granted(
        values.whole(job["id"]), values.text(job["token"]), values.line(job["jid"]), values.line(job["class"]),
        values.whole(job["retried"]), values.whole(job["retries"]), values.number(job["timeout"]),
        values.number(job["heartbeat_timeout"]), data,
    )  # fmt: skip
