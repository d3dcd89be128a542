"""The month's report and its findings, on data that is known."""

from __future__ import annotations

import datetime
import math
import random
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from amqpjobs.history import analysis
from amqpjobs.history.reader import History
from amqpjobs.pipeline import conservation, replay, report
from amqpjobs.pipeline.tables import ROLLUPS
from tests.pipeline import sums

MONTH = "2026-11"
DAY = ("--from", "2026-11-01", "--to", "2026-11-02")
PACIFIC = ZoneInfo("America/Los_Angeles")
SINCE = datetime.datetime(2026, 11, 1, tzinfo=datetime.UTC).timestamp()
UNTIL = datetime.datetime(2026, 12, 1, tzinfo=datetime.UTC).timestamp()
SWITCH = SINCE + 15 * 86400
"""When version 2 came."""


def drawn(rng: random.Random, cls: str, version: str) -> int:
    """Microseconds: of Slower, version 2 takes half as long again."""
    middle = 11.0 + (0.4 if (cls, version) == ("Slower", "v2") else 0.0)
    return round(rng.lognormvariate(middle, 0.5))


def rows(name: str) -> list[dict[str, Any]]:
    """400 runs of each class under each version; of Failing one in fifty fails, then one in five."""
    found = []
    unit = ROLLUPS[name].unit
    for cls in ("Same", "Slower", "Failing"):
        rng = random.Random(cls)
        for version, begin in (("v1", SINCE), ("v2", SWITCH)):
            for n in range(40):
                at = sums.begin(begin + n * 8 * 3600 + 3600 * 5, unit)
                failed = (2 if version == "v2" else n % 5 == 0) if cls == "Failing" else 0
                row = sums.row(unit, at, cls, "low", [drawn(rng, cls, version) for _ in range(10)], int(failed))
                found.append({**row, "code_version": version})
    return found


def errors() -> list[dict[str, Any]]:
    """Two kinds of errors share forty of their fifty hours; a third has hours of its own."""
    kinds = {"a": range(0, 50), "b": range(10, 60), "c": range(200, 250)}
    return [
        {
            "hour": SINCE + hour * 3600,
            "class": f"Class {kind}",
            "queue": "low",
            "error_class": "Timeout",
            "fingerprint": kind,
            "count": 2,
            "dead": 1,
            "jid": f"{kind}{hour}",
            "error_message": "<no answer>",
        }
        for kind, hours in kinds.items()
        for hour in hours
    ]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report") / "lake"
    for name in ROLLUPS:
        if name != "metrics_minute":
            sums.write(folder, name, rows(name))
    sums.write(folder, "errors_hour", errors())
    hours = {row["hour"]: datetime.datetime.fromtimestamp(row["hour"], datetime.UTC) for row in errors()}
    sums.write(folder, "errors_month", [{**row, "month": SINCE, "last": hours[row["hour"]]} for row in errors()])
    return folder


def test_a_new_version_is_found_guilty_of_what_it_did_alone(lake: Path) -> None:
    found = {each.cls: each for each in analysis.changes(History(lake), SINCE, UNTIL)}
    assert {cls: (each.slower, each.faster, each.fails_more) for cls, each in found.items()} == {
        "Same": (False, False, False),
        "Slower": (True, False, False),
        "Failing": (False, False, True),
    }
    slower = found["Slower"]
    assert (slower.before, slower.after, slower.since) == ("v1", "v2", SWITCH + 5 * 3600)
    assert (slower.runs_before, slower.runs_after) == (400, 400)
    assert slower.median_after_ms / slower.median_before_ms == pytest.approx(1.49, rel=0.15)
    assert found["Failing"].failed_before == pytest.approx(8 / 400)
    assert found["Failing"].failed_after == pytest.approx(80 / 400)


def exact_rank_sum(one: list[int], other: list[int]) -> float:
    """U by its definition: pairs in which the other is greater, ties by half."""
    return sum((b > a) + (b == a) / 2 for a in one for b in other)


def test_the_rank_sum_is_that_of_the_definition() -> None:
    """By simulation: under no difference p is below 0.05 in one of twenty, and a shift of one bucket is found."""
    rng = random.Random(5)
    small = 0
    for _ in range(400):
        one, other = (Counter(rng.randrange(8) for _ in range(60)) for _ in range(2))
        small += analysis.rank_sum(one, other) < 0.05
    assert 8 <= small <= 36
    same = Counter(rng.randrange(8) for _ in range(500))
    shifted = {bucket + 1: n for bucket, n in same.items()}
    assert analysis.rank_sum(same, shifted) < 1e-6
    assert analysis.rank_sum(same, shifted) == pytest.approx(analysis.rank_sum(shifted, same))
    assert analysis.rank_sum(same, {}) == analysis.rank_sum({3: 5}, {3: 9}) == 1.0
    few, others = [1, 2, 2, 4], [2, 3, 5, 5, 6]
    assert exact_rank_sum(few, others) == 17  # of 20, where 10 is no difference
    ties = (3**3 - 3) + (2**3 - 2)
    deviation = math.sqrt(4 * 5 / 12 * (10 - ties / (9 * 8)))
    assert analysis.rank_sum(Counter(few), Counter(others)) == pytest.approx(math.erfc(7 / deviation / math.sqrt(2)))


def test_a_coincidence_is_as_likely_as_it_is_counted() -> None:
    assert analysis.coincidence(10, 3, 4, 0) == pytest.approx(1.0)
    assert analysis.coincidence(10, 3, 4, 3) == pytest.approx(4 / 120)  # 4·3·2 of 10·9·8
    rng = random.Random(9)
    hits = sum(len(set(range(6)) & set(rng.sample(range(20), 5))) >= 3 for _ in range(20_000))
    assert analysis.coincidence(20, 6, 5, 3) == pytest.approx(hits / 20_000, abs=0.01)


def test_findings_are_corrected_for_how_many_were_asked_for() -> None:
    assert analysis.holm([0.01, 0.5, 0.02]) == pytest.approx([0.03, 0.5, 0.04])
    assert analysis.holm([0.4, 0.9]) == pytest.approx([0.8, 0.9])
    assert analysis.holm([]) == []


def test_what_failed_together_is_found(lake: Path) -> None:
    [pair] = analysis.together(History(lake), SINCE, UNTIL)
    assert {pair.one[2], pair.other[2]} == {"a", "b"}
    assert (pair.hours_one, pair.hours_other, pair.both) == (50, 50, 40)
    assert pair.expected == pytest.approx(50 * 50 / 720)


def test_met_03_a_week_counts_the_hour_that_came_twice_twice(lake: Path) -> None:
    """On 2026-11-01 Los Angeles has 1:00 to 2:00 twice: hours that exist are what averages are made of."""
    since, until = report.bounds(MONTH, PACIFIC)
    assert (until - since) / 3600 == 30 * 24 + 1
    cells = analysis.week(History(lake), since, until, PACIFIC)
    sundays = [row for name, row in enumerate(cells) if name == 6]
    assert len(sundays[0]) == 24
    runs = sum(point.runs for point in History(lake).series(since, until, "hour"))
    weekdays: Counter[tuple[int, int]] = Counter()
    for hour in range(30 * 24 + 1):
        local = datetime.datetime.fromtimestamp(since + hour * 3600, PACIFIC)
        weekdays[local.weekday(), local.hour] += 1
    assert weekdays[6, 1] == weekdays[6, 2] + 1
    assert sum(cells[day][hour] * count for (day, hour), count in weekdays.items()) == pytest.approx(runs)


def test_the_page_says_it_all_and_needs_nothing_else(lake: Path) -> None:
    page = report.page(History(lake), MONTH, ZoneInfo("UTC"), full=UNTIL + 1)
    assert ">2,400<" in page.replace(" ", "")
    for words in ("v1 → v2", "slower", "Slower", "Failing", "&lt;no answer&gt;", "Class a Timeout"):
        assert words in page, words
    assert page.count("<svg") == 3
    assert "No run told how long its job had waited." in page
    assert "holds all up to" not in page
    assert "holds all up to" in report.page(History(lake), MONTH, ZoneInfo("UTC"), full=SINCE + 86400)
    outside = [url for url in re.findall(r"https?://[^\"'\s<)]+", page) if not url.startswith("http://www.w3.org/")]
    assert not outside
    assert not re.search(r"<script|<link|@import|url\(|src=", page)


def test_the_command_writes_the_page(
    lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AMQPJOBS_LAKE_DIR", str(lake))
    out = tmp_path / "report.html"
    assert report.main(["--month", MONTH, "--out", str(out), "--zone", PACIFIC.key]) == 0
    assert "Days and hours of America/Los_Angeles" in out.read_text()
    assert report.main(["--month", "2025-01", "--out", str(out)]) == 1
    assert "nothing ran in 2025-01" in capsys.readouterr().err
    for wrong in (["--month", "2025-13"], ["--month", MONTH, "--zone", "Nowhere/At_All"]):
        with pytest.raises(SystemExit):
            report.main([*wrong, "--out", str(out)])


@pytest.mark.parametrize(
    "words",
    [("report", "--month", MONTH, "--out", "out"), ("conservation", *DAY), ("replay", *DAY), ("replay", *DAY, "--yes")],
)
def test_a_command_that_finds_no_lake_says_so_and_not_that_all_is_well(
    words: Sequence[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AMQPJOBS_LAKE_DIR", str(tmp_path / "nowhere"))
    monkeypatch.chdir(tmp_path)
    commands = {"report": report, "conservation": conservation, "replay": replay}
    assert commands[words[0]].main(words[1:]) == 1
    said = capsys.readouterr()
    assert f"there is no lake in {tmp_path}/nowhere: set AMQPJOBS_LAKE_DIR" in said.err
    assert said.out == ""
    assert list(tmp_path.iterdir()) == []
