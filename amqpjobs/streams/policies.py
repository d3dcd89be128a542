"""The policies that keep what nobody takes: set through the management API where there is one.

They are policies and not arguments, so that any client may declare `jobs.direct` and its queue plainly. An object has
one policy at a time, so ours have a lower priority than any other: they never displace one. Where another one holds an
object of ours and lacks what ours would set, that is said, with the command that adds it.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from amqpjobs.addresses import AddressError, brokers
from amqpjobs.model import names
from amqpjobs.settings import Settings
from amqpjobs.streams import management
from amqpjobs.streams.management import Api, NoApi, NotThere
from amqpjobs.streams.topology import DELIVERY_LIMIT


@dataclass(frozen=True, slots=True)
class Policy:
    """One policy of ours. `key` is the setting that it is there for, `loss` what happens without it."""

    name: str
    pattern: str
    apply_to: str
    key: str
    definition: Mapping[str, Any]
    loss: str


UNROUTED = Policy(
    "amqpjobs-unrouted",
    r"^jobs\.direct$",
    "exchanges",
    "alternate-exchange",
    {"alternate-exchange": names.UNROUTED},
    "a job for a queue that does not exist is lost unless its sender asked for its return",
)
DEAD = Policy(
    "amqpjobs-dead",
    r"^queue\.",
    "queues",
    "dead-letter-exchange",
    {"dead-letter-exchange": names.DEAD_EXCHANGE},
    "a job that a worker of another make rejects is deleted",
)
QUORUM = replace(
    DEAD,
    # A quorum queue that somebody else declared gives up on a message at its 20th return by default (from 4.0), and a
    # job is returned by every worker that stops. A classic queue takes no policy at all that has a delivery limit, so
    # this is one of its own, and goes before the other.
    name="amqpjobs-dead-quorum",
    definition={**DEAD.definition, "delivery-limit": DELIVERY_LIMIT},
)
POLICIES = (DEAD, QUORUM, UNROUTED)
"""In the order of their priorities, the lowest first."""
NAMES = frozenset(policy.name for policy in POLICIES)
HIGHEST = -1


async def ensure(settings: Settings) -> list[str]:
    """Set what is missing. Returns one line for each thing that could not be set or is not as ours would have it."""
    remarks: list[str] = []
    try:
        async with management.api(settings) as api:
            there = await api.get("policies/{vhost}")
            for policy in POLICIES:
                await _put(api, policy, there)
            there = await api.get("policies/{vhost}")
            remarks += await _exchange_remarks(api, there)
            remarks += await _queue_remarks(api, there)
    except NoApi as error:
        remarks.append(_by_hand(settings, str(error)))
    return remarks


async def _put(api: Api, policy: Policy, there: Sequence[Mapping[str, Any]]) -> None:
    """Create ours, or add to it what it lacks: whatever an operator changed or added in it stays."""
    ours = next((each for each in there if each["name"] == policy.name), None)
    if ours is None:
        ours = {"definition": {}, **_fresh(policy, there)}
    merged = {**policy.definition, **ours["definition"]}
    if merged != ours["definition"]:
        kept = {name: ours[name] for name in ("pattern", "apply-to", "priority")}
        await api.put(f"policies/{{vhost}}/{policy.name}", kept | {"definition": merged})


def _fresh(policy: Policy, there: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
    """Where it applies and with which priority: below every policy of others."""
    others = [int(each["priority"]) for each in there if each["name"] not in NAMES]
    highest = min([HIGHEST, *(priority - 1 for priority in others)])
    rank = len(POLICIES) - 1 - POLICIES.index(policy)
    return {"pattern": policy.pattern, "apply-to": policy.apply_to, "priority": highest - rank}


async def _exchange_remarks(api: Api, there: Sequence[Mapping[str, Any]]) -> list[str]:
    try:
        exchange = await api.get(f"exchanges/{{vhost}}/{names.JOBS_EXCHANGE}")
    except NotThere:
        return []
    blocking = _blocking(exchange, UNROUTED, there)
    return [_displaced(api, UNROUTED, blocking, names.JOBS_EXCHANGE)] if blocking else []


async def _queue_remarks(api: Api, there: Sequence[Mapping[str, Any]]) -> list[str]:
    """One line for each policy of others that holds job queues and has no dead-letter exchange."""
    held: dict[str, list[str]] = {}
    blocking: dict[str, Mapping[str, Any]] = {}
    for queue in await api.get("queues/{vhost}", columns="name,policy,arguments"):
        if queue["name"].startswith(names.QUEUE_PREFIX) and (found := _blocking(queue, DEAD, there)):
            blocking[found["name"]] = found
            held.setdefault(found["name"], []).append(queue["name"])
    return [_displaced(api, DEAD, blocking[name], _counted(held[name])) for name in blocking]


def _blocking(thing: Mapping[str, Any], policy: Policy, there: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The policy of others that holds `thing` and lacks our key; None when all is well."""
    if (thing.get("arguments") or {}).get(f"x-{policy.key}") or (thing.get("arguments") or {}).get(policy.key):
        return None
    held_by = thing.get("policy")
    if not held_by or held_by in NAMES:
        return None
    found = next((each for each in there if each["name"] == held_by), None)
    return found if found is not None and policy.key not in found["definition"] else None


def _displaced(api: Api, policy: Policy, other: Mapping[str, Any], held: str) -> str:
    merged = {**policy.definition, **other["definition"]}
    command = _command(api.vhost, {**other, "definition": merged})
    return f"the policy {other['name']!r} holds {held} and sets no {policy.key}, so {policy.loss}; add it: {command}"


def _by_hand(settings: Settings, reason: str) -> str:
    try:
        vhost = brokers(settings.url)[0].vhost
    except AddressError as error:
        return str(error)
    losses = ", and ".join(dict.fromkeys(policy.loss for policy in reversed(POLICIES)))
    commands = " && ".join(
        _command(vhost, {"name": policy.name, "definition": policy.definition, **_fresh(policy)}) for policy in POLICIES
    )
    return f"policies cannot be seen to: {reason}. Unless they are there, {losses}; set them: {commands}"


def _command(vhost: str, policy: Mapping[str, Any]) -> str:
    """What an operator types to set it."""
    options = ["-p", vhost, f"--priority={policy['priority']}", f"--apply-to={policy.get('apply-to', 'all')}"]
    definition = json.dumps(policy["definition"])
    return shlex.join(["rabbitmqctl", "set_policy", *options, policy["name"], policy["pattern"], definition])


def _counted(queues: Sequence[str]) -> str:
    return queues[0] if len(queues) == 1 else f"{queues[0]} and {len(queues) - 1} more"
