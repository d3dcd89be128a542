"""Nothing published is lost: keys without a queue, keys that can have none, and what a worker rejects."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import pytest

from amqpjobs.broker.ports import free_ports
from amqpjobs.clock import SystemClock
from amqpjobs.model import names
from amqpjobs.scheduler import unrouted
from amqpjobs.scheduler.app import Scheduler
from amqpjobs.settings import Settings
from amqpjobs.streams import policies, topology
from amqpjobs.streams.errors import Unroutable
from amqpjobs.streams.link import Link
from amqpjobs.streams.port import Incoming, Outgoing, Properties
from amqpjobs.web.items import item
from tests.broker.conftest import StreamWatch, Watches
from tests.broker.reading import read_all, take_all
from tests.conftest import Broker, Eventually
from tests.patience import PATIENCE


@pytest.fixture
async def scheduler(settings: Settings, link: Link) -> AsyncIterator[Scheduler]:
    """A scheduler that leads, its policies set."""
    started = Scheduler(settings, SystemClock())
    await started.start()
    yield started
    await started.stop()


@pytest.fixture
async def without_api(settings: Settings) -> Settings:
    """The same virtual host, its management API out of reach."""
    [port] = free_ports(1)
    return settings.model_copy(update={"management_url": f"http://127.0.0.1:{port}"})


async def publish(link: Link, key: str, body: bytes, *, mandatory: bool = False, **properties: Any) -> None:
    """As a foreign producer does that asks for no return."""
    publisher = await (await link.connection()).publisher()
    await publisher.publish(Outgoing(body, names.JOBS_EXCHANGE, key, Properties(**properties)), mandatory=mandatory)
    await publisher.close()


async def buried(watch: StreamWatch, count: int, eventually: Eventually) -> list[dict[str, Any]]:
    """The dead records, once there are so many: control entries of the leader stand between them."""

    def found() -> list[dict[str, Any]]:
        return [each for each in watch.entries if each.get("type") == "dead_job"]

    await eventually(lambda: len(found()) >= count)
    return found()


def policy_of(broker: Broker, vhost: str, kind: str, name: str) -> Any:
    with broker.api() as api:
        return api.get(f"/{kind}/{vhost}/{quote(name, safe='')}").raise_for_status().json().get("policy")


async def in_force(broker: Broker, vhost: str, eventually: Eventually) -> None:
    """Policies are applied a moment after they are set."""
    await eventually(lambda: policy_of(broker, vhost, "exchanges", names.JOBS_EXCHANGE) == policies.UNROUTED.name)


async def test_a_job_for_a_queue_that_does_not_exist_reaches_it_as_it_was(
    scheduler: Scheduler, link: Link, broker: Broker, vhost: str, eventually: Eventually
) -> None:
    await in_force(broker, vhost, eventually)
    bodies = [b'{"class":"C", "n": 12345678901234567890123, "jid":"j%d"}' % n for n in range(300)]
    await asyncio.gather(
        *(publish(link, "fresh.one", body, message_id=f"j{n}", priority=7) for n, body in enumerate(bodies))
    )
    connection = await link.connection()
    await eventually(lambda: connection.passive("queue.fresh.one"))
    found = await take_all(connection, "queue.fresh.one", 300)
    assert sorted(each.body for each in found) == sorted(bodies)
    assert {each.properties.priority for each in found} == {7}
    assert {each.properties.message_id for each in found} == {f"j{n}" for n in range(300)}
    await publish(link, "fresh.one", b"routed now", mandatory=True)
    assert [each.body for each in await take_all(connection, "queue.fresh.one", 1)] == [b"routed now"]
    state = await connection.passive(names.UNROUTED)
    assert state is not None
    assert state.ready == 0


async def test_a_key_that_can_be_no_queue_is_a_dead_record_with_all_of_it(
    scheduler: Scheduler, link: Link, broker: Broker, vhost: str, watch: Watches, eventually: Eventually
) -> None:
    await in_force(broker, vhost, eventually)
    dead = await watch(names.DEAD)
    whole = b'{"jid": "w1", "class": "C", "args": [1], "queue": "default", "dead": false}'
    for key, body in (("a/b", b'{"jid":"j1","class":"C"}'), ("", b"\xff\xfe"), ("x" * 201, whole)):
        await publish(link, key, body)
    found = {each["jid"]: each for each in await buried(dead, 3, eventually)}
    assert {each["error_class"] for each in found.values()} == {"Unroutable"}
    assert found["j1"]["raw"] == '{"jid":"j1","class":"C"}'
    assert found["j1"]["class"] == "C"
    assert "'a/b'" in found["j1"]["error_message"]
    assert found["w1"]["job"] == json.loads(whole)
    [other] = [each for name, each in found.items() if name not in ("j1", "w1")]
    assert other["raw_base64"] == "//4="


async def test_beyond_the_limit_jobs_for_further_keys_die_and_known_ones_are_delivered(
    scheduler: Scheduler, link: Link, broker: Broker, vhost: str, watch: Watches, eventually: Eventually
) -> None:
    scheduler.unrouted.most_queues = 2
    await in_force(broker, vhost, eventually)
    dead = await watch(names.DEAD)
    connection = await link.connection()
    for n in range(2):
        await publish(link, f"k{n}", b'{"class":"C","jid":"first"}')
        await eventually(lambda n=n: connection.passive(f"queue.k{n}"))
    await publish(link, "k2", b'{"class":"C","jid":"beyond"}')
    await publish(link, "k1", b'{"class":"C","jid":"known"}')
    [record] = await buried(dead, 1, eventually)
    assert (record["jid"], record["error_class"], record["job"]["queue"]) == ("beyond", "Unroutable", "k2")
    assert [each.body for each in await take_all(connection, "queue.k1", 2)][1] == b'{"class":"C","jid":"known"}'
    assert await connection.passive("queue.k2") is None


async def test_a_key_is_tried_once_a_minute_and_its_job_dies_after_two(
    link: Link, settings: Settings, watch: Watches, monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    """A queue that is deleted as soon as it is declared."""
    tried: list[float] = []
    declare = topology.ensure_queue

    async def declared_and_deleted(connection: Any, given: Settings, name: str) -> list[str]:
        tried.append(asyncio.get_running_loop().time())
        remarks = await declare(connection, given, name)
        await connection.delete_queue(names.broker_queue(name))
        return remarks

    dead = await watch(names.DEAD)
    monkeypatch.setattr(unrouted, "ATTEMPT_EVERY", 1.5)
    monkeypatch.setattr(topology, "ensure_queue", declared_and_deleted)
    started = Scheduler(settings, SystemClock())
    await started.start()
    try:
        publisher = await (await link.connection()).publisher()
        await publisher.publish(Outgoing(b'{"class":"C","jid":"j1"}', names.UNROUTED, "gone"))
        found = await buried(dead, 1, eventually)
    finally:
        await started.stop()
    assert [each["jid"] for each in found] == ["j1"]
    assert "queue" in found[0]["error_message"]
    assert len(tried) == 2
    assert tried[1] - tried[0] >= 1.5


async def test_what_a_foreign_worker_rejects_is_in_the_dead_set_and_says_so(
    scheduler: Scheduler, link: Link, settings: Settings, broker: Broker, vhost: str, eventually: Eventually
) -> None:
    connection = await link.connection()
    await topology.ensure_queue(connection, settings, "default")
    # LavinMQ's queues take a delivery limit, so there the one that goes first holds all of them.
    ours = policies.DEAD if settings.queue_type == "classic" and not broker.lavinmq else policies.QUORUM
    await eventually(lambda: policy_of(broker, vhost, "queues", "queue.default") == ours.name)
    bodies = [b'{"jid":"r1","class":"C","args":[1]}', b"[1, 2]", b'{"jid":"r3","type":"command"}']
    for body in bodies:
        await publish(link, "default", body, mandatory=True)
    left = len(bodies)
    rejected = asyncio.Event()

    def reject(message: Incoming) -> None:
        nonlocal left
        consumer.nack(message.tag, requeue=False)
        left -= 1
        if not left:
            rejected.set()

    consumer = await connection.consume("queue.default", reject, prefetch=10)
    async with asyncio.timeout(PATIENCE):
        await rejected.wait()
    dead = next(leader for leader in scheduler.leaders if leader.view.stream == names.DEAD)

    async def rows() -> Any:
        found = await dead.follower.query(lambda: dead.view.page(10, 0, "-at"))
        return found if len(found) == 3 else None

    found = await eventually(rows)
    assert {row.error_class for row in found} == {"Rejected"}
    assert {row.queue for row in found} == {"default"}
    assert all("queue default" in row.error_message for row in found)
    assert {"r1", "r3"} < {row.jid for row in found}
    assert next(row.cls for row in found if row.jid == "r1") == "C"
    raw = [message.body for message in await read_all(connection, names.DEAD)]
    assert set(bodies) <= set(raw)
    shown = {row.jid: item(names.DEAD, row) for row in found}
    assert (shown["r1"]["error_class"], shown["r1"]["class"], shown["r1"]["args"]) == ("Rejected", "C", [1])
    assert {each["error_class"] for each in shown.values()} == {"Rejected"}


async def test_without_the_api_our_own_client_delivers_all_the_same(
    without_api: Settings, link: Link, caplog: pytest.LogCaptureFixture, eventually: Eventually
) -> None:
    started = Scheduler(without_api, SystemClock())
    await started.start()
    try:
        connection = await link.connection()
        await eventually(lambda: any("policies" in each for each in caplog.messages))
        [line] = [each for each in caplog.messages if "policies" in each]
        assert "rabbitmqctl set_policy" in line
        assert "jobs.unrouted" in line
        assert "jobs.dead" in line
        assert "\n" not in line
        with pytest.raises(Unroutable):
            await publish(link, "nowhere", b"{}", mandatory=True)
        publisher = await connection.publisher()
        await publisher.publish(Outgoing(b'{"class":"C"}', names.UNROUTED, "somewhere"))
        await eventually(lambda: connection.passive("queue.somewhere"))
        assert [each.body for each in await take_all(connection, "queue.somewhere", 1)] == [b'{"class":"C"}']
    finally:
        await started.stop()


# Policies of others.


def put_policy(broker: Broker, vhost: str, name: str, **policy: Any) -> None:
    with broker.api() as api:
        api.put(f"/policies/{vhost}/{name}", json=policy).raise_for_status()


def policies_there(broker: Broker, vhost: str) -> dict[str, Any]:
    with broker.api() as api:
        return {each["name"]: each for each in api.get(f"/policies/{vhost}").raise_for_status().json()}


async def test_a_policy_of_others_is_never_displaced_and_what_it_lacks_is_said(
    link: Link, settings: Settings, broker: Broker, vhost: str, eventually: Eventually
) -> None:
    connection = await link.connection()
    await topology.ensure(connection, settings)
    for queue in ("default", "mail"):
        await topology.ensure_queue(connection, settings, queue)
    theirs = {"pattern": ".*", "apply-to": "all", "priority": 0, "definition": {"max-length": 100000}}
    put_policy(broker, vhost, "theirs", **theirs)
    await eventually(lambda: policy_of(broker, vhost, "queues", "queue.mail") == "theirs")
    remarks = await policies.ensure(settings)
    assert len(remarks) == 2
    assert "jobs.direct" in remarks[0]
    assert '"alternate-exchange": "jobs.unrouted"' in remarks[0]
    assert "queue.default and 1 more" in remarks[1]
    assert '"max-length": 100000' in remarks[1]
    assert not any("\n" in remark for remark in remarks)
    assert policy_of(broker, vhost, "queues", "queue.default") == "theirs"
    assert policies_there(broker, vhost)["theirs"]["definition"] == {"max-length": 100000}
    merged = {"max-length": 100000, "alternate-exchange": "jobs.unrouted", "dead-letter-exchange": "jobs.dead"}
    put_policy(broker, vhost, "theirs", **(theirs | {"definition": merged}))
    assert await policies.ensure(settings) == []


async def test_ours_is_merged_into_and_keeps_what_an_operator_did_to_it(
    link: Link, settings: Settings, broker: Broker, vhost: str
) -> None:
    await topology.ensure(await link.connection(), settings)
    changed = {"max-length": 5, "dead-letter-exchange": "theirs"}
    widened = {"pattern": "^jobs\\.", "apply-to": "all", "priority": 1, "definition": {}}
    put_policy(
        broker, vhost, policies.DEAD.name,
        **{"pattern": "^queue\\.d", "apply-to": "queues", "priority": 3, "definition": changed},
    )  # fmt: skip
    put_policy(broker, vhost, policies.UNROUTED.name, **(widened | {"definition": {"max-length": 7}}))
    assert await policies.ensure(settings) == []
    there = policies_there(broker, vhost)
    ours = there[policies.DEAD.name]
    assert ours["definition"] == changed
    assert (ours["pattern"], ours["priority"]) == ("^queue\\.d", 3)
    merged = there[policies.UNROUTED.name]
    assert merged["definition"] == {"max-length": 7, "alternate-exchange": "jobs.unrouted"}
    assert (merged["pattern"], merged["priority"]) == ("^jobs\\.", 1)
    assert there[policies.QUORUM.name]["priority"] < 0
    assert there[policies.QUORUM.name]["definition"]["delivery-limit"] == topology.DELIVERY_LIMIT


async def test_a_quorum_queue_of_others_keeps_jobs_that_come_back_often(
    link: Link, settings: Settings, broker: Broker, vhost: str, eventually: Eventually
) -> None:
    connection = await link.connection()
    await topology.ensure(connection, settings)
    assert await policies.ensure(settings) == []
    await connection.declare_queue("queue.replicated", {"x-queue-type": "quorum"})
    await topology.ensure_queue(connection, settings, "replicated")
    await eventually(lambda: policy_of(broker, vhost, "queues", "queue.replicated") == policies.QUORUM.name)
    await publish(link, "replicated", b"a job", mandatory=True)
    came: list[Incoming] = []

    def give_back(message: Incoming) -> None:
        came.append(message)
        if len(came) < 30:
            consumer.nack(message.tag, requeue=True)

    consumer = await connection.consume("queue.replicated", give_back, prefetch=1)
    await eventually(lambda: len(came) == 30)


async def test_a_user_who_may_set_no_policies_is_told_what_to_set(
    link: Link, settings: Settings, broker: Broker, vhost: str
) -> None:
    await topology.ensure(await link.connection(), settings)
    user = "plain-" + vhost
    with broker.api() as api:
        api.put(f"/users/{user}", json={"password": "p@:/?#%é", "tags": "management"}).raise_for_status()
        rights = {"configure": ".*", "write": ".*", "read": ".*"}
        api.put(f"/permissions/{vhost}/{user}", json=rights).raise_for_status()
    try:
        url = settings.url.replace("guest:guest", f"{user}:{quote('p@:/?#%é', safe='')}")
        [remark] = await policies.ensure(settings.model_copy(update={"url": url}))
    finally:
        with broker.api() as api:
            api.delete(f"/users/{user}")
    assert "refuses the user" in remark
    assert f"rabbitmqctl set_policy -p {vhost} " in remark
    assert "p@" not in remark
