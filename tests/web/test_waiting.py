"""The jobs that wait in a queue are listed from the enqueue log, and none is taken out of its queue for it."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from playwright.async_api import Page, expect

from amqpjobs.batch import Call
from amqpjobs.client import Client
from amqpjobs.model import names
from amqpjobs.settings import Settings
from amqpjobs.streams import recent, topology
from amqpjobs.streams.link import Link
from amqpjobs.streams.port import Outgoing
from tests.web import entries
from tests.web.conftest import Dashboard, Publish

Eventually = Callable[..., Awaitable[Any]]
PAYLOAD = "<img src=x onerror=alert(1)>"


async def waiting(dashboard: Dashboard, queue: str) -> dict[str, Any]:
    found: dict[str, Any] = (await dashboard.get(f"/api/job-queues/{queue}/jobs")).raise_for_status().json()
    return found | {"jobs": [each for each in found["jobs"] if each["state"] == "waiting"]}


async def test_waiting_jobs_are_listed_and_stay_where_they_are(
    dashboard: Dashboard, settings: Settings, publish: Publish, page: Page, eventually: Eventually
) -> None:
    async with Client(settings) as client:
        await client.enqueue("Silent", queue="mail")

    async def known() -> bool:
        return bool((await dashboard.figures())["queues"].get("mail", {}).get("ready") == 1)

    await eventually(known)
    told = await waiting(dashboard, "mail")
    assert (told["waiting_listed"], told["jobs"]) == (False, [])
    assert "AMQPJOBS_ENQUEUE_LOG=1" in told["why"]
    await page.goto(f"{dashboard.address}/job-queues/mail")
    await expect(page.locator("#why")).to_contain_text("AMQPJOBS_ENQUEUE_LOG=1")

    async with Client(settings.model_copy(update={"enqueue_log": True})) as client:
        calls: list[Call] = [(f"Report{n}", [PAYLOAD, n], {"queue": "mail", "jid": f"j{n}"}) for n in range(6)]
        await client.enqueue_many([*calls, ("Elsewhere", [], {"queue": "other"})])
    # One of them is said to run, and one to have run: workers hold them, or held them, and they wait no more.
    running = [{"jid": "j0", "class": "Report0", "queue": "mail", "started_at": 1.0}]
    await publish(names.HEARTBEATS, entries.heartbeat("n", queues=["mail"], running=running))
    await publish(names.METRICS, entries.metric(jid="j1", queue="mail"))

    async def listed() -> bool:
        return [each["jid"] for each in (await waiting(dashboard, "mail"))["jobs"]] == ["j2", "j3", "j4", "j5"]

    await eventually(listed)
    told = await waiting(dashboard, "mail")
    assert told["waiting_listed"]
    assert "4 of the 7 jobs that wait are listed" in told["why"]
    assert told["jobs"][0]["args"] == f'["{PAYLOAD}",2]'
    await page.goto(f"{dashboard.address}/job-queues/mail")
    await expect(page.locator("#waiting tbody tr")).to_have_count(4)
    await expect(page.locator("#waiting tbody tr").first).to_contain_text(PAYLOAD)
    await expect(page.locator("#why")).to_contain_text("4 of the 7")

    async def all_there() -> bool:
        return bool((await dashboard.figures())["queues"]["mail"]["ready"] == 7)

    await eventually(all_there)


async def test_jobs_of_any_producer_are_listed_where_the_broker_puts_them_on_record(
    dashboard: Dashboard, settings: Settings, link: Link, eventually: Eventually
) -> None:
    bound = settings.model_copy(update={"enqueue_log": "bound"})
    connection = await link.connection()
    if await topology.ensure(connection, bound):
        pytest.skip("RabbitMQ only")
    for queue in ("mail", "other"):
        await topology.ensure_queue(connection, bound, queue)
    publisher = await connection.publisher()
    for jid, queue, count in (("first", "mail", 0), ("elsewhere", "other", 0), ("retried", "mail", 3)):
        job = {"class": "Report", "jid": jid, "args": [count], "retry_count": count, "enqueued_at": time.time()}
        await publisher.publish(Outgoing(json.dumps(job).encode(), names.JOBS_EXCHANGE, queue))
    for body in (b"{", b'{"class": "WithoutJid", "enqueued_at": 1767268800}'):
        await publisher.publish(Outgoing(body, names.JOBS_EXCHANGE, "mail"))
    await publisher.close()

    async def listed() -> bool:
        if "mail" not in (await dashboard.figures())["queues"]:
            return False
        told = await waiting(dashboard, "mail")
        found = [(each["jid"], each["class"], each["args"]) for each in told["jobs"]]
        return found == [("first", "Report", "[0]"), ("retried", "Report", "[3]")]

    await eventually(listed)
    assert "2 of the 4 jobs that wait are listed" in (await waiting(dashboard, "mail"))["why"]


async def test_the_newest_messages_come_in_pieces_backwards(link: Link, settings: Settings) -> None:
    connection = await link.connection()
    await topology.ensure(connection, settings.model_copy(update={"enqueue_log": True}))
    found = [piece async for piece in recent.pieces(connection, names.ENQUEUED, 2000)]
    assert found == []
    publisher = await connection.publisher()
    for n in range(1700):
        await publisher.publish(Outgoing(str(n).encode(), "", names.ENQUEUED))
    await publisher.close()
    found = [piece async for piece in recent.pieces(connection, names.ENQUEUED, 1600)]
    assert [len(piece) for piece in found] == [500, 1000, 100]
    bodies = [int(message.body) for piece in reversed(found) for message in piece]
    assert bodies == list(range(100, 1700))
