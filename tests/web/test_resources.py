"""Every address has exactly the methods that the description gives it, whatever a jid in it looks like."""

from __future__ import annotations

import re
from pathlib import Path

import httpx
import pytest

from amqpjobs.model.tracked_durations import seconds
from amqpjobs.model.tracked_settings import MOST_SECONDS
from amqpjobs.settings import Settings
from amqpjobs.web import schemas
from amqpjobs.web.app import create_app
from amqpjobs.web.resources import ordered

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")


@pytest.mark.parametrize("jid", ["7", "a/b", "a%2Fb", "a/b/c", "..%2F"])
async def test_a_method_that_there_is_none_of_is_refused_with_those_that_there_are(tmp_path: Path, jid: str) -> None:
    app = create_app(Settings(state_dir=tmp_path))
    wire = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=wire, base_url="http://127.0.0.1") as client:
        for path, described in app.openapi()["paths"].items():
            there = {method.upper() for method in described}
            several = re.fullmatch(r"/api/(jobs|scheduled-jobs|retries|dead-jobs|processes)/.*", path)
            address = re.sub(r"\{[^}]*\}", jid if several else "7", path)
            for method in set(METHODS) - there:
                answer = await client.request(method, address)
                assert (answer.status_code, answer.headers["allow"]) == (405, ", ".join(sorted(there))), address
                assert answer.headers["content-type"] == "application/problem+json"


async def test_of_addresses_that_match_the_most_exact_one_is_meant(tmp_path: Path) -> None:
    app = create_app(Settings(state_dir=tmp_path))
    wire = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=wire, base_url="http://127.0.0.1") as client:
        for method, address, allowed in (
            ("DELETE", "/api/dead-jobs/j1/retry", "POST"),  # not the job `j1/retry`
            ("GET", "/api/jobs/7/beat", "POST"),
            ("GET", "/api/jobs/take", "POST"),
            ("POST", "/api/jobs/7", "DELETE, GET, PATCH"),
        ):
            answer = await client.request(method, address)
            assert (answer.status_code, answer.headers["allow"]) == (405, allowed), address


def test_no_address_stands_twice_under_different_names(tmp_path: Path) -> None:
    app = create_app(Settings(state_dir=tmp_path))
    plain = [re.sub(r"\{[^}]*\}", "{}", path) for path in app.openapi()["paths"]]
    assert len(plain) == len(set(plain)) > 30
    assert ordered([]) == []


def test_the_longest_duration_that_the_description_allows_is_taken() -> None:
    pattern = schemas.OCYPOD_QUEUE["properties"]["timeout"]["pattern"]
    longest = "999w9999d99999h999999m99999999s"
    assert re.match(pattern, longest)
    assert not re.match(pattern, "1" + longest)
    assert seconds(longest) <= MOST_SECONDS
