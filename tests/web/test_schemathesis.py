"""Schemathesis finds nothing in what this many seconds reach; `make schemathesis` looks longer."""

from __future__ import annotations

from pathlib import Path

from pydantic import SecretStr

from amqpjobs.settings import Settings
from tests.broker.bench import running
from tests.conftest import Eventually
from tests.web.conftest import serving
from tests.web.examining import TOKEN, authorized, examine

SECONDS = 12
SEED = "1"
"""The same requests each time: what others find belongs to `make schemathesis`, not to whoever runs the suite next."""


async def test_schemathesis_finds_nothing(settings: Settings, tmp_path: Path, eventually: Eventually) -> None:
    """All its checks, each operation in turn, on the real application with a token, a real broker and a scheduler."""
    guarded = settings.model_copy(update={"web_token": SecretStr(TOKEN)})
    async with serving(guarded) as served, running(settings) as scheduler:
        await eventually(lambda: scheduler.tracked is not None and scheduler.tracked.leading)
        more = (*authorized(TOKEN), "--seed", SEED)
        code, told = await examine(served.address, tmp_path, *more, seconds=SECONDS, examples=1)
    assert code == 0, told
    assert "Tested" in told
