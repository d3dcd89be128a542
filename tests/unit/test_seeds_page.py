"""docs/seeds.md names tests and paths that exist."""

from __future__ import annotations

import re
from pathlib import Path

from fastapi.routing import APIRoute

from amqpjobs.web.app import _MODULES as MODULES

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/seeds.md").read_text(encoding="utf-8")


def test_each_test_that_it_names_is_there() -> None:
    sources = {path: path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py")}
    for named in re.findall(r"`(?:tests/[a-z/]+/)?(test_\w+?)(\.py)?`", PAGE):
        name, is_file = named[0], bool(named[1])
        found = [path for path in sources if path.stem == name] if is_file else [
            path for path, text in sources.items() if f"def {name}(" in text
        ]  # fmt: skip
        assert found, name


def test_each_path_of_the_specification_and_of_ocypod_is_served() -> None:
    served = {route.path for module in MODULES for route in module.router.routes if isinstance(route, APIRoute)}
    plain = {re.sub(r"\{\w+(:path)?\}", "{}", path) for path in served}
    section = PAGE.partition("## Queasy")[0] + PAGE.partition("## The specification")[2]
    named = {
        re.sub(r"\{\w+\}", "{}", path)
        for path in re.findall(r"(/(?:api|queue|job|tag|info|health|retries)[^` ?]*)`", section)
    }
    shorthand = {path for path in named if path in ("/heartbeat", "/output")}
    assert len(named) > 15
    assert named - shorthand - plain == set()
