"""Actions from the shell, as a person gives them: what is printed, what the exit status says, what is on record."""

from __future__ import annotations

import getpass
import json
import time
from typing import Any

import pytest

from amqpjobs.model import names
from amqpjobs.settings import Settings
from tests.broker.bench import Bench, scheduled
from tests.broker.test_actions import dead, failed
from tests.broker.test_operate import Run
from tests.broker.test_operate import run as run  # noqa: PLC0414 (a fixture)

pytestmark = pytest.mark.command_line


async def listed(run: Run, what: str) -> dict[str, Any]:
    done = await run("inspect", what, "--json")
    return {row["jid"]: row for row in json.loads(done.stdout)["items"]}


async def test_jobs_are_acted_on_by_jid_and_the_record_tells_it(run: Run, bench: Bench) -> None:
    far = time.time() + 3600
    await bench.put(names.SCHEDULED, json.dumps([scheduled(j, far) for j in ("s1", "s2", "both")]).encode())
    await bench.put(names.RETRIES, json.dumps([failed(j) for j in ("r1", "both")]).encode())
    done = await run("delete", "s1", "r1")
    assert (done.returncode, done.stdout, done.stderr) == (0, "deleted s1\ndeleted r1\n", "")
    done = await run("delete", "none", "s2")
    assert (done.returncode, done.stdout) == (1, "deleted s2\n")
    assert done.stderr == "amqpjobs: none: not found in scheduled_jobs\n"
    done = await run("delete", "both")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "amqpjobs: both is in scheduled and in retries: say which with --set; nothing was done\n"
    done = await run("restore", "s1")
    assert (done.returncode, done.stdout) == (0, "restored s1\n"), done.stderr
    done = await run("restore", "s1")
    assert (done.returncode, done.stderr) == (1, "amqpjobs: s1: no deletion of it is on record\n")
    done = await run("reschedule", "s1", "--in", "2h")
    assert (done.returncode, done.stdout) == (0, "rescheduled s1\n"), done.stderr
    waiting = await listed(run, "scheduled")
    assert set(waiting) == {"s1", "both"}
    assert waiting["s1"]["due"] > waiting["both"]["due"]
    done = await run("audit", "--json")
    items = json.loads(done.stdout)["items"]
    told = [(i["what"], i["in"], i["which"], i["done"], i["not_found"]) for i in items]
    assert told[:3] == [
        ("reschedule", names.SCHEDULED, ["s1"], 1, 0),
        ("restore", names.SCHEDULED, ["s1"], 1, 0),
        ("delete", names.SCHEDULED, ["none", "s2"], 1, 1),
    ]
    assert sorted(told[3:]) == [  # one order for two streams: each records its part when its leader gets to it
        ("delete", names.RETRIES, ["r1"], 1, 0),
        ("delete", names.SCHEDULED, ["s1"], 1, 0),
    ]
    assert {(i["by"], i["via"]) for i in items} == {(getpass.getuser(), "cli")}
    [of_retries] = [i["action"] for i in items if i["in"] == names.RETRIES]
    done = await run("restore", "--action", of_retries)
    assert (done.returncode, done.stdout) == (0, "restored 1 of 1 in retries\n")
    assert set(await listed(run, "retries")) == {"r1", "both"}


async def test_all_that_match(run: Run, bench: Bench) -> None:
    jobs = [dead(f"d{n}", queue="low" if n % 2 else "default") for n in range(10)]
    jobs.append(dead("told", args=["said by ann@example.com"], tags=["tagged"]))
    await bench.put(names.DEAD, json.dumps([*jobs, dead("kind", **{"class": "D"})]).encode())
    done = await run("requeue", "--all", "--tag", "tagged", "--search", "bob")
    assert (done.returncode, done.stdout) == (0, "requeued 0 of 0 in dead_jobs\n")
    done = await run("requeue", "--all", "--tag", "tagged", "--search", "ann@example.com")
    assert (done.returncode, done.stdout) == (0, "requeued 1 of 1 in dead_jobs\n")
    done = await run("delete", "--all", "--set", "dead", "--queue", "low")
    assert (done.returncode, done.stdout) == (0, "deleted 5 of 5 in dead_jobs\n"), done.stderr
    done = await run("requeue", "--all", "--class", "D")
    assert (done.returncode, done.stdout) == (0, "requeued 1 of 1 in dead_jobs\n")
    done = await run("requeue", "--all", "--class", "none")
    assert (done.returncode, done.stdout) == (0, "requeued 0 of 0 in dead_jobs\n")
    assert set(await listed(run, "dead")) == {"d0", "d2", "d4", "d6", "d8", "kind", "told"}
    done = await run("audit")
    assert "tag=tagged" in done.stdout
    assert "queue=low" in done.stdout


async def test_orders_for_workers_are_on_record_too(run: Run, bench: Bench) -> None:
    for words in (("pause", "low"), ("stop", "--all"), ("cancel", "j1", "j2")):
        assert (await run(*words)).returncode == 0
    items = json.loads((await run("audit", "--json")).stdout)["items"]
    assert [(i["what"], i["in"], i["which"]) for i in items] == [
        ("cancel", "controls", ["j1", "j2"]),
        ("stop", "*", []),
        ("pause", "low", []),
    ]
    assert {(i["by"], i["via"]) for i in items} == {(getpass.getuser(), "cli")}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("delete",), "takes one or more JIDs, or --all"),
        (("delete", "j", "--all"), "takes one or more JIDs, or --all"),
        (("restore",), "takes one or more JIDs, or --action ID"),
        (("delete", "--all"), "--set takes scheduled, retries, dead"),
        (("kill", "j", "--queue", "low"), "choose among --all"),
        (("retry", "a", "b", "--entry", "7"), "exactly one JID"),
        (("restore", "--action", "none"), "see amqpjobs audit"),
        (("reschedule", "j", "--at", "nan"), "is no time"),
    ],
)
async def test_a_wrong_action_says_what_to_do_in_a_line(
    run: Run, bench: Bench, words: tuple[str, ...], says: str
) -> None:
    done = await run(*words)
    assert done.returncode == 1
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == 1


async def test_it_declares_nothing_and_says_what_is_missing(run: Run, settings: Settings) -> None:
    done = await run("requeue", "j")
    assert done.returncode == 1
    assert done.stderr == "amqpjobs: there is no stream audit: `amqpjobs setup` declares it\n"
