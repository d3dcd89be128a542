"""How pytest-xdist shares out the tests (`make test`, or `pytest -n 3`): one by one, the long ones first.

Each process has a broker of its own, unless the session was given one. Only tests that share something stay together.

A failure is told at once, and a run that is terminated tells what was running: pytest does so at the end only, which a
run that is killed for its time does not come to. A test that does not even end once it has failed for its time costs
its process, which is replaced, and not the run.
"""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Generator
from types import FrameType
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

    class Scheduling(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
        def remove_node(self, node: Any) -> Any:
            """The test that a process died of is not begun again: it would cost the next one too."""
            work = self.assigned_work[node]
            died = next(((unit, test) for unit in work.values() for test, over in unit.items() if not over), None)
            if died is not None:
                unit, test = died
                unit[test] = True
            for scope in [scope for scope, tests in work.items() if all(tests.values())]:
                del work[scope]
            super().remove_node(node)
            return died[1] if died is not None else None

    if config.getoption("dist") != "load":
        return None
    config.option.loadscopereorder = False  # the order is that of `place`
    scheduler = Scheduling(config, log)
    scheduler._split_scope = group_of
    return scheduler


class Told:
    """In the process that the others report to."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._running: dict[str, float] = {}

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._running[nodeid] = time.monotonic()

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._running.pop(nodeid, None)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._say(f"FAILED {report.nodeid} ({report.when}, {report.duration:.1f} s)\n{report.longreprtext}")

    def terminated(self, number: int, frame: FrameType | None) -> None:
        """Tell what runs, and end as after Ctrl-C: with what has failed."""
        now = time.monotonic()
        lines = [f"  {nodeid}, for {now - since:.0f} s" for nodeid, since in self._running.items()]
        self._say("\n".join(["terminated while there ran:", *lines]))
        raise KeyboardInterrupt

    def _say(self, text: str) -> None:
        terminal: Any = self._config.pluginmanager.get_plugin("terminalreporter")
        if terminal is not None:
            terminal.write_line("\n" + text)
            terminal.flush()


GRACE = 60.0
"""Seconds that a test has to end after its time limit."""


class Ended:
    """In each of the others. A time limit raises in the main thread, but the end of the test's event loop joins the
    loop's threads: a run of CI stood for 70 minutes before such a thread."""

    def __init__(self, config: pytest.Config) -> None:
        self._limit = float(config.getini("timeout") or 300)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        marker = item.get_closest_marker("timeout")
        limit = float(marker.args[0]) if marker is not None and marker.args else self._limit
        timer = threading.Timer(limit + GRACE, os._exit, [70])
        timer.daemon = True
        timer.start()
        try:
            return (yield)
        finally:
            timer.cancel()


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):
        config.pluginmanager.register(Ended(config), "ended")
        return
    if not config.getoption("numprocesses", None):
        return
    told = Told(config)
    config.pluginmanager.register(told, "told")
    signal.signal(signal.SIGTERM, told.terminated)
