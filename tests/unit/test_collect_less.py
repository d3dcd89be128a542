"""How often a worker's garbage is collected."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("own", "wanted"), [("", "5000"), ("gc.set_threshold(1234, 5, 5)", "1234"), ("gc.disable()", "off")]
)
def test_seldom_unless_the_jobs_say_otherwise(own: str, wanted: str) -> None:
    code = f"""
import gc
from amqpjobs.worker.command import collect_less
{own}
collect_less()
print(gc.get_threshold()[0] if gc.isenabled() else "off", gc.get_freeze_count() > 1000)
"""
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert told.stdout.split() == [wanted, "True"]
