"""What the page is made of, without a broker: figures in words, the chart's numbers, what is called wrong, framing."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqpjobs.history import lag
from amqpjobs.model import reading
from amqpjobs.model.messages import Heartbeat
from amqpjobs.model.pending import Trim
from amqpjobs.model.processes import Processes
from amqpjobs.web import pages, wording
from amqpjobs.web.diagnosis import findings
from amqpjobs.web.live import event
from amqpjobs.web.prometheus import exposition
from amqpjobs.web.status import Broker, Facts, Lag, QueueLine, Runs, Waiting, status
from amqpjobs.web.throughput import BARS, STEP, Bar, Throughput, ceiling

NOW = 1_795_780_800.0


def facts(**changes: Any) -> Facts:
    known: dict[str, Any] = {
        "at": NOW,
        "steady": 500.0,
        "listened": 500.0,
        "broker": Broker("amqp://127.0.0.1:5672/", up=True, product="RabbitMQ 3.10.8"),
        "leader": True,
        "queues": (),
        "processes": (),
        "scheduled": Waiting(0),
        "retries": Waiting(0),
        "dead": Waiting(0),
        "runs": Runs(0, 0, 0, 0, NOW - 60),
    }
    return Facts(**{**known, **changes})


def wrongs(**changes: Any) -> list[str]:
    return [finding.what for finding in findings(facts(**changes)) if finding.level == "wrong"]


def test_a_healthy_system_needs_nobody() -> None:
    assert list(findings(facts())) == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"broker": Broker("amqp://h/", up=False, error="refused")}, "No connection to the broker at amqp://h/"),
        ({"broker": Broker("amqp://h/", up=True, blocked="low on disk")}, "takes no new messages: low on disk"),
        ({"queues": [QueueLine("a", ready=3, consumers=0)]}, "No worker is running: 3 jobs waiting in a."),
        ({"leader": False, "retries": Waiting(2, NOW + 5)}, "No scheduler is running: 2 jobs"),
        ({"scheduled": Waiting(1, NOW - 30)}, "Due scheduled jobs are not leaving: the oldest is 30 s late."),
        ({"lags": [Lag("retries", 61.0)]}, "This page is behind: retries"),
        ({"lost": ["dead_jobs"]}, "dead_jobs was trimmed"),
        ({"retries": Waiting(3, NOW + 5, 0, 41, 100)}, "What waits takes 41% of what retries may hold."),
        (
            {"scheduled": Waiting(3, NOW + 5, trim=Trim(10, 7, NOW - 60))},
            "Retention took 7 jobs of scheduled_jobs that still waited.",
        ),
    ],
)
def test_what_needs_a_person_is_said(changes: dict[str, Any], said: str) -> None:
    (what,) = wrongs(**changes)
    assert said in what


def test_what_has_room_or_was_lost_long_ago_needs_nobody() -> None:
    old = Trim(10, 7, NOW - 8 * 86400)
    assert wrongs(retries=Waiting(3, NOW + 5, 0, 40, 100), dead=Waiting(1, trim=old)) == []


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ([lag.Lag("job_metrics", 900, NOW - 61, NOW - 5), lag.Lag("retries", 0, NOW - 5, NOW - 5)],
         "The pipeline is behind: 900 messages of job_metrics are not in the lake, the oldest for 1 min 1 s."),
        ([lag.Lag("job_metrics", 900, NOW - 50, NOW - 5)], None),
        ([lag.Lag("job_metrics", 900, NOW - 950, NOW - 660)], "The pipeline has said nothing for 11 min"),
        ([lag.Lag("job_metrics", 0, NOW - 590, NOW - 590)], None),
    ],
)  # fmt: skip
def test_a_pipeline_that_stands_or_falls_behind_is_told_of(told: list[lag.Lag], said: str | None) -> None:
    found = [finding.what for finding in findings(facts(lake=told))]
    assert len(found) == (said is not None)
    assert all(said in what for what in found if said is not None)
    figures = exposition(status(facts(lake=told)))
    assert f'amqpjobs_pipeline_behind_messages{{stream="job_metrics"}} {told[0].messages}\n' in figures
    assert f'amqpjobs_pipeline_told_seconds{{stream="job_metrics"}} {told[0].at!r}\n' in figures


def test_a_queue_without_a_worker_is_named_when_others_have_one() -> None:
    processes = Processes()
    beat = reading.read_heartbeat({"identity": "w:1:t", "queues": ["a"]})
    assert isinstance(beat, Heartbeat)
    processes.arrive(beat, 499.0)
    lines = [QueueLine("a", ready=3, consumers=1), QueueLine("b", ready=1, consumers=0)]
    assert wrongs(queues=lines, processes=processes.present(500.0)) == ["Queue b has 1 job and no worker."]


def test_a_queue_that_somebody_paused_lacks_no_worker() -> None:
    """To start one, as the page would advise for a queue without, would change nothing."""
    lines = [QueueLine("a", ready=3, consumers=0, paused=True), QueueLine("b", ready=0, consumers=0, paused=True)]
    [found] = findings(facts(queues=lines))
    assert (found.level, found.what) == ("note", "Queue a is paused: 3 jobs in it.")
    assert found.command == "amqpjobs resume a"


def test_a_broker_that_is_away_is_the_only_thing_said() -> None:
    """What follows from it (unknown depths, silent workers) would send a person to the wrong place."""
    away = Broker("amqp://h/", up=False)
    assert len(wrongs(broker=away, leader=False, queues=[QueueLine("a", 3, 0)], retries=Waiting(2, NOW - 99))) == 1


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (None, "–"), (0.0, "0 ms"), (0.000004, "0 ms"), (0.00042, "0.42 ms"), (0.000994, "0.99 ms"),
        (0.000996, "1.0 ms"), (0.0094, "9.4 ms"), (0.00996, "10 ms"), (0.0124, "12 ms"), (0.9994, "999 ms"),
        (0.9996, "1.0 s"), (59.94, "59.9 s"),
        (59.96, "59 s"), (60, "1 min"), (61.5, "1 min 1 s"), (7260, "2 h 1 min"), (86_400, "1 d"), (90_000, "1 d 1 h"),
    ],
)  # fmt: skip
def test_durations(seconds: float | None, said: str) -> None:
    assert wording.duration(seconds) == said


def test_figures() -> None:
    assert [wording.number(value) for value in (None, 0, 1234567)] == ["–", "0", "1,234,567"]
    assert [wording.rate(value) for value in (None, 0, 3.14, 1234.5)] == ["–", "0", "3.1", "1,234"]
    assert [wording.share(*pair) for pair in ((0, 0), (0, 5), (1, 3), (1, 10_000), (9999, 10_000), (3, 3))] == [
        "0 %", "0 %", "33.3 %", "under 0.1 %", "over 99.9 %", "100.0 %",
    ]  # fmt: skip
    assert [wording.size(value) for value in (None, 0, 204_800, 2_000_000)] == ["–", "0 B", "210 MB", "2.0 GB"]


@given(st.floats())
def test_any_instant_has_words(at: float) -> None:
    assert wording.instant(at)
    assert isinstance(wording.iso(at), str)


@given(st.floats(0, 1e12))
def test_any_length_of_time_has_words(seconds: float) -> None:
    assert wording.duration(seconds).strip()
    assert wording.age(seconds).strip()


@given(st.text(st.sampled_from("a\r\n\u2028 :"), max_size=30), st.sampled_from(["queues", "alive"]))
def test_no_text_ends_an_event_or_begins_another(data: str, name: str) -> None:
    sent = event(name, data)
    assert sent.endswith("\n\n")
    assert "\r" not in sent
    first, *rest = sent[:-2].split("\n")
    assert first == f"event: {name}"
    assert all(line.startswith("data: ") for line in rest)
    assert "\n".join(line.removeprefix("data: ") for line in rest) == data.replace("\r\n", "\n").replace("\r", "\n")


def test_throughput_tells_the_last_step_and_draws_the_finished_ones() -> None:
    throughput = Throughput()
    assert throughput.rate() is None
    for second in range(21):
        throughput.sample(float(second), 10 * second, second)
    assert throughput.rate() == (10.0, 1.0)
    assert throughput.bars(20.0) == [None] * (BARS - 4) + [Bar(40, 4), Bar(50, 5), Bar(50, 5), Bar(50, 5)]
    # Nobody looked for a quarter of an hour: the chart moves on, and does not call it nothing.
    assert throughput.bars(900.0) == [None] * BARS


def test_a_backlog_read_after_a_pause_is_no_burst() -> None:
    throughput = Throughput()
    throughput.sample(0.0, 0, 0)
    throughput.pause()
    throughput.sample(60.0, 1_000_000, 0)
    assert throughput.rate() is None
    throughput.sample(61.0, 1_000_010, 0)
    assert throughput.rate() == (10.0, 0.0)


@given(st.lists(st.tuples(st.floats(0.1, 20), st.integers(0, 1000), st.booleans()), max_size=100))
def test_throughput_is_never_negative_and_bounded(samples: list[tuple[float, int, bool]]) -> None:
    throughput, at, total = Throughput(), 0.0, 0
    for pause, more, anew in samples:
        at += pause
        total = 0 if anew else total + more
        throughput.sample(at, total, total // 2)
        rate = throughput.rate()
        assert rate is None or rate.ran >= 0
    assert all(bar is None or bar.ran >= 0 <= bar.failed for bar in throughput.bars(at))
    assert len(throughput._steps) <= BARS + 1


@given(st.lists(st.builds(Bar, st.integers(0, 10**9), st.just(0)), max_size=10))
def test_no_bar_passes_the_top_of_the_axis(bars: list[Bar]) -> None:
    top = ceiling(bars)
    assert top >= 1
    assert all(bar.ran / STEP <= top for bar in bars)


def test_every_part_renders_with_nothing_known() -> None:
    unknown = facts(
        broker=Broker("amqp://h/", up=False), leader=None, scheduled=None, retries=None, dead=None, runs=None
    )
    sections = pages.Renderer().sections(status(unknown))
    assert {*sections} == {*pages.SECTIONS}
    assert "–" in sections["totals"]


def test_names_of_queues_are_escaped() -> None:
    sections = pages.Renderer().sections(status(facts(queues=[QueueLine("<b>&\"'", ready=1, consumers=0)])))
    assert "<b>&" not in "".join(sections.values())
    assert "&lt;b&gt;&amp;&#34;&#39;" in sections["queues"]


def test_vendored_files_are_what_their_registry_served() -> None:
    lines = Path(pages.STATIC / "CHECKSUMS").read_text().splitlines()
    listed = {name: digest for digest, name in (line.split("  ") for line in lines if not line.startswith("#"))}
    assert {*listed} == {path.name for path in [*pages.STATIC.glob("htmx*.js"), *pages.STATIC.glob("uplot*.*s")]}
    for name, digest in listed.items():
        assert hashlib.sha256((pages.STATIC / name).read_bytes()).hexdigest() == digest
