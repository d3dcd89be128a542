"""Where settings come from: arguments over the environment over the file over defaults."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from amqpjobs import settings
from amqpjobs.model import names
from amqpjobs.settings import Settings


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_arguments_go_over_the_environment_and_that_over_the_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "amqpjobs.toml").write_text('heartbeat = 5\nconcurrency = 3\ntag = "file"\nqueues = ["a", "b,2"]\n')
    monkeypatch.setenv("AMQPJOBS_CONCURRENCY", "7")
    monkeypatch.setenv("amqpjobs_tag", "environment")
    found = Settings(tag="argument")
    assert (found.heartbeat, found.concurrency, found.tag, found.queues) == (5, 7, "argument", ["a", "b,2"])
    assert found.publish_timeout == 10.0
    assert found.model_fields_set == {"heartbeat", "concurrency", "tag", "queues"}
    monkeypatch.setenv("AMQPJOBS_QUEUES", "critical,3  default")
    assert Settings().queues == ["critical,3", "default"]


def test_limits_of_streams_are_merged_one_by_one(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "amqpjobs.toml").write_text('[streams.retries]\nmax_age = "3D"\nmax_bytes = 9000\n')
    monkeypatch.setenv("AMQPJOBS_STREAMS", '{"retries": {"max_age": "4D"}, "dead_jobs": {"max_age": "1D"}}')
    monkeypatch.setenv("AMQPJOBS_STREAMS__RETRIES__SEGMENT_BYTES", "5000")
    found = Settings(streams={"dead_jobs": {"max_age": "2D"}})
    retries = found.limits(names.RETRIES)
    assert (retries.max_age, retries.max_bytes, retries.segment_bytes) == ("4D", 9000, 5000)
    assert found.limits(names.DEAD).max_age == "2D"
    assert found.limits(names.METRICS) == settings.DEFAULT_LIMITS[names.METRICS]


def test_what_is_not_ours_in_the_environment_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AMQPJOBS_TEST_URL", "AMQPJOBS_TAG__X", "AMQPJOBS_", "AMQPJOBSTAG", "TAG"):
        monkeypatch.setenv(name, "x")
    assert Settings().tag == "production"


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("AMQPJOBS_HEARTBEAT", "secret", "AMQPJOBS_HEARTBEAT (or heartbeat in amqpjobs.toml): Input should be"),
        ("AMQPJOBS_HEARTBEAT", "", "AMQPJOBS_HEARTBEAT"),
        ("AMQPJOBS_DRIVER", "secret", "AMQPJOBS_DRIVER"),
        ("AMQPJOBS_STREAMS", "secret", "AMQPJOBS_STREAMS (or streams in amqpjobs.toml): Input should be"),
        ("AMQPJOBS_STREAMS__RETRIES__MAX_AGE", "soon", "AMQPJOBS_STREAMS"),
        ("AMQPJOBS_STREAMS__NO_SUCH__MAX_AGE", "1D", "no such stream: no_such"),
    ],
)
def test_a_value_that_cannot_be_is_told_in_one_line_without_it(
    name: str, value: str, says: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit) as caught:
        settings.load()
    assert caught.value.code == 2
    [line] = capsys.readouterr().err.splitlines()
    assert says in line
    assert "secret" not in line


def test_what_is_in_the_file_and_is_no_setting_is_told(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for content, says in (("colour = 1", "colour in amqpjobs.toml): Extra"), ("heartbeat =", "amqpjobs.toml: Invalid")):
        (folder / "amqpjobs.toml").write_text(content)
        with pytest.raises(SystemExit):
            settings.load()
        assert says in capsys.readouterr().err


def test_an_argument_that_is_no_setting_is_an_error() -> None:
    with pytest.raises(ValidationError, match="Extra inputs"):
        Settings.model_validate({"colour": "red"})
