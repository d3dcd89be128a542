"""Files of sums as upkeep leaves them: who asks for one class reads its part of them, and whole ones of older lakes."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from pathlib import Path
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from amqpjobs.history import groups
from amqpjobs.history.reader import History
from amqpjobs.pipeline import adding, layout
from amqpjobs.pipeline.lake import Lake, Mark
from amqpjobs.pipeline.upkeep import FEW, Upkeep
from amqpjobs.settings import Settings
from tests.pipeline import sums

JANUARY = 1_767_225_600.0
HOURS = 31 * 24
MANY, LITTLE = "AB", "CDE"
SPAN = (JANUARY + 50_000, JANUARY + 2_000_000)
ZONE = ZoneInfo("America/Los_Angeles")
SHARES = (0.0, 0.5, 0.99)
TABLES = ("metrics_hour", "totals_hour")


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake of a month, as `rollup` appends it: of MANY a run each hour, of LITTLE less."""
    tmp_path = tmp_path_factory.mktemp("layout")
    rng, lake = random.Random(3), Lake(tmp_path / "lake")
    ran = [(hour, cls) for hour in range(HOURS) for cls in (MANY + LITTLE if hour < 100 else MANY)]
    rng.shuffle(ran)
    for batch in range(FEW + 1):
        runs = [
            (JANUARY + 3600 * hour + 60, cls, "low" if hour % 2 else "high", rng.randrange(1, 10**6), False)
            for hour, cls in ran[batch :: FEW + 1]
        ]
        sums.write(tmp_path / str(batch), "metrics_minute", sums.rows(runs, "metrics_minute"))
        minutes = [str(file) for file in (tmp_path / str(batch)).rglob("*.parquet")]
        for name in TABLES:
            part = lake.new_part(name)
            adding.written("metrics_minute", minutes, name, part)
            lake.append(name, part, "raw_metrics", Mark(0, batch + 1))
    return lake.folder


@pytest.fixture
def lake(filled: Path, tmp_path: Path) -> Lake:
    return Lake(shutil.copytree(filled, tmp_path / "lake"))


def tidied(lake: Lake) -> Path:
    """The file of hours after upkeep."""
    with lake.writing():
        Upkeep(lake, Settings()).run()
    [file] = lake.table("metrics_hour").file_uris()
    return Path(file.removeprefix("file://"))


def answers(lake: Lake) -> list[object]:
    asked: list[tuple[str | None, str | None]] = [
        ("B", None),
        ("C", "low"),
        ("none", None),
        (None, "high"),
        (None, None),
    ]
    history = History(lake.folder)
    return [
        history.series(*SPAN, "day", cls=cls, queue=queue, zone=ZONE, quantiles=shares)
        for cls, queue in asked
        for shares in (SHARES, ())
    ]


def test_a_class_of_many_rows_has_row_groups_to_itself(lake: Lake) -> None:
    footer = pq.read_metadata(tidied(lake))
    of_class = footer.schema.names.index("class")
    told = [footer.row_group(number).column(of_class).statistics for number in range(footer.num_row_groups)]
    assert [(each.min, each.max) for each in told] == [("A", "A"), ("B", "B"), ("C", "E")]
    assert footer.num_rows == len(MANY) * HOURS + len(LITTLE) * 100
    assert lake.mark("metrics_hour", "raw_metrics") == Mark(0, FEW + 1)


def test_other_months_stay(lake: Lake) -> None:
    february = [(JANUARY + (31 + day) * 86_400, "A", "low", 7, False) for day in range(3)]
    for run in february:
        sums.write(lake.folder, "metrics_hour", sums.rows([run], "metrics_hour"))
    tidied_months = {"date=2026-01-01": 1, "date=2026-02-01": 3}  # few files are let be
    with lake.writing():
        Upkeep(lake, Settings()).run()
    assert Counter(Path(uri).parent.name for uri in lake.table("metrics_hour").file_uris()) == tidied_months
    [day] = History(lake.folder).series(
        JANUARY + 31 * 86_400, JANUARY + 32 * 86_400, "day", cls="A", zone=ZoneInfo("GMT")
    )
    assert day.runs == 1


def test_what_is_never_null_is_not_read_as_if_it_were(lake: Lake) -> None:
    file = pq.ParquetFile(tidied(lake))
    columns = {column.path: column for column in map(file.schema.column, range(len(file.schema)))}
    for path in (f"{kind}_histogram.list.element.{part}" for kind in ("run", "wait") for part in ("bucket", "n", "us")):
        assert columns[path].max_definition_level == 1  # only whether a list is empty
    assert all(len(each) == 1 for each in file.read(["run_histogram"])["run_histogram"].to_pylist())
    assert not any(file.read(["wait_histogram"])["wait_histogram"].to_pylist())


def test_answers_are_the_same_before_and_after(lake: Lake) -> None:
    before = answers(lake)
    assert sum(map(bool, before)) == 8
    tidied(lake)
    assert answers(lake) == before


def test_one_class_is_read_and_no_other(lake: Lake) -> None:
    """All that belongs to others is damaged here."""
    file = tidied(lake)
    [whole, *_] = answers(lake)
    footer = pq.read_metadata(file)
    with file.open("r+b") as opened:
        for group in (footer.row_group(number) for number in (0, 2)):
            for column in (group.column(number) for number in range(group.num_columns)):
                opened.seek(column.dictionary_page_offset or column.data_page_offset)
                opened.write(b"\xff" * column.total_compressed_size)
    history = History(lake.folder)
    assert history.series(*SPAN, "day", cls="B", zone=ZONE, quantiles=SHARES) == whole
    with pytest.raises(OSError, match=r"."):
        history.series(*SPAN, "day", cls="A", zone=ZONE, quantiles=SHARES)


def test_rows_without_a_class_are_nobodys(tmp_path: Path) -> None:
    """A group's least and greatest class say nothing of them."""
    rows = pa.table({"class": ["B", "B", None], "n": [1, 2, 3]})
    pq.write_table(rows, tmp_path / "rows.parquet")
    found = groups.each([str(tmp_path / "rows.parquet")], {"class": "B"}, ["n"], lambda table: table["n"].to_pylist())
    assert found == [[1, 2]]


@pytest.mark.parametrize(
    ("keys", "cut"),
    [
        ("", []),
        ("AB", [2]),
        ("AAAABBBBC", [4, 4, 1]),
        ("AABBCCDD", [6, 2]),
        ("ABCCCCDDE", [2, 4, 3]),
        ("A" * 14 + "BC", [6, 6, 2, 2]),
    ],
)
def test_small_keys_share_a_group(keys: str, cut: list[int]) -> None:
    found = list(layout.groups(pa.chunked_array([list(keys)], pa.string()), 6))
    assert [end - first for first, end in found] == cut
    assert [at for first, end in found for at in range(first, end)] == list(range(len(keys)))
