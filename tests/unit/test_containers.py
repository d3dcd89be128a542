"""What the Dockerfile installs and what docker-compose.yml opens, as far as files can tell."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from amqpjobs.broker.node import HEAPS

ROOT = Path(__file__).parents[2]


def pins(lock: str) -> dict[str, tuple[str, set[str]]]:
    """Each requirement of a lock: its version and its hashes."""
    text = re.sub(r"\\\n\s*", " ", (ROOT / lock).read_text(encoding="utf-8"))
    found = re.findall(r"^([a-z0-9._-]+)==(\S+)(.*)$", text, flags=re.MULTILINE)
    return {name: (version, set(re.findall(r"--hash=sha256:[0-9a-f]{64}", rest))) for name, version, rest in found}


def test_the_image_gets_the_very_files_that_are_tested_and_no_tools() -> None:
    image, tested = pins("requirements-image.lock"), pins("requirements.lock")
    assert len(image) > 20
    assert {name: pin for name, pin in image.items() if tested.get(name) != pin or not pin[1]} == {}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wanted = [*project["project"]["dependencies"], *project["build-system"]["requires"]]
    assert {re.split(r"[^A-Za-z0-9._-]", each)[0].lower() for each in wanted} <= set(image)
    assert {"pytest", "mypy", "ruff", "playwright"}.isdisjoint(image)


def test_the_image_runs_as_nobody_in_particular() -> None:
    lines = (ROOT / "Dockerfile").read_text(encoding="utf-8").splitlines()
    user, start = (next(n for n, line in enumerate(lines) if line.startswith(word)) for word in ("USER ", "ENTRYPOINT"))
    assert user < start
    assert not lines[user].startswith(("USER root", "USER 0"))
    assert any("--require-hashes" in line for line in lines)


def test_compose_starts_its_broker_as_we_start_ours() -> None:
    text = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
    assert f'RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS: "{HEAPS}"' in text
    assert HEAPS in (ROOT / "docs" / "brokers.md").read_text(encoding="utf-8")


def test_compose_opens_nothing_beyond_this_machine() -> None:
    text = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
    blocks = re.findall(r"^    ports:\n((?:      - .*\n)+)", text, flags=re.MULTILINE)
    published = [line.strip(' -"') for block in blocks for line in block.splitlines()]
    assert any(port.endswith(":8484") for port in published)
    assert [port for port in published if not port.startswith("127.0.0.1:")] == []
    assert "AMQPJOBS_WEB_TOKEN: ${AMQPJOBS_WEB_TOKEN:?" in text
