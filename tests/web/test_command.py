"""`python -m amqpjobs.web` serves, or exits non-zero with one clear line."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import pytest
from pydantic import SecretStr, ValidationError

from amqpjobs.settings import Settings
from amqpjobs.web.access import BindRefused, check_bind
from tests.patience import PATIENCE


def run(settings: Settings, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "AMQPJOBS_URL": settings.url, "AMQPJOBS_STATE_DIR": str(settings.state_dir)}
    command = [sys.executable, "-m", "amqpjobs.web", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False)


def failed_with_one_line(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 1
    lines = [line for line in done.stderr.splitlines() if "ERROR" in line]
    assert len(lines) == 1
    assert "Traceback" not in done.stderr
    return lines[0]


def test_a_port_that_is_taken(settings: Settings) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        line = failed_with_one_line(run(settings, "--port", str(port)))
    assert f"127.0.0.1:{port}" in line
    assert "--port" in line


def test_a_login_that_is_refused(settings: Settings) -> None:
    parts = urlsplit(settings.url)
    host = f"{parts.hostname}:{parts.port}"
    wrong = urlunsplit((parts.scheme, f"nobody:wr0ng-pass@{host}", parts.path, "", ""))
    done = run(settings.model_copy(update={"url": wrong}), "--port", "0")
    line = failed_with_one_line(done)
    assert host in line
    assert "wr0ng-pass" not in done.stderr


def test_an_open_address_without_a_token(settings: Settings) -> None:
    assert "AMQPJOBS_WEB_TOKEN" in failed_with_one_line(run(settings, "--host", "0.0.0.0", "--port", "0"))


def test_a_state_directory_that_cannot_be_used(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    blocked = settings.model_copy(update={"state_dir": tmp_path / "file"})
    assert "AMQPJOBS_STATE_DIR" in failed_with_one_line(run(blocked, "--port", "0"))


TOKEN = SecretStr("0123456789abcdef")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.9.9.9"])
def test_loopback_needs_no_token(host: str) -> None:
    check_bind(host, Settings())


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "10.0.0.1", "example.com", "localhost.example.com"])
def test_any_other_address_does(host: str) -> None:
    with pytest.raises(BindRefused, match="AMQPJOBS_WEB_TOKEN"):
        check_bind(host, Settings())
    check_bind(host, Settings(web_token=TOKEN))
    check_bind(host, Settings(web_view_token=TOKEN))
    check_bind(host, Settings(web_user_header="X-Forwarded-User"))


def test_a_token_that_can_be_guessed_is_none() -> None:
    with pytest.raises(BindRefused, match="16 characters"):
        check_bind("0.0.0.0", Settings(web_token=SecretStr("s3cret")))
    with pytest.raises(BindRefused, match="16 characters"):
        check_bind("0.0.0.0", Settings(web_token=TOKEN, web_view_token=SecretStr("look")))


def test_what_is_no_network_or_path_is_told_at_the_start() -> None:
    for wrong in ({"web_proxies": ["10.0.0.0/99"]}, {"web_root_path": "jobs"}, {"web_user_header": "X Y"}):
        with pytest.raises(ValidationError, match=next(iter(wrong))):
            Settings.model_validate(wrong)
