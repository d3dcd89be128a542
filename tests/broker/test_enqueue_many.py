"""Many jobs in one call: all confirmed, in order, and a failure says which the broker has."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from amqpjobs import PartlyEnqueued, batch
from amqpjobs.client import Client
from amqpjobs.jobs import Registry
from amqpjobs.settings import Settings
from amqpjobs.streams.errors import BrokerError, BrokerUnavailable, TooLarge
from amqpjobs.streams.link import Link
from amqpjobs.streams.port import Outgoing
from amqpjobs.sync import SyncClient
from tests.broker.reading import take_all


async def taken(link: Link, queue: str, count: int) -> list[dict[str, Any]]:
    return [json.loads(message.body) for message in await take_all(await link.connection(), f"queue.{queue}", count)]


async def test_each_form_of_a_call(client: Client, link: Link) -> None:
    jobs = Registry()

    @jobs.job(queue="low", priority=3)
    def resize(image: str, width: int = 100) -> None:
        pass

    jids = await client.enqueue_many(
        [
            "Rebuild",
            ("SendEmail", ["a@example.com", 7]),
            ("SendEmail", {"to": "b@example.com"}),
            ("SendEmail", (), {"jid": "mine", "retry": 3}),
            (resize, ["x.png"]),
        ]
    )
    assert jids[3] == "mine"
    found = {job["jid"]: job for job in await taken(link, "default", 4) + await taken(link, "low", 1)}
    assert [(found[jid]["class"], found[jid]["args"]) for jid in jids[:4]] == [
        ("Rebuild", []),
        ("SendEmail", ["a@example.com", 7]),
        ("SendEmail", {"to": "b@example.com"}),
        ("SendEmail", []),
    ]
    assert found["mine"]["retry"] == 3
    assert (found[jids[4]]["queue"], found[jids[4]]["priority"]) == ("low", 3)


async def test_windows_come_one_after_the_other_on_a_queue_that_is_new(
    client: Client, link: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "WINDOW", 30)
    read = 0

    def calls() -> Iterator[batch.Call]:
        nonlocal read
        for n in range(250):
            read += 1
            yield ("X", [n])

    jids = await client.enqueue_many(calls())
    assert read == len(set(jids)) == 250
    assert [(job["jid"], job["args"]) for job in await taken(link, "default", 250)] == [
        (jid, [n]) for n, jid in enumerate(jids)
    ]


@pytest.mark.parametrize("sync", [False, True], ids=["asyncio", "threads"])
async def test_the_last_ten_of_many_are_sent_once_the_broker_has_the_others(
    settings: Settings, link: Link, monkeypatch: pytest.MonkeyPatch, sync: bool
) -> None:
    said: list[tuple[str, int]] = []
    send = Client.send

    async def watched(client: Client, window: Sequence[Outgoing]) -> dict[int, BrokerError]:
        said.append(("sent", len(window)))
        failed = await send(client, window)
        said.append(("confirmed", len(window)))
        return failed

    monkeypatch.setattr(Client, "send", watched)
    calls: list[batch.Call] = [("X", [n]) for n in range(3000)]
    if sync:
        with SyncClient(settings) as client:
            jids = await asyncio.to_thread(client.enqueue_many, calls)
    else:
        async with Client(settings) as other:
            jids = await other.enqueue_many(calls)
    assert said[-2:] == [("sent", 10), ("confirmed", 10)]
    assert sum(count for word, count in said[:-2] if word == "confirmed") == 2990
    assert [(job["jid"], job["args"]) for job in await taken(link, "default", 3000)] == [
        (jid, [n]) for n, jid in enumerate(jids)
    ]


@pytest.mark.parametrize("bad", [7, (), ("X", "text"), ("X", [], [], []), ("X", [object()]), ("X", [], {"nope": 1})])
async def test_a_wrong_call_in_the_first_window_sends_nothing(client: Client, link: Link, bad: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        await client.enqueue_many([("X", [1]), bad])
    connection = await link.connection()
    state = await connection.passive("queue.default")
    assert state is None or state.ready == 0


async def test_a_failure_says_what_was_confirmed(client: Client, link: Link, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "WINDOW", 10)
    calls: list[batch.Call] = [("X", [n], {"jid": f"j{n}"}) for n in range(25)]
    with pytest.raises(PartlyEnqueued, match="20 jobs were enqueued, then TypeError") as caught:
        await client.enqueue_many([*calls, ("X", [object()])])
    assert caught.value.confirmed == [f"j{n}" for n in range(20)]
    assert isinstance(caught.value.__cause__, TypeError)
    assert len(await taken(link, "default", 20)) == 20

    def breaks() -> Iterator[batch.Call]:
        yield from calls[:10]
        raise LookupError("the cursor is gone")

    with pytest.raises(PartlyEnqueued, match="10 jobs were enqueued, then LookupError"):
        await client.enqueue_many(breaks())


async def test_what_the_broker_refuses_is_named_with_the_rest_confirmed(settings: Settings, link: Link) -> None:
    small = settings.model_copy(update={"max_message_bytes": 70_000})
    async with Client(small) as client:
        with pytest.raises(PartlyEnqueued) as caught:
            await client.enqueue_many([("X", [n * "x"], {"jid": f"j{n}"}) for n in (1, 80_000, 2)])
    assert caught.value.confirmed == ["j1", "j2"]
    assert list(caught.value.unconfirmed) == ["j80000"]
    assert isinstance(caught.value.unconfirmed["j80000"], TooLarge)
    assert sorted(job["jid"] for job in await taken(link, "default", 2)) == ["j1", "j2"]


@pytest.mark.parametrize("sync", [False, True], ids=["asyncio", "threads"])
async def test_when_a_window_fails_those_under_way_with_it_are_told_and_no_other_is_read(
    settings: Settings, link: Link, monkeypatch: pytest.MonkeyPatch, sync: bool
) -> None:
    monkeypatch.setattr(batch, "WINDOW", 10)
    small = settings.model_copy(update={"max_message_bytes": 70_000})
    read = 0

    def calls() -> Iterator[batch.Call]:
        nonlocal read
        for n in range(1000):
            read += 1
            yield ("X", ["x" * 80_000 if n == 15 else n], {"jid": f"j{n}"})

    with pytest.raises(PartlyEnqueued) as caught:
        if sync:
            with SyncClient(small) as client:
                await asyncio.to_thread(client.enqueue_many, calls())
        else:
            async with Client(small) as other:
                await other.enqueue_many(calls())
    begun = read - batch.LAST
    assert begun in range(20, 10 * batch.UNDER_WAY + 20 + 1)
    assert caught.value.confirmed == [f"j{n}" for n in range(begun) if n != 15]
    unconfirmed = caught.value.unconfirmed
    assert list(unconfirmed) == ["j15", *(f"j{n}" for n in range(begun, read))]
    assert {type(unconfirmed[f"j{n}"]) for n in range(begun, read)} == {BrokerUnavailable}, "read, and not sent"
    found = await taken(link, "default", begun - 1)
    assert [job["jid"] for job in found] == caught.value.confirmed


async def test_a_window_closes_at_some_mb(client: Client, link: Link, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "WINDOW_BYTES", 10_000)
    ahead = 0

    def calls() -> Iterator[batch.Call]:
        nonlocal ahead
        for n in range(60):
            ahead = n
            yield ("X", ["x" * 3000])
            if n == 40:
                raise LookupError("gone")

    with pytest.raises(PartlyEnqueued, match="40 jobs were enqueued, then LookupError"):
        await client.enqueue_many(calls())
    assert ahead == 40
    assert len(await taken(link, "default", 40)) == 40


async def test_a_cancelled_call_stops_reading_and_the_client_goes_on(client: Client, link: Link) -> None:
    read = 0

    def calls() -> Iterator[batch.Call]:
        nonlocal read
        for n in range(10**9):
            read = n
            yield ("X", [n])

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await client.enqueue_many(calls())
    before = read
    await client.enqueue("X", "last")
    assert read == before
    assert len(await taken(link, "default", 1)) == 1


async def test_the_sync_client_reads_in_the_callers_thread(settings: Settings, link: Link) -> None:
    import threading

    def work() -> tuple[set[str], list[str]]:
        threads = set()

        def calls() -> Iterator[batch.Call]:
            for n in range(30):
                threads.add(threading.current_thread().name)
                yield ("X", [n])

        with SyncClient(settings) as client:
            jids = client.enqueue_many(calls())
            client.cancel(jids[0])
            return threads, jids

    threads, jids = await asyncio.to_thread(work)
    assert all(not name.startswith("amqpjobs") for name in threads)
    assert {job["jid"] for job in await taken(link, "default", 30)} == set(jids)
