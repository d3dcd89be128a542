"""Tests that share something run in one process; all others wherever there is room."""

from __future__ import annotations

import pytest

from tests.broker.languages import LANGUAGES
from tests.parallel import group_of

TESTS = "tests/broker/test_languages.py::test_"


@pytest.mark.parametrize("language", [language.name for language in LANGUAGES])
def test_the_tests_of_a_language_stay_together(language: str) -> None:
    groups = {group_of(f"{TESTS}{name}") for name in (f"a[{language}]", f"b[{language}-first]", f"c[held-{language}]")}
    assert len(groups) == 1
    others = [other.name for other in LANGUAGES if other.name != language]
    assert groups.isdisjoint(group_of(f"{TESTS}a[{other}]") for other in others)


def test_so_do_those_that_take_the_usual_port_and_no_others() -> None:
    assert len({group_of(f"tests/broker/test_up.py::test_{name}") for name in "ab"}) == 1
    assert len({group_of(f"tests/broker/test_worker.py::test_{name}") for name in "ab"}) == 2
