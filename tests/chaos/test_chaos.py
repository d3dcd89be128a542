"""A short run of the chaos driver: some 40 s under fire."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.chaos.driver import chaos


@pytest.mark.timeout(400)
async def test_nothing_is_lost_under_fire(tmp_path: Path) -> None:
    seed = int(os.environ.get("CHAOS_SEED", "20261127"))
    report = await chaos(tmp_path, seconds=40, rate=60, seed=seed)
    print(report)
    assert len(report.sent) > 300
    assert not report.lost, report
    assert not any(report.waiting.values()), report
    assert report.duplicates <= report.bound, report
    assert set(report.dead) <= report.expected_dead, report
