"""How pytest-xdist shares out the tests (`make test`, or `pytest -n 3`): one by one, the long ones first.

Each process has a broker of its own, unless the session was given one. Only tests that share something stay together.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

TOGETHER = (
    # `up` takes the broker's usual port, or the next that is free.
    re.compile(r"broker/(test_up)\.py"),
    # One JVM, which takes half a minute to start.
    re.compile(r"pipeline/(test_spark)_\w+\.py"),
    # One worker and scheduler for all the tests of a language, the last of which ends them.
    re.compile(r"broker/(test_languages)\.py.*\[.*?\b(python-pika|javascript|ruby|go)\b"),
)
LONG = (re.compile(r"^tests/chaos/"), *TOGETHER)


def group_of(nodeid: str) -> str:
    """The tests with the same group run in one process, one after the other."""
    return next((" ".join(found.groups()) for each in TOGETHER if (found := each.search(nodeid))), nodeid)


def place(item: pytest.Item) -> int:
    """Where in the order a test belongs: a long one that is begun last keeps everyone waiting."""
    for number, long in enumerate(LONG):
        if long.search(item.nodeid):
            return number
    return len(LONG) if item.get_closest_marker("own_node") else len(LONG) + 1


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Ours, for `-n` without a `--dist`."""
    from xdist.scheduler import LoadScopeScheduling

    if config.getoption("dist") != "load":
        return None
    config.option.loadscopereorder = False  # the order is that of `place`
    scheduler = LoadScopeScheduling(config, log)
    scheduler._split_scope = group_of
    return scheduler
