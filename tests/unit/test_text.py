from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqpjobs.model import slices, text
from tests.unit.growth import in_proportion
from tests.unit.odd import ANY_TEXT, VALUES, same, written

BLANKS = st.text(" \t\r\n", max_size=2)


@st.composite
def spaced(draw: st.DrawFn, values: st.SearchStrategy[Any] = VALUES) -> tuple[Any, bytes]:
    """A value, and one of the many ways to write it down."""
    value = draw(values)
    document = json.dumps(value, indent=draw(st.sampled_from([None, 0, 3])), ensure_ascii=draw(st.booleans()))
    try:
        document.encode()
    except UnicodeEncodeError:
        document = json.dumps(value)
    bom = draw(st.sampled_from(["", "\ufeff"]))
    return value, (bom + draw(BLANKS) + document + draw(BLANKS)).encode()


@given(spaced())
def test_parse_reads_whatever_json_can_hold(case: tuple[Any, bytes]) -> None:
    value, raw = case
    assert same(text.parse(raw), value)


@given(st.one_of(st.binary(), st.text('{}[]",:\\0123456789eE.+-tfnN\x00 u').map(str.encode)))
def test_any_bytes_parse_or_are_not_json(raw: bytes) -> None:
    for read in (text.parse, text.members, text.elements):
        try:
            read(raw)
        except text.NotJson as error:
            assert str(error)


@given(VALUES)
def test_what_is_dumped_is_parsed_again(value: Any) -> None:
    assert same(text.parse(text.dump(value)), value)


@given(spaced(st.lists(VALUES, max_size=5)))
def test_elements_are_slices_of_the_array(case: tuple[Any, bytes]) -> None:
    values, raw = case
    pieces = text.elements(raw)
    assert all(same(text.parse(piece), value) for piece, value in zip(pieces, values, strict=True))
    assert all(piece in raw for piece in pieces)
    assert all(same(value, read) for value, (_, read) in zip(values, text.entries(raw), strict=True))


@given(spaced(st.dictionaries(ANY_TEXT, VALUES, max_size=5)))
def test_members_are_slices_of_the_object(case: tuple[Any, bytes]) -> None:
    value, raw = case
    found = text.members(raw)
    assert same({name: text.parse(piece) for name, piece in found}, value)
    for name, piece in found:
        assert piece in raw
        assert text.member(raw, name) == piece
    assert text.member(raw, "there is no such member") is None


@given(
    spaced(st.dictionaries(ANY_TEXT, VALUES, max_size=5)),
    st.dictionaries(ANY_TEXT, VALUES, max_size=3),
    st.lists(ANY_TEXT, max_size=2),
)
def test_with_members_changes_those_and_no_byte_of_the_others(
    case: tuple[Any, bytes], changes: dict[str, Any], drop: list[str]
) -> None:
    value, raw = case
    changed = text.with_members(raw, changes, drop)
    expected = {k: v for k, v in value.items() if k not in drop or k in changes} | changes
    assert same(text.parse(changed), expected)
    before, after = dict(text.members(raw)), dict(text.members(changed))
    assert all(after[name] == before[name] for name in after if name not in changes)


@pytest.mark.parametrize(
    "raw",
    [
        b'{"job":{"a":1},"z":{"job":{"b":2}}}',
        b'{"job":1,"z":[{"job":2}]}',
        b'{"job":1,"z":"\\",\\"job\\":3"}',
        b'{"job":1,"z\\",\\"job":3}',
        b'{"z":{"job":1}}',
        b'{"z":1,"job":{"job":{"job":1}}}',
        b'{"z":1,"job" : {"a":1} }',
        b'{"job":1,"job":2}',
        b'{"job":1,"job":2,"z":3}',
        b'{"job":2,"z":"job"}',
        b'{"job":NaN}',
        b'{"a":"}","job":"}"}',
    ],
)
def test_member_finds_the_top_level_one(raw: bytes) -> None:
    value = text.parse(raw)
    found = text.member(raw, "job")
    assert (found is None) == ("job" not in value)
    assert found is None or same(text.parse(found), value["job"])


def test_a_member_that_stands_twice_counts_as_its_last_and_is_set_once() -> None:
    assert text.with_members(b'{"a":1,"b":1.10,"a":2}', {"a": 3}) == b'{"a":3,"b":1.10}'


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b" \n",
        b"{",
        b"[1,2",
        b"[1,]",
        b'{"a":1,}',
        b'{"a" 1}',
        b"{1:2}",
        b"1 2",
        b"\xff\xfe",
        b'"\xff"',
        '{"a":1}'.encode("utf-16"),
        '{"a":1}'.encode("utf-16-le"),
        '{"a":1}'.encode("utf-32"),
        b"[" * 10_000,
        b"[" * 10_000 + b"]" * 10_000,
        b'{"a":' * 10_000 + b"1" + b"}" * 10_000,
        b"9" * 5000,
        b'"\xed\xa0\x80"',
        b"\x1f\x8b\x08\x00",
        b"'a'",
        b"nul",
        b"[1]]",
    ],
)
def test_not_json(raw: bytes) -> None:
    for read in (text.parse, text.members, text.elements):
        with pytest.raises(text.NotJson):
            read(raw)


def test_depth_is_judged_alike_whatever_the_parser() -> None:
    for inner in (b"1", b"NaN", b"18446744073709551617"):
        deepest = b"[" * text.MAX_DEPTH + inner + b"]" * text.MAX_DEPTH
        assert text.parse(deepest) is not None
        with pytest.raises(text.NotJson, match="deeper"):
            text.parse(b"[" + deepest + b"]")
    assert text.parse(b"[" + deepest + b"]", depth=text.MAX_DEPTH + 1) is not None


def test_brackets_in_strings_and_side_by_side_are_no_depth() -> None:
    assert text.parse(written(['[{\\"' * 1000, '"[[' * 1000])) == ['[{\\"' * 1000, '"[[' * 1000]
    assert text.parse(b"[" + b"[{}]," * 5000 + b"0]")[-1] == 0


@pytest.mark.parametrize("digits", ["18446744073709551616", "-9223372036854775809", str(2**70), "1" * 4000])
def test_integers_of_any_size_are_exact(digits: str) -> None:
    assert text.parse(digits.encode()) == int(digits)
    assert text.dump([int(digits)]) == b"[" + digits.encode() + b"]"


def test_nan_infinities_and_what_overflows_are_kept_as_such() -> None:
    value = text.parse(b"[NaN, Infinity, -Infinity, 1e999, null]")
    assert math.isnan(value[0])
    assert value[1:] == [math.inf, -math.inf, math.inf, None]
    assert text.dump(value) == b"[NaN,Infinity,-Infinity,Infinity,null]"


def test_dump_splices_verbatim_bytes_at_any_depth() -> None:
    slow, fast = [None, math.nan], [1, "é"]
    for other, spelled in ((slow, b"[null,NaN]"), (fast, '[1,"é"]'.encode())):
        value = {"a": [text.Verbatim(b"1.10"), {"b": text.Verbatim(b'{"c": 1e-7}')}], "o": other}
        assert text.dump(value) == b'{"a":[1.10,{"b":{"c": 1e-7}}],"o":' + spelled + b"}"
    assert text.dump(text.Verbatim(b"1.10")) == b"1.10"


def test_dump_refuses_what_json_cannot_hold() -> None:
    circle: list[Any] = []
    circle.append(circle)
    for value in (object(), [None, {1, 2}], circle, {"a": b"bytes", "n": None}):
        with pytest.raises((TypeError, ValueError)):
            text.dump(value)


@given(VALUES)
def test_strict_is_json_for_any_parser(value: Any) -> None:
    shown = json.dumps(text.strict(value), allow_nan=False, ensure_ascii=False).encode()
    assert text.parse(shown) is not None or value is None


def test_strict_spells_nan_and_infinities() -> None:
    value = {"a": [math.nan, math.inf, -math.inf, 1.5, 2**70, None, True, "é\ud800"]}
    assert text.strict(value) == {"a": ["NaN", "Infinity", "-Infinity", 1.5, 2**70, None, True, "é\\ud800"]}


@given(ANY_TEXT)
def test_safe_text_can_be_encoded_and_tells_apart(words: str) -> None:
    safe = text.safe(words)
    assert safe.encode().decode() == safe
    if not re.search("[\ud800-\udfff]", words):
        assert safe == words


@pytest.mark.parametrize("unit", [b'{"a":[1,2,{"b":"c"}]}', b"12345", b'"' + b"x" * 40 + b'"', b"[[[[]]]]"])
def test_ten_megabytes_take_about_ten_times_as_long_as_one(unit: bytes) -> None:
    def cut_up(size: int) -> Callable[[], None]:
        array = b"[" + b",".join([unit] * (size // (len(unit) + 1))) + b"]"

        def run() -> None:
            assert text.members(b'{"args":' + array + b',"z":1}') == [("args", array), ("z", b"1")]
            assert text.elements(array)[-1] == unit

        return run

    assert in_proportion(cut_up, 1_000_000, 10_000_000)


OBJECTS = st.lists(st.dictionaries(ANY_TEXT, VALUES, max_size=3), min_size=1, max_size=4)


@given(values=OBJECTS, separators=st.sampled_from([(",", ":"), (", ", ": "), (",\n ", " : ")]), bom=st.booleans())
def test_an_array_that_is_cut_quickly_is_cut_right(values: list[Any], separators: tuple[str, str], bom: bool) -> None:
    raw = (b"\xef\xbb\xbf " if bom else b"") + json.dumps(values, separators=separators).encode()
    quick, slow = text.entries(raw), slices.entries(raw)
    assert [each for each, _ in quick] == [each for each, _ in slow]
    assert all(same(left, right) for (_, left), (_, right) in zip(quick, slow, strict=True))


@pytest.mark.parametrize(
    "raw",
    [
        b'[{"a":"},{"},{"b":1}]',
        b'[{"a":[{"b":1},{"c":2}]},{"d":3}]',
        b'[{"a":1}, {"b":2},{"c":3}]',
        b'[{"a":12345678901234567890123},{"b":NaN}]',
        b"[{}]",
        b"[{},{}]",
        b'[{"a":1},]',
        b'[{"a":1}{"b":2}]',
        b'[{"a":1},{"b":2}',
        b'[{"a":1},{"b":}]',
        b'[{"a":"\xff"},{"b":1}]',
        b"[{" + b'"a":[' + b"[" * 199 + b"]" * 199 + b"]}]",
        b"[{" + b'"a":[' + b"[" * 200 + b"]" * 200 + b"]}]",
    ],
)
def test_what_cannot_be_cut_quickly_is_read_the_slow_way(raw: bytes) -> None:
    def read(by: Callable[[bytes], list[tuple[bytes, Any]]]) -> str:
        try:
            return repr(by(raw))
        except text.NotJson as error:
            return f"NotJson: {error}"

    assert read(text.entries) == read(slices.entries)


@pytest.mark.parametrize(
    ("raw", "changed"),
    [
        (b'{"jid": "a", "x": [1.10]}', b'{"jid": "new", "x": [1.10],"queue":"q"}'),
        (b'{"x":{"jid":1}}', b'{"x":{"jid":1},"jid":"new","queue":"q"}'),
        (b'{"jid" : 1, "x":{"jid":2}}', b'{"jid":"new","x":{"jid":2},"queue":"q"}'),
        (b'{"x":"jid","jid":null}', b'{"x":"jid","jid":"new","queue":"q"}'),
        (b'{"j\\u0069d":1,"x":{"jid":2}}', b'{"jid":"new","x":{"jid":2},"queue":"q"}'),
        (b'{"queue":12345678901234567890123,"n":1e400}', b'{"queue":"q","n":1e400,"jid":"new"}'),
        (
            b'{"queue":{"a":[{}]},"\xc3\xa9":"\xc3\xa9","jid":"\xc3\xa9"}',
            b'{"queue":"q","\xc3\xa9":"\xc3\xa9","jid":"new"}',
        ),
        (b"{}", b'{"jid":"new","queue":"q"}'),
    ],
)
def test_the_right_member_is_changed_whichever_way_is_taken(raw: bytes, changed: bytes) -> None:
    assert text.with_members(raw, {"jid": "new", "queue": "q"}) == changed


def test_an_unread_member_before_the_last_may_be_spaced() -> None:
    assert text.member(b'{"a": {"job": 1}, "job": {"n": 1.10} }', "job") == b'{"n": 1.10}'
    assert text.member(b'{"job": 1, "a": {"b": 2, "job": {"n": 1}}}', "job") == b"1"
