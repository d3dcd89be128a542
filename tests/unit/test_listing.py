"""Pages, counts and search of a delayed set: right against a plain sort and filter, by an index, and small."""

from __future__ import annotations

import json
import random
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from amqpjobs.model import control, names
from amqpjobs.model.protocol import Command, Op, Target
from amqpjobs.streams import marks
from amqpjobs.streams.follow import Message
from amqpjobs.streams.listing import FEW, MOST, SORTS, Page, Search
from amqpjobs.streams.marks import Where
from amqpjobs.streams.rows import HEAD, WHOLE, WORDS
from amqpjobs.streams.search_index import STEP
from amqpjobs.streams.sqlite_store import FIRST
from amqpjobs.streams.views import DelayedView

COUNT = 300


def entry(number: int, **more: Any) -> dict[str, Any]:
    roll = random.Random(number)
    job = {
        "class": roll.choice(["Mailer", "SendEmailJob", "Billing::Charge"]),
        "queue": roll.choice(["mail", "default"]),
        "args": [number, f"user{number}@example.com", {"kind": "Überweisung"}],
        "tags": ["all", f"t{number % 5}", "a b!"],
        "enqueued_at": roll.choice([None, 100.0, 50.0 + number]),
    }
    times = {"scheduled_at": roll.randrange(50), "retry_at": roll.randrange(50), "died_at": roll.randrange(50)}
    words = {"error_class": "ConnectionRefusedError", "error_message": f"host{number % 7} said no", "failed_at": number}
    return {"jid": f"{roll.getrandbits(64):016x}", "retry_count": 1, "job": job} | times | words | more


def filled(view: DelayedView, entries: list[dict[str, Any]], first: int = 0) -> None:
    view.fold([Message(first + n, json.dumps(each).encode()) for n, each in enumerate(entries)])


def index_all(view: DelayedView) -> None:
    while view.index_some():
        pass


@pytest.fixture
def view(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[DelayedView]:
    view = DelayedView(tmp_path, getattr(request, "param", names.RETRIES), lists=True)
    yield view
    view.close()


def jids(page: Page) -> list[str]:
    return [row.jid for row in page.rows]


def everything(view: DelayedView, search: Search) -> list[str]:
    """All pages, one after the other."""
    found: list[str] = []
    after = ""
    while True:
        page = view.search(search._replace(after=after))
        found += jids(page)
        if page.after is None:
            return found
        assert len(page.rows) == search.limit
        after = page.after


def key(entry: dict[str, Any], sort: str, stream: str) -> Any:
    job = entry["job"]
    at = {names.SCHEDULED: job["enqueued_at"] or 0, names.RETRIES: entry["failed_at"], names.DEAD: entry["died_at"]}
    due = {names.SCHEDULED: entry["scheduled_at"], names.RETRIES: entry["retry_at"], names.DEAD: entry["died_at"]}
    keys = {"due": (), "at": (at[stream],), "failed_at": (at[stream],), "jid": (entry["jid"],)}
    keys |= {"class": (job["class"],), "queue": (job["queue"],)}
    return (*keys[sort], *(() if sort in ("at", "failed_at", "jid") else (due[stream],)))


@pytest.mark.parametrize("view", names.DELAYED, indirect=True)
@pytest.mark.parametrize("sort", [*SORTS, *(f"-{sort}" for sort in SORTS)])
@pytest.mark.parametrize(("cls", "queue"), [("", ""), ("Mailer", ""), ("", "mail"), ("Mailer", "mail")])
def test_pages_are_a_sort_and_a_filter(view: DelayedView, sort: str, cls: str, queue: str) -> None:
    entries = [entry(n) for n in range(COUNT)]
    filled(view, entries)
    expected = [
        e for e in entries if (not cls or e["job"]["class"] == cls) and (not queue or e["job"]["queue"] == queue)
    ]
    order = {id(e): (key(e, sort.removeprefix("-"), view.stream), n) for n, e in enumerate(entries)}
    expected.sort(key=lambda e: order[id(e)], reverse=sort.startswith("-"))
    search = Search(cls=cls, queue=queue, sort=sort, limit=17)
    assert everything(view, search) == [e["jid"] for e in expected]
    page = view.search(search._replace(offset=20))
    assert jids(page) == [e["jid"] for e in expected[20:37]]
    assert (page.total, page.matching, page.exact) == (COUNT, len(expected), True)


@pytest.mark.parametrize("view", names.DELAYED, indirect=True)
@pytest.mark.parametrize("sort", ["due", "-at", "jid"])
@pytest.mark.parametrize("cls", ["", "Mailer"])
def test_errors_and_times_narrow_a_list(view: DelayedView, sort: str, cls: str) -> None:
    entries = [entry(n, error_class=f"E{n % 3}") for n in range(COUNT)]
    filled(view, entries)
    errors = view.stream != names.SCHEDULED
    search = Search(cls=cls, error="E1" if errors else "", since=10, until=40, sort=sort, limit=9)

    def meant(n: int, each: dict[str, Any]) -> bool:
        named = (not cls or each["job"]["class"] == cls) and (not errors or n % 3 == 1)
        return named and 10 <= key(each, "due", view.stream)[-1] < 40

    expected = [each for n, each in enumerate(entries) if meant(n, each)]
    order = {each["jid"]: key(each, sort.removeprefix("-"), view.stream) for each in expected}
    found = everything(view, search)
    assert sorted(found) == sorted(each["jid"] for each in expected)
    assert [order[jid] for jid in found] == sorted(order.values(), reverse=sort.startswith("-"))
    assert view.search(search).matching == len(expected)
    assert {target.jid for target in view.targets(search, COUNT)} == {each["jid"] for each in expected}
    assert dict(view.errors(10)) == ({f"E{n}": COUNT // 3 for n in range(3)} if errors else {"": COUNT})


@pytest.mark.parametrize(
    ("q", "numbers"),
    [
        ("user12@example.com", {12}),
        ("user12@exa", {12}),
        ("USER12", {12, *range(120, 130)}),
        ("uberweisung user3", {3, *range(30, 40), *range(300, COUNT)}),
        ("überw user14@example", {14}),
        ("Email", None),
        ("charge host3", None),
        ("refused host99", set()),
        ("said no host6", set(range(6, COUNT, 7))),
        ('"', set()),
        ('user12@example.com AND "', {12}),
        ("NOT user12@example.com", set()),
        ("words:user12@example.com", set()),
        ("e", set()),
        ("   ", set(range(COUNT))),
    ],
)
def test_words_are_found(view: DelayedView, q: str, numbers: set[int] | None) -> None:
    entries = [entry(n) for n in range(COUNT)]
    filled(view, entries)
    index_all(view)
    if numbers is None:
        wanted = {"Email": ("SendEmailJob", 1), "charge host3": ("Billing::Charge", 7)}[q]
        numbers = {
            n for n, e in enumerate(entries) if e["job"]["class"] == wanted[0] and n % wanted[1] == 3 % wanted[1]
        }
    if "AND" in q:  # it is no operator: a word like any other
        numbers = set()
    page = view.search(Search(q=q, limit=COUNT))
    assert set(jids(page)) == {entries[n]["jid"] for n in numbers}
    assert (page.matching, page.exact) == (len(numbers), True)


def test_the_beginning_of_a_jid_finds_it_before_any_index_does(view: DelayedView) -> None:
    entries = [entry(n) for n in range(COUNT)]
    filled(view, entries)
    page = view.search(Search(q=entries[7]["jid"][:6]))
    assert jids(page) == [entries[7]["jid"]]
    assert view.search(Search(q=entries[7]["jid"][:3])).rows == []  # too short to tell one from another
    assert view.search(Search(q="%%%%")).rows == []


def test_filters_and_words_together(view: DelayedView) -> None:
    entries = [entry(n) for n in range(COUNT)]
    filled(view, entries)
    index_all(view)
    found = view.search(Search(q="host2", cls="Mailer", queue="mail", tag="t1", sort="-failed_at", limit=COUNT))
    expected = [
        e["jid"]
        for n, e in enumerate(entries)
        if n % 7 == 2 and n % 5 == 1 and (e["job"]["class"], e["job"]["queue"]) == ("Mailer", "mail")
    ]
    assert expected
    assert jids(found) == expected[::-1]
    assert view.search(Search(tag="a b!", limit=1)).matching == COUNT
    assert view.search(Search(tag="a b")).matching == 0
    assert everything(view, Search(tag="t1", sort="jid", limit=9)) == sorted(e["jid"] for e in entries[1::5])


@pytest.mark.parametrize("q", ["Überweisung", "user12 kind", "user7@example.com", "nowhere", "uberw", "host3 said"])
@pytest.mark.parametrize(
    "few", [Search(tag="rare"), Search(cls="Rare"), Search(queue="low", tag="t1"), Search(tag="none")]
)
def test_words_and_a_filter_that_leaves_few_are_what_both_alone_have_in_common(
    view: DelayedView, q: str, few: Search
) -> None:
    entries = [entry(n) for n in range(COUNT)]
    for n in range(0, COUNT, 12):
        entries[n]["job"] |= {"class": "Rare", "queue": "low"}
        entries[n]["job"]["tags"].append("rare")
    filled(view, entries)
    index_all(view)
    search = few._replace(q=q, limit=40)
    alone = set(everything(view, search._replace(q="")))
    both = everything(view, search)
    assert both == [jid for jid in everything(view, Search(q=q, limit=40)) if jid in alone]
    asked: list[str] = []
    view.store.db.set_trace_callback(asked.append)
    view.search(search)
    view.store.db.set_trace_callback(None)
    assert not [question for question in asked if "FROM search WHERE search MATCH" in question and "words" in question]


@pytest.mark.parametrize("lists", [True, False], ids=["with an index", "without"])
@pytest.mark.parametrize(
    "where",
    [
        Where(), Where(q="uberw"), Where(tag="t3"), Where(q="user12 kind"), Where("Mailer", "mail", "t1", "host3"),
        Where(q="nowhere"), Where(tag="none"), Where(q="!"), Where(q=entry(3)["jid"][:9]),
    ],
)  # fmt: skip
def test_all_that_match_are_those_that_the_list_shows(tmp_path: Path, lists: bool, where: Where) -> None:
    """Without an index too, and without one that lags behind."""
    listed, acting = DelayedView(tmp_path, names.RETRIES, lists=True), tmp_path / "acting"
    acting.mkdir()
    view = DelayedView(acting, names.RETRIES, lists=lists)
    for each in (listed, view):
        filled(each, [entry(n) for n in range(COUNT)])
    index_all(listed)
    found: list[str] = []
    after: int | None = FIRST
    while after is not None:
        page, after = marks.page(view.store, after, marks.newest(view.store), where, 17)
        found += [mark.jid for mark in page]
    search = Search(where.q or "", where.cls or "", where.queue or "", where.tag or "", limit=100)
    assert sorted(found) == sorted(everything(listed, search))
    listed.close()
    view.close()


def test_of_more_than_can_be_looked_at_the_newest_are_shown(view: DelayedView) -> None:
    filled(view, [entry(n) for n in range(MOST + 50)])
    index_all(view)
    page = view.search(Search(q="example.com", sort="failed_at", limit=1))
    assert (page.matching, page.exact, page.total) == (MOST, False, MOST + 50)
    assert page.rows[0].at == 50.0
    assert view.search(Search(q="user1@example.com")).exact


def test_the_index_follows_what_comes_and_goes(view: DelayedView) -> None:
    entries = [entry(n) for n in range(COUNT)]
    filled(view, entries)
    assert view.index_some()
    behind = view.search(Search(q="example.com"))
    assert behind.matching == STEP
    assert behind.indexed == STEP - 1
    index_all(view)
    assert view.search(Search(q="example.com")).indexed is None
    delete = Command(uuid="u", op=Op.DELETE, targets=(Target(entries[5]["jid"], None),), at=1.0, by="ann")
    filled(view, [control.write_command(delete)], first=COUNT)
    gone = view.search(Search(q="user5@example.com"))
    assert (gone.rows, gone.matching) == ([], 0)
    assert gone.indexed is not None
    index_all(view)
    assert view.search(Search(q="example.com")).indexed is None
    assert view.store.db.execute("SELECT count(*) FROM search").fetchone() == (COUNT - 1,)


def test_what_comes_under_an_old_identity_is_found(view: DelayedView) -> None:
    filled(view, [entry(n) for n in range(10)])
    index_all(view)
    again = {"type": "again", "id": "old/3", "jid": "back", "due": 1.0, "bury": False, "body": json.dumps(entry(77))}
    filled(view, [again], first=10)
    index_all(view)
    assert jids(view.search(Search(q="user77"))) == ["back"]


def test_an_index_step_is_small(view: DelayedView) -> None:
    filled(view, [entry(n, pad="x" * 20_000) for n in range(3 * STEP)])
    seen: list[str] = []
    view.store.db.set_trace_callback(seen.append)
    assert view.index_some()
    view.store.db.set_trace_callback(None)
    assert sum(statement.startswith("INSERT INTO search (rowid") for statement in seen) == STEP
    assert view.search(Search(q="pad")).matching == STEP  # of what is too long to be parsed, its beginning
    index_all(view)
    assert not view.index_some()


def test_it_goes_on_after_a_restart(tmp_path: Path) -> None:
    view = DelayedView(tmp_path, names.RETRIES, lists=True)
    filled(view, [entry(n) for n in range(COUNT)])
    view.index_some()
    view.close()
    view = DelayedView(tmp_path, names.RETRIES, lists=True)
    assert view.search(Search(q="example.com")).matching == STEP
    index_all(view)
    assert view.search(Search(q="example.com")).matching == COUNT
    view.close()


def test_rows_are_small_and_tell_how_long_what_they_show_is(view: DelayedView) -> None:
    long = entry(1, error_message="m" * 100_000, pad="x" * 5_000_000)
    filled(view, [entry(0), long])
    short, cut = view.search(Search(sort="failed_at")).rows
    assert json.loads(short.raw) == entry(0)
    assert short.size == len(short.raw) <= WHOLE
    assert cut.size > 5_000_000
    assert (len(cut.raw), len(cut.error_message)) == (HEAD, WORDS)
    assert sum(len(field) for field in cut if isinstance(field, str | bytes)) < 20_000
    (whole,) = view.find(long["jid"])
    assert json.loads(whole.raw) == long
    assert len(whole.error_message) == 100_000


def questions(view: DelayedView, search: Search) -> list[str]:
    seen: list[str] = []
    view.store.db.set_trace_callback(seen.append)
    view.search(search)
    view.store.db.set_trace_callback(None)
    return seen


@pytest.mark.parametrize("view", names.DELAYED, indirect=True)
@pytest.mark.parametrize("sort", ["due", "-due", "failed_at", "-failed_at", "jid", "class", "-queue"])
@pytest.mark.parametrize("cls", ["", "Mailer"])
@pytest.mark.parametrize("queue", ["", "mail"])
def test_no_page_is_sorted_or_scanned_for(view: DelayedView, sort: str, cls: str, queue: str) -> None:
    filled(view, [entry(n) for n in range(COUNT)])
    first = view.search(Search(sort=sort, limit=5))
    asked = questions(view, Search(cls=cls, queue=queue, sort=sort, limit=5))
    if not cls and not queue:
        assert first.after is not None
        asked += questions(view, Search(sort=sort, limit=5, after=first.after))
    few = (cls or queue) and sort.lstrip("-") not in ("due",)
    for question in asked:
        plan = " ".join(row[3] for row in view.store.db.execute("EXPLAIN QUERY PLAN " + question))
        assert "SCAN entries" not in plan.replace("SCAN entries USING ", "") or "ORDER BY" not in question, plan
        assert "USE TEMP B-TREE" not in plan or few, (question, plan)
        if "(?" in plan and "entries" in plan:
            assert "SEARCH entries" in plan
        if search_after(question):
            assert "SEARCH entries USING" in plan, plan  # it begins where the page does
    assert len(asked) < 12


def search_after(question: str) -> bool:
    return "ORDER BY" in question and ("> (" in question or "< (" in question)


def test_a_large_class_is_walked_in_the_order_of_the_page(view: DelayedView) -> None:
    filled(view, [entry(n) for n in range(20)])
    view.store.db.execute("UPDATE counts SET n = n + ?", (FEW,))  # as if there were many
    (question,) = [q for q in questions(view, Search(cls="Mailer", sort="jid")) if "ORDER BY" in q]
    plan = " ".join(row[3] for row in view.store.db.execute("EXPLAIN QUERY PLAN " + question))
    assert "entries_jid" in plan
    assert "TEMP B-TREE" not in plan


def test_counting_reads_no_entries(view: DelayedView) -> None:
    filled(view, [entry(n) for n in range(COUNT)])
    for question in questions(view, Search(cls="Nobody")):
        assert "FROM entries" not in question
    assert view.search(Search(cls="Nobody")) == Page([], COUNT, 0, True, None, None)


@pytest.mark.parametrize(
    "after", ["x", "é", "W10", "WyJkdWUiXQ", "WyJkdWUiLCBudWxsLCAxXQ", "WyJqaWQiLCAiYSIsIDFd", "0" * 9000]
)
def test_an_after_of_another_list_is_refused(view: DelayedView, after: str) -> None:
    filled(view, [entry(1)])
    with pytest.raises(ValueError, match="after"):
        view.search(Search(after=after))


@pytest.mark.parametrize("sort", ["", "due; DROP TABLE entries", "raw", "--due"])
def test_a_sort_that_there_is_none_of_is_refused(view: DelayedView, sort: str) -> None:
    filled(view, [entry(1)])
    with pytest.raises(ValueError, match="sort must be one of due"):
        view.search(Search(sort=sort))


def test_a_view_without_lists_answers_too(tmp_path: Path) -> None:
    view = DelayedView(tmp_path, names.SCHEDULED)
    filled(view, [entry(n) for n in range(COUNT)])
    due = [row.due for row in view.page(COUNT)]
    assert due == sorted(due, key=lambda each: each or 0)
    assert len(due) == COUNT
    assert not view.index_some()
    view.close()


def test_lists_are_answered_while_a_long_log_is_loaded(view: DelayedView) -> None:
    view.expect(10**6)
    filled(view, [entry(n) for n in range(COUNT)])
    assert view.next_due() is None
    assert len(everything(view, Search(sort="jid", limit=40))) == COUNT
    view.arrive()
    assert view.next_due() == min(entry(n)["retry_at"] for n in range(COUNT))


def test_names_to_choose_from(view: DelayedView) -> None:
    filled(view, [entry(n) for n in range(COUNT)])
    assert view.names(10) == (["Billing::Charge", "Mailer", "SendEmailJob"], ["default", "mail"])
    assert view.names(1)[0] == ["Billing::Charge"]


def test_a_file_of_other_tables_is_rebuilt(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    db = sqlite3.connect(tmp_path / "retries.db")
    db.executescript("CREATE TABLE meta (name TEXT PRIMARY KEY, value); INSERT INTO meta VALUES ('version', 3);"
                     "CREATE TABLE entries (id TEXT)")  # fmt: skip
    db.close()
    caplog.set_level("INFO")
    view = DelayedView(tmp_path, names.RETRIES)
    assert "another version" in caplog.text
    filled(view, [entry(1)])
    assert view.count() == 1
    view.close()


def test_an_old_state_that_cannot_be_read_is_left_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "retries.old-1.db").write_bytes(b"no database at all" * 100)
    view = DelayedView(tmp_path, names.RETRIES, keep_old=True)
    assert view.old() == []
    assert "cannot be read" in caplog.text
    assert (tmp_path / "retries.old-1.db").exists()
    view.close()


def test_a_common_word_is_found_as_a_whole_one_and_a_rare_one_as_a_beginning_too(view: DelayedView) -> None:
    words = ["invoice"] * (MOST + 1) + ["invoices"] + ["receipts", "receipt"]
    filled(view, [entry(n) | {"error_message": word} for n, word in enumerate(words)])
    index_all(view)
    common, rare = view.search(Search(q="invoice", limit=MOST)), view.search(Search(q="receipt"))
    assert (common.matching, common.exact) == (MOST, False)
    assert {row.error_message for row in common.rows} == {"invoice"}
    assert (rare.matching, rare.exact) == (2, True)
    assert view.search(Search(q="invoices")).matching == 1
