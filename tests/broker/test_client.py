"""The clients against a real broker: what arrives, what is refused, and how long a call may take."""

from __future__ import annotations

import asyncio
import datetime
import multiprocessing
import os
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from amqpjobs import sync
from amqpjobs.broker.node import PrivateNode
from amqpjobs.client import Client
from amqpjobs.jobs import Registry
from amqpjobs.model import names, text
from amqpjobs.settings import Settings
from amqpjobs.streams import topology
from amqpjobs.streams.errors import BrokerUnavailable, ConfirmTimeout
from amqpjobs.streams.link import Link
from amqpjobs.streams.port import Incoming
from amqpjobs.sync import SyncClient
from tests.broker.nodes import block, unblock
from tests.broker.reading import entries, read_all, take_all
from tests.patience import PATIENCE

Eventually = Callable[..., Awaitable[Any]]


async def taken(link: Link, queue: str, count: int = 1) -> list[Incoming]:
    return await take_all(await link.connection(timeout=PATIENCE), names.broker_queue(queue), count)


async def scheduled(link: Link) -> list[dict[str, Any]]:
    connection = await link.connection(timeout=PATIENCE)
    await topology.ensure(connection, link.settings)
    return [entry for message in await read_all(connection, names.SCHEDULED) for entry in entries(message)]


async def test_a_job_arrives_on_its_queue_whole(client: Client, link: Link) -> None:
    before = time.time()
    jid = await client.enqueue("SendEmailJob", "user@example.com", "Hello!", queue="critical", retry=3, priority=7)
    [message] = await taken(link, "critical")
    job = text.parse(message.body)
    assert before <= job.pop("enqueued_at") == job.pop("created_at") <= time.time()
    assert job == {
        "jid": jid,
        "class": "SendEmailJob",
        "args": ["user@example.com", "Hello!"],
        "queue": "critical",
        "retry": 3,
        "retry_count": 0,
        "priority": 7,
    }
    assert (message.exchange, message.routing_key) == (names.JOBS_EXCHANGE, "critical")
    assert (message.properties.message_id, message.properties.priority) == (jid, 7)
    assert message.properties.content_type == "application/json"


async def test_jobs_are_persistent(client: Client, broker: Any, vhost: str) -> None:
    await client.enqueue("X")
    with broker.api() as api:
        body = {"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto"}
        [found] = api.post(f"/queues/{vhost}/queue.default/get", json=body).raise_for_status().json()
    assert found["properties"]["delivery_mode"] == 2


async def test_many_jobs_at_once_for_an_unknown_queue_all_arrive_once(client: Client, link: Link) -> None:
    jids = await asyncio.gather(*(client.enqueue("X", n, queue="new.queue") for n in range(300)))
    messages = await taken(link, "new.queue", 300)
    assert sorted(text.parse(message.body)["jid"] for message in messages) == sorted(jids)
    assert len(set(jids)) == 300


async def test_nothing_is_sent_when_arguments_or_options_are_wrong(client: Client, link: Link) -> None:
    with pytest.raises(TypeError, match=r"X: argument 0 is a datetime"):
        await client.enqueue("X", datetime.datetime.now())
    with pytest.raises(ValueError, match=r"'a/b' cannot be a queue's name: 1 to 200"):
        await client.enqueue("X", queue="a/b")
    with pytest.raises(TypeError, match=r"not a delay|number of seconds"):
        await client.enqueue_in("soon", "X")  # type: ignore[arg-type]
    jid = await client.enqueue("Good")
    [message] = await taken(link, "default")
    assert text.parse(message.body)["jid"] == jid
    assert await scheduled(link) == []


async def test_enqueue_in_and_at_append_scheduled_entries(client: Client, link: Link) -> None:
    now = time.time()
    first = await client.enqueue_in(60, "X", 1, queue="low")
    second = await client.enqueue_in(datetime.timedelta(hours=1), "X", 2)
    third = await client.enqueue_at(
        datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=20), "X", kwargs={"a": 3}
    )
    found = {entry["jid"]: entry for entry in await scheduled(link)}
    assert set(found) == {first, second, third}
    assert found[first]["type"] == "scheduled_job"
    assert found[first]["job"]["jid"] == first
    assert (found[first]["job"]["queue"], found[third]["job"]["args"]) == ("low", {"a": 3})
    for jid, after in ((first, 60), (second, 3600), (third, 20 * 86400)):
        assert -0.01 < found[jid]["scheduled_at"] - now - after < PATIENCE / 2


@pytest.mark.parametrize("when", [0, 946684800, -1, -1e12, "an hour ago"])
async def test_the_past_means_now(client: Client, link: Link, when: Any) -> None:
    await client.enqueue_at(time.time() - 3600 if isinstance(when, str) else when, "X")
    assert len(await taken(link, "default")) == 1
    assert await scheduled(link) == []


async def test_a_job_may_be_due_long_after_its_stream_forgets(settings: Settings, link: Link) -> None:
    """The scheduler writes it again in time: tests/broker/test_retention.py."""
    short = settings.model_copy(update={"streams": {names.SCHEDULED: {"max_age": "100s"}}})
    async with Client(short) as client:
        await client.enqueue_in(400 * 86400, "X")
    assert len(await scheduled(link)) == 1


async def test_without_a_broker_a_call_ends_in_time_and_says_why(settings: Settings) -> None:
    away = settings.model_copy(update={"url": "amqp://guest:secret@127.0.0.1:9/", "publish_timeout": 0.7})
    async with Client(away) as client:
        for call in (client.enqueue("X"), client.enqueue_in(60, "X")):
            began = time.monotonic()
            with pytest.raises(BrokerUnavailable, match=r"127\.0\.0\.1:9") as caught:
                await call
            assert 0.6 < time.monotonic() - began < PATIENCE
            assert "secret" not in str(caught.value)


async def test_the_broker_away_for_a_while(node: PrivateNode, tmp_path: Path, eventually: Eventually) -> None:
    settings = Settings(url=node.url, state_dir=tmp_path, publish_timeout=1.0)
    async with Client(settings) as client:
        await client.enqueue("X", 1)
        await node.stop()
        with pytest.raises((BrokerUnavailable, ConfirmTimeout)):
            await client.enqueue("X", 2)
        patient = Client(settings.model_copy(update={"publish_timeout": 60.0}))
        late = asyncio.create_task(patient.enqueue("X", 3))
        await node.start()
        await late
        await patient.close()
        await eventually(lambda: client._link.state == "up")  # a call's second may be shorter than its pause
        await client.enqueue("X", 4)
    link = client._link
    await link.start()
    connection = await link.connection(timeout=PATIENCE)
    found = await take_all(connection, names.broker_queue("default"), 3)
    assert [text.parse(message.body)["args"] for message in found] == [[1], [3], [4]]
    await link.stop()


async def test_a_started_client_may_be_closed_twice_and_used_again(client: Client, link: Link) -> None:
    await client.enqueue("X")
    await client.close()
    await client.close()
    await client.enqueue("X")
    assert len(await taken(link, "default", 2)) == 2


async def test_the_sync_client_from_many_threads(settings: Settings, link: Link) -> None:
    def work(client: SyncClient) -> list[str]:
        with ThreadPoolExecutor(16) as pool:
            return list(pool.map(lambda n: client.enqueue("X", n), range(200)))

    with SyncClient(settings) as client:
        jids = await asyncio.to_thread(work, client)
        scheduled_jid = await asyncio.to_thread(client.enqueue_in, 60, "Y")
    messages = await taken(link, "default", 200)
    assert sorted(text.parse(message.body)["jid"] for message in messages) == sorted(jids)
    assert [entry["jid"] for entry in await scheduled(link)] == [scheduled_jid]
    assert not [thread for thread in threading.enumerate() if thread.name == "amqpjobs-client"]


async def test_the_sync_client_raises_what_the_async_one_does(settings: Settings) -> None:
    away = settings.model_copy(update={"url": "amqp://guest:guest@127.0.0.1:9/", "publish_timeout": 0.3})
    with SyncClient(away) as client:
        with pytest.raises(TypeError, match="argument 0"):
            await asyncio.to_thread(client.enqueue, "X", object())
        with pytest.raises(BrokerUnavailable):
            await asyncio.to_thread(client.enqueue, "X")


def test_the_sync_client_after_a_fork(settings: Settings) -> None:
    with SyncClient(settings) as client:
        mine = client.enqueue("Parent")
        context = multiprocessing.get_context("fork")
        results: Any = context.SimpleQueue()
        children = [
            context.Process(target=lambda: results.put((os.getpid(), client.enqueue("Child")))) for _ in range(3)
        ]
        for child in children:
            child.start()
        for child in children:
            child.join(PATIENCE)
        assert [child.exitcode for child in children] == [0, 0, 0]
        jids = {results.get()[1] for _ in children}
        again = client.enqueue("Parent")
    assert len(jids | {mine, again}) == 5
    found = asyncio.run(_jids(settings, 5))
    assert found == jids | {mine, again}


async def _jids(settings: Settings, count: int) -> set[str]:
    client = Client(settings)
    await client.start()
    messages = await take_all(await client._link.connection(timeout=PATIENCE), names.broker_queue("default"), count)
    await client.close()
    return {text.parse(message.body)["jid"] for message in messages}


async def test_job_functions_enqueue_through_the_process_client(settings: Settings, link: Link) -> None:
    jobs = Registry()

    @jobs.job(queue="mail", retry=1)
    def send(address: str, subject: str = "") -> None: ...

    sync.configure(settings)
    try:
        first = await asyncio.to_thread(send.enqueue, "a@b", subject="Hi")
        second = await send.enqueue_async("c@d")
        third = await send.options(queue="low", priority=9, jid="mine").enqueue_async("e@f")
        later = await send.options(delay=60).enqueue_async("g@h")
    finally:
        sync.default_client().close()
    sent = [text.parse(message.body) for message in await taken(link, "mail", 2)]
    assert [(job["jid"], job["args"], job["retry"]) for job in sent] == [
        (first, {"address": "a@b", "subject": "Hi"}, 1),
        (second, ["c@d"], 1),
    ]
    [low] = [text.parse(message.body) for message in await taken(link, "low")]
    assert (low["jid"], low["priority"], third) == ("mine", 9, "mine")
    [entry] = await scheduled(link)
    assert (entry["jid"], entry["job"]["queue"]) == (later, "mail")


def test_a_script_that_only_enqueues_ends_by_itself(settings: Settings, tmp_path: Path) -> None:
    """The connection is closed at exit; no thread keeps the process, nothing is printed."""
    (tmp_path / "script.py").write_text("from amqpjobs import job\n@job\ndef f(): ...\nprint(f.enqueue())\n")
    environment = {**os.environ, "AMQPJOBS_URL": settings.url, "PYTHONPATH": str(Path.cwd())}
    done = subprocess.run(
        [sys.executable, "-W", "default", "script.py"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.strip()) == 24


async def test_a_blocked_broker_is_a_clear_error_in_time(
    node: PrivateNode, tmp_path: Path, eventually: Eventually
) -> None:
    settings = Settings(url=node.url, state_dir=tmp_path, publish_timeout=1.5)
    async with Client(settings) as client:
        await client.enqueue("X", 1)
        await block(node)
        await eventually(lambda: blocked_now(client))
        began = time.monotonic()
        with pytest.raises((BrokerUnavailable, ConfirmTimeout), match=r"alarm|confirm"):
            await client.enqueue("X", 2)
        assert time.monotonic() - began < PATIENCE
        await unblock(node)
        await eventually(lambda: client._link.blocked is None)
        await client.enqueue("X", 3)


async def blocked_now(client: Client) -> bool:
    """The alarm reaches a connection with its first publish."""
    try:
        await client.enqueue("Probe")
    except (BrokerUnavailable, ConfirmTimeout):
        return True
    return False
