"""What the tests say of growth can fail."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.unit.growth import in_proportion


@pytest.mark.parametrize(("power", "told"), [(1, True), (2, False)])
def test_what_grows_with_the_square_is_not_in_proportion(power: int, told: bool) -> None:
    def work(size: int) -> Callable[[], object]:
        return lambda: [None for _ in range(size**power * 10 ** (6 - 3 * power))]

    assert in_proportion(work, 400, 4_000) is told
