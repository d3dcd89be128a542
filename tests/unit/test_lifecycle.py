"""Every state and every event: what the table allows, against a second table that was written by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from amqpjobs.model.lifecycle import ENDED, TABLE, WAITING, Event, State, When, after, diagram

ROOT = Path(__file__).parents[2]

EXPECTED = {
    "scheduled": "due>queued cancel>cancelled withdraw>cancelled change>queued,scheduled abandon>gone delete>gone",
    "queued": "take>running cancel>cancelled withdraw>cancelled change>queued,scheduled abandon>gone delete>gone",
    "blocked": "cancel>cancelled withdraw>cancelled change>blocked unblock>queued,scheduled merge>replaced "
    "abandon>gone delete>gone",
    "running": "beat>running note>running complete>completed fail>retrying,failed time_out>retrying,timed_out "
    "stall>retrying,failed give_back>queued,retrying cancel>cancelled delete>gone",
    "retrying": "due>queued cancel>cancelled withdraw>cancelled change>queued,retrying abandon>failed,timed_out "
    "delete>gone",
    "completed": "delete>gone expire>gone",
    "failed": "delete>gone expire>gone",
    "timed_out": "delete>gone expire>gone",
    "cancelled": "delete>gone expire>gone",
    "replaced": "delete>gone expire>gone",
    "gone": "",
}


def expected(state: State, event: Event) -> list[State]:
    ways = dict(way.split(">") for way in EXPECTED[state].split())
    return [State(to) for to in ways.get(event.replace(" ", "_"), "").split(",") if to]


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("event", Event)
def test_every_pair_leads_where_it_should_or_nowhere(state: State, event: Event) -> None:
    found = [after(state, event, way.when.__eq__) for way in TABLE.get((state, event), ())]
    assert found == expected(state, event)
    if not found:
        assert after(state, event, lambda _: True) is None


def test_conditions_exclude_each_other_and_one_always_holds() -> None:
    pairs = {way.when for ways in TABLE.values() for way in ways} - {When.ALWAYS}
    by_two = [tuple(way.when for way in ways) for ways in TABLE.values() if len(ways) > 1]
    assert {when for pair in by_two for when in pair} == pairs
    assert all(len(pair) == 2 for pair in by_two)


def test_each_state_is_waiting_running_or_ended() -> None:
    assert WAITING | ENDED | {State.RUNNING, State.GONE} == set(State)
    assert not WAITING & ENDED


def test_the_diagram_in_the_docs_is_the_one_that_the_table_draws() -> None:
    page = (ROOT / "docs/tracked.md").read_text(encoding="utf-8")
    assert f"```mermaid\n{diagram()}\n```" in page, "python -m tests.unit.test_lifecycle writes it anew"


def write_diagram() -> None:
    """Put the diagram of the table into its page."""
    path = ROOT / "docs/tracked.md"
    before, _, rest = path.read_text(encoding="utf-8").partition("```mermaid\n")
    path.write_text(f"{before}```mermaid\n{diagram()}\n```{rest.partition('```')[2]}", encoding="utf-8")


if __name__ == "__main__":
    write_diagram()
