"""The benchmarks' pure parts: what a figure is, how targets are rated, how the page and the chart come about."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import pytest

from benchmarks.broker import Broker, known
from benchmarks.report import page
from benchmarks.report.chart import Bar, drawn
from benchmarks.report.tables import figured, number, table
from benchmarks.report.targets import TARGETS
from benchmarks.statistics import figure, percentile, steady_rate

QUIET = {"load": [0.1, 0.1, 0.1], "busy_percent": 1.0, "steal_percent": 0.0, "loop_ms": 20.0}
MACHINE = {
    "date": "2026-11-28 04:55 UTC",
    "commit": "abc1234",
    "cpu": "some processor",
    "cores": 2,
    "memory_gb": 24,
    "system": "Linux 6",
    "python": "CPython 3.11.7",
    "broker": "RabbitMQ 4.3.6",
}


def product(title: str, rate: float) -> dict[str, Any]:
    runs = {
        name: figure([value]).as_json() for name, value in (("rate", rate), ("enqueue_rate", 1), ("worker_cpu_us", 9))
    }
    return {"title": title, "version": "1", "how": "threads", "durability": "none", "workers": {"2": runs}}


def results(figures: dict[str, Any], scenario: str = "noop", **more: Any) -> dict[str, Any]:
    return {scenario: {"machine": MACHINE, "before": QUIET, "after": QUIET, "failures": {}, "figures": figures} | more}


def verdicts(found: dict[str, Any]) -> dict[str, bool | None]:
    return {target.figure: target.rate(found).met for target in TARGETS}


def test_a_figure_is_the_median_with_its_spread() -> None:
    measured = figure([9.0, 10.0, 12.0])
    assert (measured.median, measured.low, measured.high, measured.runs) == (10.0, 9.0, 12.0, 3)
    assert measured.spread == pytest.approx(0.15)
    assert figured(measured.as_json()) == "10 ± 15 %"
    assert figured(figure([10.0]).as_json()) == "10"


def test_percentiles_are_values_that_occurred() -> None:
    values = [float(each) for each in range(1, 101)]
    assert percentile(values, 0.5) == 50.0
    assert percentile(values, 0.99) == 99.0
    assert percentile(values, 1.0) == 100.0
    assert percentile([7.0], 0.01) == 7.0
    with pytest.raises(ValueError, match="no values"):
        percentile([], 0.5)


def test_the_rate_is_that_of_the_middle_whatever_start_and_end_were_like() -> None:
    slow_start = [(0.0, 0.0), (5.0, 0.0)]
    middle = [(5.0 + step / 10, step * 100.0) for step in range(1, 97)]  # 1,000 a second
    slow_end = [(14.6 + step, 9_600 + step * 80.0) for step in range(1, 6)]
    assert steady_rate([*slow_start, *middle, *slow_end]) == pytest.approx(1000, rel=0.01)


def test_a_run_that_was_looked_at_too_rarely_has_no_rate() -> None:
    with pytest.raises(ValueError, match="too short"):
        steady_rate([(0.0, 0.0), (0.1, 5_000.0), (0.2, 10_000.0)])
    with pytest.raises(ValueError, match="no job"):
        steady_rate([(0.0, 0.0), (1.0, 0.0)])
    with pytest.raises(ValueError, match="no job"):
        steady_rate([])


def test_numbers_have_as_many_digits_as_mean_something() -> None:
    shown = [number(each) for each in (12_345.6, 100, 70.0, 12.34, 1.5, 0.999, 0.0)]
    assert shown == ["12,346", "100", "70", "12.3", "1.5", "1", "0"]


def test_columns_of_numbers_are_to_the_right() -> None:
    assert table(["a", "b", "c"], [["x", "1", "y"], ["z", "–", "2"]])[1] == "|---|---:|---|"


def test_targets_are_met_missed_or_not_measured() -> None:
    figures = {"ours-lean": product("amqpjobs", 9_999), "sidekiq": product("Sidekiq", 6_000)}
    rated = verdicts(results(figures | {"yardstick": product("bare", 14_000)}))
    assert rated["no-op jobs, 2 worker processes"] is False
    assert rated["… against Sidekiq"] is True
    assert rated["… against Dramatiq"] is None
    assert rated["… of the yardstick (the trial where it ran)"] is True
    assert rated["`enqueue_many`, one process"] is None


def test_the_trial_is_the_yardstick_where_it_ran() -> None:
    figures = {"ours-lean": product("amqpjobs", 10_000), "yardstick": product("bare", 14_000)}
    name = "… of the yardstick (the trial where it ran)"
    assert verdicts(results(figures | {"trial": product("trial", 15_000)}))[name] is False
    assert verdicts(results(figures | {"trial": {"title": "trial", "workers": {}}}))[name] is True


@pytest.mark.parametrize(("last", "flat"), [(60.0, True), (70.0, False)])
def test_memory_is_compared_with_what_it_was_after_the_second_step(last: float, flat: bool) -> None:
    points = [{"jobs": 1, "rss_mb": 50.0}, {"jobs": 2, "rss_mb": 58.0}, {"jobs": 3, "rss_mb": last}]
    found = verdicts(results({"points": points, "channels": [6, 6]}, "memory"))
    assert found["memory over a million jobs, end against begin"] is flat
    assert found["channels opened over a million jobs"] is True


def test_the_page_shows_ours_wherever_it_stands() -> None:
    found = results({"ours-lean": product("amqpjobs", 500), "sidekiq": product("Sidekiq", 1_000)})
    lines = page.written(found).splitlines()
    rows = [line for line in lines if line.startswith(("| Sidekiq | 1,000", "| **amqpjobs** |"))]
    assert rows == ["| Sidekiq | 1,000 | 0.5 | 9 |", "| **amqpjobs** | 500 | 1 | 9 |"]
    assert "| … against Sidekiq | at least 1.5 × | 0.5 × | **missed** |" in lines


def test_a_figure_that_just_misses_shows_that_it_does() -> None:
    found = results({"ours-lean": product("amqpjobs", 1_499), "sidekiq": product("Sidekiq", 1_000)})
    assert "| … against Sidekiq | at least 1.5 × | 1.499 × | **missed** |" in page.written(found).splitlines()


def test_what_listens_here_says_nothing_of_a_broker_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.broker.has_room", lambda port: True)
    monkeypatch.setattr(Broker, "api", lambda *_: {"product_name": "RabbitMQ", "product_version": "4.3.6"})
    assert known("amqp://127.0.0.1:5672/").version == "RabbitMQ 4.3.6, room for heaps"
    assert known("amqp://broker.example:5672/").version == "RabbitMQ 4.3.6"


def test_each_broker_has_a_row_for_each_type_of_queue() -> None:
    runs = product("", 500)["workers"]["2"]
    found = results({"RabbitMQ 4.3.6": {"classic": runs, "quorum": runs}}, "brokers")
    rows = [line for line in page.written(found).splitlines() if line.startswith("| RabbitMQ 4.3.6, ")]
    assert rows == ["| RabbitMQ 4.3.6, classic queues | 500 | 1 |", "| RabbitMQ 4.3.6, quorum queues | 500 | 1 |"]


def test_the_page_says_what_failed_and_that_the_machine_was_busy() -> None:
    found = results({}, failures={"noop celery": "no job was taken"}, after=QUIET | {"busy_percent": 60.0})
    text = page.written(found)
    assert "- noop celery: no job was taken" in text
    assert "**The machine was not quiet** for noop" in text
    assert "not quiet" not in page.written(results({}))


def test_the_chart_is_an_svg_with_the_longest_bar_first() -> None:
    bars = [Bar("slow & old", "bar", 50, 40, 60), Bar("ours", "ours", 100, 90, 120)]
    root = ElementTree.fromstring(drawn("jobs", "a note", bars))
    kinds = [each.get("class") for each in root.iter("{http://www.w3.org/2000/svg}rect")]
    widths = [float(each.get("width", 0)) for each in root.iter("{http://www.w3.org/2000/svg}rect")]
    assert kinds == ["ours", "bar"]
    assert widths[0] == pytest.approx(2 * widths[1], abs=0.2)
    assert "slow & old" in [each.text for each in root.iter("{http://www.w3.org/2000/svg}text")]


def test_the_charts_longest_label_has_room() -> None:
    label = "amqpjobs, queues without priorities, on a broker of its own"
    root = ElementTree.fromstring(drawn("jobs", "a note", [Bar(label, "ours", 100, 90, 120), Bar("x", "bar", 1, 1, 1)]))
    ends = {each.text: float(each.get("x", 0)) for each in root.iter("{http://www.w3.org/2000/svg}text")}
    assert ends[label] == ends["x"] >= 7 * len(label)
