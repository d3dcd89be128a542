"""Kue's numbers and AMQP's priorities: each name has its own, and order is kept both ways."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from amqpjobs.model.tracked_priority import NAMES, from_amqp, to_amqp

NUMBERS = st.integers(-(2**40), 2**40) | st.integers(-20, 15)


def test_names_have_the_priorities_of_the_design() -> None:
    found = {name: to_amqp(number) for name, number in NAMES.items()}
    assert found == {"low": 0, "normal": 3, "medium": 5, "high": 7, "critical": 9}


@given(NUMBERS, NUMBERS)
def test_what_is_sooner_is_never_later_in_amqp(one: int, other: int) -> None:
    assert 0 <= to_amqp(one) <= 10
    assert (one <= other) <= (to_amqp(one) >= to_amqp(other))


def test_an_amqp_priority_comes_back_as_it_was() -> None:
    assert [to_amqp(from_amqp(priority)) for priority in range(11)] == list(range(11))
    assert from_amqp(None) == 0
