"""The configuration file of recurring jobs: what it may say, and what is said where it may not."""

from __future__ import annotations

from pathlib import Path

import pytest

from amqpjobs import schedules
from amqpjobs.model import text
from amqpjobs.model.recurring import Recurring
from amqpjobs.schedules import BadSchedules

FILE = """
[nightly]
class = "Report"
cron = "0 3 * * *"
timezone = "Europe/Rome"
args = [1, "two"]
queue = "reports"
retry = 3
missed = "skip"
paused = true

[ping]
class = "Ping"
every = 60
args = {loudly = true}
"""


def test_each_table_is_a_schedule(tmp_path: Path) -> None:
    path = tmp_path / "recurring.toml"
    path.write_text(FILE)
    nightly, ping = schedules.read_file(path)
    assert (nightly.name, nightly.cron, nightly.timezone, nightly.every) == (
        "nightly",
        "0 3 * * *",
        "Europe/Rome",
        None,
    )
    assert (nightly.missed, nightly.paused, nightly.origin) == ("skip", True, "file")
    assert text.parse(nightly.job) == {"class": "Report", "args": [1, "two"], "queue": "reports", "retry": 3}
    assert (ping.name, ping.every, ping.missed, ping.paused) == ("ping", 60, "once", False)
    assert text.parse(ping.job) == {"class": "Ping", "args": {"loudly": True}}


def test_only_what_differs_is_said(tmp_path: Path) -> None:
    path = tmp_path / "recurring.toml"
    path.write_text(FILE)
    nightly, _ = wanted = schedules.read_file(path)
    new = schedules.changes({}, wanted, {"file"}, by="me", at=1.0)
    assert [(entry["op"], entry["name"]) for entry in new] == [("declare", "nightly"), ("declare", "ping")]
    known = {each.name: Recurring(each, False, 0.0) for each in wanted}
    assert schedules.changes(known, wanted, {"file"}, by="me", at=1.0) == []
    (gone,) = schedules.changes(known, [nightly], {"file"}, by="me", at=1.0)
    assert (gone["op"], gone["name"]) == ("remove", "ping")
    assert schedules.changes(known, [], {"code:jobs"}, by="me", at=1.0) == [], "what others keep is left alone"


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("[a]\nclass = 'C'\ncron = '0 3 * *'", "[a]: cron: '0 3 * *' is not five fields"),
        (
            "[a]\nclass = 'C'\nevery = 60\ntimzone = 'UTC'",
            "[a]: unknown: timzone; there are class, args, cron,",
        ),
        ("[a]\nclass = 'C'\nevery = 60\nretry = 'x'", "[a]: retry is a whole number"),
        ("[a]\nevery = 60", "[a]: job: class:"),
        ("a = 1", "a recurring job is a table, [a], not 1"),
        ("['a b']\nclass = 'C'\nevery = 60", "'a b' cannot be its name"),
        ("[a", "no TOML"),
        (None, "No such file"),
    ],
)
def test_a_file_that_cannot_be_used_names_the_file_the_job_and_what_is_wrong(
    tmp_path: Path, content: str | None, complaint: str
) -> None:
    path = tmp_path / "recurring.toml"
    if content is not None:
        path.write_text(content)
    with pytest.raises(BadSchedules) as error:
        schedules.read_file(path)
    assert str(error.value).startswith(f"{path}: ")
    assert complaint in str(error.value)
    assert "\n" not in str(error.value)
