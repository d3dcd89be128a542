"""Heartbeats and metrics: what is odd in them is put right or refused, and never raises."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqpjobs.model import reading, text
from amqpjobs.model.messages import Heartbeat, JobMetric, Unreadable
from amqpjobs.model.tally import tally
from tests.unit.odd import ABSENT, NEVER, VALUES, maybe, objects

BEAT = {
    "type": "heartbeat",
    "identity": "worker-01:12345:production",
    "hostname": "worker-01",
    "pid": 12345,
    "tag": "production",
    "concurrency": 10,
    "busy": 3,
    "beat": 1234567890.0,
    "rss_kb": 204800,
    "queues": ["critical", "default", "low"],
    "version": "1.0.0",
}
METRIC = {
    "type": "job_metric",
    "timestamp": 1234567890.0,
    "job_class": "SendEmailJob",
    "queue": "default",
    "duration_ms": 1234,
    "status": "success",
    "worker_identity": "worker-01:1234:prod",
}


def beat(value: Any) -> Heartbeat:
    found = reading.read_heartbeat(value)
    assert isinstance(found, Heartbeat), found
    return found


def metric(value: Any) -> JobMetric:
    found = reading.read_metric(value)
    assert isinstance(found, JobMetric), found
    return found


def test_the_samples_of_the_specification() -> None:
    found = beat(BEAT)
    assert {k: getattr(found, k) for k in BEAT if k != "type"} == {k: v for k, v in BEAT.items() if k != "type"}
    assert (found.nonce, found.boot_at, found.running, found.state) == (None, None, [], "running")
    measured = metric(METRIC)
    assert {k: getattr(measured, k) for k in METRIC if k != "type"} == {k: v for k, v in METRIC.items() if k != "type"}


def test_what_we_add_to_a_heartbeat() -> None:
    running = [{"jid": "a", "class": "A", "queue": "low", "started_at": 5}, 7, {}]
    found = beat(BEAT | {"nonce": "n", "boot_at": 9, "running": running, "state": "stopped"})
    assert (found.nonce, found.boot_at, found.state) == ("n", 9.0, "stopped")
    assert [(job.jid, job.cls, job.queue, job.started_at) for job in found.running] == [
        ("a", "A", "low", 5.0),
        ("", "", "default", None),
    ]


def test_a_process_is_known_by_host_and_pid_when_it_gives_no_identity() -> None:
    assert beat({"hostname": "h", "pid": 1, "tag": "t"}).identity == "h:1:t"
    nameless_ones: list[Any] = [{}, {"hostname": "h"}, {"pid": 1}, {"identity": None}, [], 5, None]
    for nameless in nameless_ones:
        assert isinstance(reading.read_heartbeat(nameless), Unreadable)


@pytest.mark.parametrize(
    "wrong",
    [{"job_class": None}, {"job_class": ""}, {"status": "ok"}, {"status": None}, {"status": ["success"]}]
    + [{"timestamp": when} for when in NEVER],
)
def test_a_metric_of_nothing_or_of_no_time_is_refused(wrong: dict[str, Any]) -> None:
    sent = {name: value for name, value in (METRIC | wrong).items() if value is not ABSENT}
    assert isinstance(reading.read_metric(sent), Unreadable)


@pytest.mark.parametrize(
    ("sent", "kept"),
    [(5, 5.0), (-3, 0.0), ("7.5", 7.5), (math.nan, None), (math.inf, None), (10**400, None), (None, None), ([], None)],
)
def test_durations_are_finite_and_not_negative(sent: Any, kept: float | None) -> None:
    assert metric(METRIC | {"duration_ms": sent, "wait_ms": sent}).duration_ms == kept
    assert metric(METRIC | {"duration_ms": sent, "wait_ms": sent}).wait_ms == kept


@given(
    objects(
        **{name: maybe(st.just(value)) for name, value in (BEAT | METRIC).items()},
        running=maybe(st.lists(VALUES, max_size=2)),
        boot_at=maybe(st.integers(0, 2**31)),
        wait_ms=maybe(st.floats()),
    )
    | VALUES
)
def test_any_report_is_one_or_is_refused(value: Any) -> None:
    for read in (reading.read_heartbeat, reading.read_metric):
        found = read(value)
        if isinstance(found, Unreadable):
            assert found.error_message.encode()
            assert text.parse(found.raw) is not None or value is None
        else:
            json.dumps(found.model_dump(by_alias=True), allow_nan=False, ensure_ascii=False).encode()
            type(found).model_validate(found.model_dump(by_alias=True))


@pytest.mark.parametrize("state", ["quiet", "stopping", "stopped", "running", "paused: job_metrics cannot be written"])
def test_a_process_says_what_it_does(state: str) -> None:
    beat = reading.read_heartbeat({"identity": "h:1:t", "state": state})
    assert isinstance(beat, Heartbeat)
    assert beat.state == state


@pytest.mark.parametrize("state", [None, 3, "on fire", "paused\ud800" + "x" * 500])
def test_any_other_state_is_safe_to_show(state: Any) -> None:
    beat = reading.read_heartbeat({"identity": "h:1:t", "state": state})
    assert isinstance(beat, Heartbeat)
    assert beat.state == "running" or (beat.state.startswith("paused") and len(beat.state.encode()) <= 204)


@pytest.mark.parametrize("status", ["expired", "cancelled"])
def test_what_was_not_run_is_a_metric_and_no_run(status: str) -> None:
    value = {"timestamp": 1.0, "job_class": "C", "status": status}
    assert isinstance(reading.read_metric(value), JobMetric)
    counted = tally([json.dumps(value).encode()], {})
    assert (counted.minutes, counted.unreadable) == ({}, 0)
