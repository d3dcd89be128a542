"""The fold's rules, one by one, as docs/engine.md numbers them: what has an effect, and what has none."""

from __future__ import annotations

import json
from typing import Any

import pytest

from amqpjobs.model import control, names, protocol
from amqpjobs.model.arrival import read_pending
from amqpjobs.model.delayed import VERDICT_AGE, DelayedSet
from amqpjobs.model.memory import MemoryStore
from amqpjobs.model.messages import Unreadable
from amqpjobs.model.pending import Claim, Pending
from amqpjobs.model.protocol import Again, Command, How, Op, Position, Target, Verdict


class Log:
    """A stream and its fold."""

    def __init__(self, stream: str = names.SCHEDULED, first: int = 0) -> None:
        self.store = MemoryStore()
        self.fold = DelayedSet(stream, self.store)
        self.offset = first

    def put(self, *entries: Any, source: str | None = None, seq: int | None = None) -> int:
        """Append one message; its offset."""
        items = [dict(entry) for entry in entries]
        if source is not None:
            items[0] |= {"from": source, "seq": seq}
        return self.raw(json.dumps(items if len(items) > 1 else items[0]).encode())

    def raw(self, body: bytes) -> int:
        self.fold.fold(self.offset, body)
        self.offset += 1
        return self.offset - 1

    def command(self, op: Op, jid: str, *, uuid: str = "u", at: float = 50.0, **more: Any) -> list[Verdict] | None:
        targets = (Target(jid, more.pop("entry", None)),)
        self.put(control.write_command(Command(uuid=uuid, op=op, targets=targets, at=at, by="ann", **more)))
        return self.store.verdicts(uuid)

    def lead(self, source: str = "a", n: int = 1, seq: int = 1) -> None:
        self.put(control.write_epoch("E", at=0), control.write_term("E", n, by="host", at=0), source=source, seq=seq)

    def claim(self, *ids: str, source: str = "a", n: int = 1, seq: int = 2, epoch: str = "E") -> None:
        self.put(control.write_claimed(epoch, n, ids), source=source, seq=seq)

    def settle(self, *ids: str, source: str = "a", n: int = 1, seq: int = 3, epoch: str = "E") -> None:
        self.put(control.write_settled(epoch, n, ids, How.ENQUEUED, by="host", at=0), source=source, seq=seq)

    @property
    def ids(self) -> set[str]:
        return set(self.store.entries())

    def entry(self, id_: str) -> Pending:
        return self.store.entries()[id_]


def scheduled(jid: str = "j", due: float = 10.0, **more: Any) -> dict[str, Any]:
    return {"type": "scheduled_job", "jid": jid, "scheduled_at": due, "job": {"class": "C", "args": [1]}} | more


def failed(jid: str = "j", count: int = 1, args: Any = (1,), **more: Any) -> dict[str, Any]:
    job = {"class": "C", "args": list(args), "jid": jid}
    entry = {"type": "retry", "jid": jid, "retry_at": 10.0, "retry_count": count, "failed_at": 1.0, "job": job}
    return entry | {"error_message": "m", "error_class": "E"} | more


def dead(jid: str = "j", died_at: float = 1.0, **more: Any) -> dict[str, Any]:
    entry = {"type": "dead_job", "jid": jid, "died_at": died_at, "retry_count": 1, "job": {"class": "C", "args": []}}
    return entry | {"error_message": "m", "error_class": "E"} | more


def test_1_identity_is_offset_and_item_and_outlives_changes() -> None:
    log = Log()
    log.put(scheduled("a"))
    log.put(scheduled("b"), scheduled("c"))
    assert {id_: log.entry(id_).jid for id_ in log.ids} == {"0": "a", "1": "b", "1:1": "c"}
    log.command(Op.TRIGGER, "c", entry="1:1")
    assert log.entry("1:1").rev == Position(2, 0)
    assert log.entry("1:1").pos == Position(1, 1)


def test_2_a_repeat_has_no_effect_at_all() -> None:
    log = Log()
    log.put(scheduled("a"), scheduled("b"), source="s", seq=1)
    log.put(scheduled("a"), scheduled("b"), source="s", seq=1)
    assert log.ids == {"0", "0:1"}
    log.put(scheduled("c"), source="s", seq=3)
    log.put(scheduled("d"), source="s", seq=2)
    assert "d" not in {log.entry(id_).jid for id_ in log.ids}
    log.put(scheduled("d"), source="other", seq=2)
    assert "d" in {log.entry(id_).jid for id_ in log.ids}


@pytest.mark.parametrize("origin", [{"from": 1, "seq": 1}, {"from": "s", "seq": "1"}, {"from": "s", "seq": 2**64}])
def test_2_what_is_no_origin_repeats_nothing(origin: dict[str, Any]) -> None:
    log = Log()
    log.put(scheduled("a") | origin)
    log.put(scheduled("b") | origin)
    assert len(log.ids) == 2


def test_5_and_6_only_a_reschedule_replaces_and_spares_what_is_claimed() -> None:
    log = Log()
    log.put(scheduled("j", 1))
    log.put(scheduled("j", 2))
    assert log.ids == {"0", "1"}
    log.lead()
    log.claim("0")
    log.put(scheduled("j", 3, reschedule=True))
    assert log.ids == {"0", "4"}


def test_7_a_greater_term_leads_and_of_two_equal_ones_the_first() -> None:
    log = Log()
    log.lead("a", 5)
    log.put(control.write_term("E", 5, by="b", at=0), source="b", seq=1)
    assert log.store.facts().term == Claim(5, "a")
    log.put(control.write_term("E", 4, by="b", at=0), source="b", seq=2)
    assert log.store.facts().term == Claim(5, "a")
    log.put(control.write_term("E", 6, by="b", at=0), source="b", seq=3)
    assert log.store.facts().term == Claim(6, "b")
    assert log.store.facts().leader == "b"


def test_7_a_term_without_an_origin_or_of_another_epoch_is_void() -> None:
    log = Log()
    log.put(control.write_epoch("E", at=0))
    log.put(control.write_term("E", 9, by="x", at=0))
    log.put(control.write_term("F", 9, by="x", at=0), source="x", seq=1)
    assert log.store.facts().term is None


def test_9_only_the_current_leader_claims() -> None:
    log = Log()
    log.put(scheduled("a"))
    log.put(scheduled("b"))
    log.lead("old", 1)
    log.put(control.write_term("E", 2, by="new", at=0), source="new", seq=1)
    log.claim("0", source="old", n=1)
    assert log.entry("0").claim is None
    log.claim("0", "1", "77", source="new", n=1)
    assert log.entry("0").claim is None
    log.claim("0", "77", source="new", n=2, seq=3)
    assert log.entry("0").claim == Claim(2, "new")
    assert log.entry("1").claim is None


def test_9_what_was_put_off_meanwhile_is_not_claimed() -> None:
    log = Log()
    log.put(scheduled("a", due=10.0))
    log.put(scheduled("b", due=10.0))
    log.lead()
    assert log.command(Op.RESCHEDULE, "a", due=1e6) == [Verdict.DONE]
    log.put(control.write_claimed("E", 1, ["0", "1"], until=10.0), source="a", seq=2)
    assert (log.entry("0").claim, log.entry("1").claim) == (None, Claim(1, "a"))


def test_9_a_claim_is_not_taken_over_by_another() -> None:
    log = Log()
    log.put(scheduled())
    log.lead("a", 1)
    log.claim("0")
    log.put(control.write_term("E", 2, by="b", at=0), source="b", seq=1)
    log.claim("0", source="b", n=2, seq=2)
    assert log.entry("0").claim == Claim(1, "a")


def test_11_settled_removes_what_is_claimed_under_any_term_and_nothing_else() -> None:
    log = Log()
    log.put(scheduled("a"))
    log.put(scheduled("b"))
    log.lead("a", 1)
    log.claim("0")
    log.put(control.write_term("E", 2, by="b", at=0), source="b", seq=1)
    log.settle("0", "1", source="a", n=1)
    assert log.ids == {"1"}


def test_11_a_settlement_of_another_incarnation_is_void() -> None:
    log = Log()
    log.put(scheduled())
    log.lead()
    log.claim("0")
    log.settle("0", epoch="before")
    assert log.ids == {"0"}


def test_12_expiry_needs_the_current_term_and_the_same_revision() -> None:
    log = Log()
    log.put(scheduled("a"))
    log.lead("a", 1)

    def expire(rev: list[int], n: int, seq: int) -> None:
        settled = control.write_settled("E", n, ["0"], How.EXPIRED, by="h", at=0) | {"revs": [rev]}
        log.put(settled, source="a", seq=seq)

    expire([0, 0], 2, 2)
    expire([1, 0], 1, 3)
    assert log.ids == {"0"}
    expire([0, 0], 1, 4)
    assert log.ids == set()


def test_15_and_16_commands_and_their_verdicts() -> None:
    log = Log()
    log.put(scheduled("a", 1e6))
    log.put(scheduled("b", 1e6))
    log.lead()
    log.claim("1")
    assert log.command(Op.TRIGGER, "a", uuid="1", at=77.0) == [Verdict.DONE]
    assert log.entry("0").due == 77.0
    assert log.command(Op.RESCHEDULE, "a", uuid="2", due=99.0) == [Verdict.DONE]
    assert log.entry("0").due == 99.0
    for uuid, op in (("3", Op.DELETE), ("4", Op.TRIGGER), ("5", Op.KILL)):
        assert log.command(op, "b", uuid=uuid) == [Verdict.CONFLICT]
        assert log.command(op, "nobody", uuid=uuid + "n") == [Verdict.NOT_FOUND]
    assert log.command(Op.DELETE, "a", uuid="6", entry="1") == [Verdict.NOT_FOUND]
    assert log.command(Op.DELETE, "a", uuid="7") == [Verdict.DONE]
    assert log.ids == {"1"}


def test_15_by_jid_alone_the_newest_that_is_free() -> None:
    log = Log()
    for due in (1, 2, 3):
        log.put(scheduled("j", due))
    log.lead()
    log.claim("2")
    assert log.command(Op.DELETE, "j") == [Verdict.DONE]
    assert log.ids == {"0", "2"}


def test_a_killed_retry_waits_for_its_burial_with_its_own_error() -> None:
    log = Log(names.RETRIES)
    log.put(failed("j"))
    assert log.command(Op.KILL, "j", at=60.0) == [Verdict.DONE]
    entry = log.entry("0")
    assert (entry.bury, entry.due, entry.fault) == (True, 60.0, ("E", "m"))


def test_12_what_is_dropped_is_counted_once() -> None:
    log = Log(names.DEAD)
    a, b = log.put(dead("a")), log.put(dead("b"))
    log.lead()
    revs = [(str(offset), Position(offset, 0)) for offset in (a, b)]
    dropped = control.write_dropped("E", 1, revs, by="host", at=0)
    log.put(control.write_dropped("E", 1, [(str(a), Position(99, 0))], by="host", at=0), source="a", seq=2)
    log.put(dropped, source="b", seq=1)  # no leader
    assert (log.store.facts().dropped, log.ids) == (0, {str(a), str(b)})
    log.put(dropped, source="a", seq=3)
    log.put(dropped, source="a", seq=4)
    assert (log.store.facts().dropped, log.ids) == (2, set())


def test_17_a_deleted_entry_comes_back_with_its_bytes_under_its_identity() -> None:
    log = Log()
    body = json.dumps(scheduled(due=10.0)).encode()
    offset = str(log.raw(body))
    restore: dict[str, Any] = {"entry": offset, "body": body}
    assert log.command(Op.RESTORE, "j", uuid="early", **restore) == [Verdict.CONFLICT]
    log.command(Op.DELETE, "j", uuid="d")
    assert log.command(Op.RESTORE, "j", uuid="undo d", **restore) == [Verdict.DONE]
    back = log.entry(offset)
    assert (back.jid, back.due, back.raw, back.pos, back.rev) == ("j", 10.0, body, Position(3, 0), Position(3, 0))
    assert log.command(Op.RESTORE, "j", uuid="another", **restore) == [Verdict.CONFLICT]
    log.lead()
    log.claim(offset)
    log.settle(offset)
    assert log.command(Op.RESTORE, "j", uuid="undo d", **restore) == [Verdict.DONE], "judged once: it ran since"
    assert log.ids == set()


def test_17_a_restore_may_bring_the_due_time_that_it_had_and_only_a_body_of_its_own() -> None:
    log = Log()
    body = json.dumps(scheduled(due=10.0)).encode()
    assert log.command(Op.RESTORE, "j", uuid="u1", entry="7", body=body, due=99.0) == [Verdict.DONE]
    assert log.entry("7").due == 99.0
    assert log.command(Op.RESTORE, "k", uuid="u2", entry="8", body=b"\xff{") == [Verdict.DONE]
    assert (log.entry("8").raw, log.entry("8").bury) == (b"\xff{", True)
    assert log.command(Op.RESTORE, "j", uuid="u3", entry="9", body=body, epoch="F") == [Verdict.NOT_FOUND]
    wrongs: list[dict[str, Any]] = [{"entry": None}, {"body": None}]
    for wrong in wrongs:
        assert log.command(Op.RESTORE, "j", uuid="u4", **({"entry": "9", "body": body} | wrong)) is None
    two = Command("u5", Op.RESTORE, (Target("a", "9"), Target("b", "10")), at=1.0, body=body)
    log.put(control.write_command(two))
    assert log.store.verdicts("u5") is None
    dead_log = Log(names.DEAD)
    assert dead_log.command(Op.RESTORE, "j", entry="7", body=json.dumps(dead()).encode(), due=99.0) == [Verdict.DONE]
    assert dead_log.entry("7").due is None, "a dead job waits for a person"


def test_18_a_command_is_judged_once() -> None:
    log = Log()
    log.put(scheduled("j"))
    assert log.command(Op.DELETE, "j", uuid="u") == [Verdict.DONE]
    log.put(scheduled("j"))
    assert log.command(Op.DELETE, "j", uuid="u") == [Verdict.DONE]
    assert len(log.ids) == 1


def test_18_verdicts_are_kept_for_a_day_of_the_logs_own_time() -> None:
    log = Log()
    log.command(Op.DELETE, "j", uuid="old", at=1000.0)
    log.command(Op.DELETE, "j", uuid="new", at=1000.0 + VERDICT_AGE)
    assert log.store.verdicts("old") is not None
    log.command(Op.DELETE, "j", uuid="newer", at=1001.0 + VERDICT_AGE)
    assert log.store.verdicts("old") is None
    assert log.store.verdicts("new") is not None


def test_18_a_command_for_another_incarnation_finds_nothing() -> None:
    log = Log()
    log.put(scheduled("j"))
    log.lead()
    assert log.command(Op.DELETE, "j", epoch="before") == [Verdict.NOT_FOUND]
    assert log.ids == {"0"}


def tick(t: int, name: str = "r", n: int = 1, epoch: str = "E", **more: Any) -> dict[str, Any]:
    body = json.dumps(scheduled(f"{name}@{t}", float(t))).encode()
    return control.write_tick(epoch, n, name, t, body, **more)


def test_19_a_tick_happens_once_and_only_forward() -> None:
    log = Log()
    log.lead()
    first = log.put(tick(60), tick(120), tick(120), tick(60, "other"), source="a", seq=2)
    assert {entry.jid for entry in log.store.entries().values()} == {"r@60", "r@120", "other@60"}
    assert log.entry(str(first)).due == 60.0
    log.put(tick(120), tick(90), source="a", seq=3)
    assert log.store.ticks() == {"r": 120, "other": 60}
    assert len(log.ids) == 3
    read = read_pending(names.SCHEDULED, log.entry(str(first)))
    assert not isinstance(read, Unreadable)
    assert read.jid == "r@60"


def test_19_only_the_leader_lets_it_happen() -> None:
    log = Log()
    log.lead()
    log.put(tick(60), source="b", seq=1)
    log.put(tick(60, n=2), source="a", seq=2)
    log.put(tick(60, epoch="F"), source="a", seq=3)
    log.put(tick(60))
    assert log.store.ticks() == {}
    assert log.ids == set()


def test_19_without_a_body_it_is_only_remembered_and_a_wrong_clocks_tick_is_taken_back() -> None:
    log = Log()
    log.lead()
    log.put(control.write_tick("E", 1, "r", 10**9), source="a", seq=2)
    assert log.store.ticks() == {"r": 10**9}
    log.put(control.write_tick("E", 1, "r", 2 * 10**9, back=True), source="a", seq=3)
    assert log.store.ticks() == {"r": 10**9}, "never forward by that"
    log.put(control.write_tick("E", 1, "r", 50, back=True), source="a", seq=4)
    assert log.store.ticks() == {"r": 50}
    assert log.ids == set()
    log.put(tick(60), source="a", seq=5)
    assert len(log.ids) == 1


def test_19_without_the_logs_head_the_leader_at_work_is_believed() -> None:
    log = Log(first=1000)
    log.put(tick(60, n=7), source="a", seq=50)
    assert [entry.jid for entry in log.store.entries().values()] == ["r@60"]


def test_24_an_old_entry_comes_back_once_under_its_old_identity() -> None:
    log = Log()
    log.put(scheduled("new"))
    body = json.dumps(scheduled("old")).encode()
    again = control.write_again(Again("D/0", "old", 42.0, False, None, body))
    log.put(again, source="a", seq=1)
    assert log.ids == {"0", "D/0"}
    assert (log.entry("D/0").jid, log.entry("D/0").due) == ("old", 42.0)
    assert log.command(Op.DELETE, "old") == [Verdict.DONE]
    log.put(again, source="b", seq=1)
    assert log.ids == {"0"}


def test_24_two_incarnations_that_nobody_named_are_told_apart() -> None:
    """Deleted twice before a leader came: the first entries of both stood at 0."""
    bodies = {jid: json.dumps(scheduled(jid)).encode() for jid in ("a", "b")}
    ids = {jid: protocol.foreign_id(None, "0", body) for jid, body in bodies.items()}
    log = Log()
    for seq, (jid, body) in enumerate(bodies.items(), 1):
        log.put(control.write_again(Again(ids[jid], jid, 1.0, False, None, body)), source="a", seq=seq)
    log.put(control.write_again(Again(ids["a"], "a", 1.0, False, None, bodies["a"])), source="standby", seq=1)
    assert {log.entry(id_).jid for id_ in log.ids} == {"a", "b"}
    assert len(log.ids) == 2


def test_24_what_could_not_be_read_comes_back_with_its_bytes() -> None:
    log = Log()
    again = Again("D/3", "j", 0.0, True, ("Malformed", "not UTF-8"), b"\xff\xfe")
    log.put(control.write_again(again), source="a", seq=1)
    entry = log.entry("D/3")
    assert (entry.raw, entry.bury, entry.fault, entry.jid) == (b"\xff\xfe", True, ("Malformed", "not UTF-8"), "j")


def test_25_the_first_epoch_wins_and_claims_of_another_are_void() -> None:
    log = Log()
    log.put(scheduled())
    log.lead()
    log.put(control.write_epoch("F", at=0))
    assert log.store.facts().epoch == "E"
    log.claim("0", epoch="F")
    assert log.entry("0").claim is None


def test_without_the_logs_head_the_leader_at_work_is_believed() -> None:
    whole, headless = Log(), Log(first=500)
    for log in (whole, headless):
        at = log.put(scheduled("j"))
        log.claim(str(at), source="a", n=7)
        log.settle(str(at), source="a", n=7)
    assert whole.ids == {"0"}, "a claim before any term is void in a whole log"
    assert headless.ids == set()
    headless.put(control.write_term("E", 6, by="b", at=0), source="b", seq=1)
    assert headless.store.facts().term == Claim(7, "a")


def test_a_redelivered_failure_is_not_two_retries() -> None:
    log = Log(names.RETRIES)
    log.put(failed("j", 1))
    log.put(failed("j", 2))
    log.put(failed("j", 1))
    assert [log.entry(id_).summary.retry_count for id_ in log.ids] == [2]
    log.put(failed("j", 1, args=[2]))
    log.put(failed("other", 1))
    assert len(log.ids) == 3


def test_the_same_death_is_one_record() -> None:
    log = Log(names.DEAD)
    log.put(dead("j", 1.0))
    log.put(dead("j", 1.0))
    log.put(dead("j", 2.0, failed_at=1.0))
    assert log.ids == {"0"}
    log.put(dead("j", 3.0))
    log.put(dead("k", 4.0, origin="retries/7"))
    log.put(dead("k", 5.0, origin="retries/7"))
    assert log.ids == {"0", "3", "4"}
    assert all(log.entry(id_).due is None for id_ in log.ids)


@pytest.mark.parametrize("stream", names.DELAYED)
@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"null", b"3", b"[1]", b'{"type":"scheduled_job"}', b"[[]]"])
def test_what_cannot_be_read_waits_for_its_burial_once(stream: str, body: bytes) -> None:
    log = Log(stream)
    log.raw(body)
    (entry,) = log.store.entries().values()
    assert entry.raw in body
    assert entry.fault is not None
    read = read_pending(stream, entry)
    assert isinstance(read, Unreadable)
    assert read.raw == entry.raw
    assert (entry.bury, entry.due) == ((False, None) if stream == names.DEAD else (True, 0.0))


@pytest.mark.parametrize(
    "entry",
    [
        {"type": "marker", "nonce": "x"},
        {"type": "claimed"},
        {"type": "claimed", "epoch": "E", "n": True, "entries": ["0"]},
        {"type": "settled", "epoch": "E", "n": 1, "entries": ["0"], "how": "vanished"},
        {"type": "settled", "epoch": "E", "n": 1, "entries": ["0"], "how": "expired"},
        {"type": "term", "epoch": "E", "n": 2**70},
        {"type": "term", "epoch": "\ud800", "n": 3},
        {"type": "command", "uuid": "u", "op": "explode", "entries": [], "at": 1},
        {"type": "command", "uuid": "u", "op": "reschedule", "entries": [{"jid": "j"}], "at": 1},
        {"type": "command", "uuid": "u", "op": "delete", "entries": [{"jid": ["j"]}], "at": 1},
        {"type": "again", "id": "0", "jid": "j", "due": 1, "body": "{}"},
        {"type": "again", "id": "D/0", "jid": "j", "due": "soon", "body": "{}"},
        {"type": "from a later version", "n": 1},
    ],
)
def test_a_control_entry_that_is_not_well_formed_has_no_effect(entry: dict[str, Any]) -> None:
    log = Log()
    log.put(scheduled("j"))
    log.lead()
    before = (log.store.entries(), log.store.facts())
    log.put(entry, source="a", seq=2)
    assert (log.store.entries(), log.store.facts()) == before
    assert log.store.verdicts("u") is None
