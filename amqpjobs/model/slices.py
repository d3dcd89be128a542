"""Cutting JSON up and putting it together again without touching a byte of the parts."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Collection, Iterator, Mapping
from json.scanner import make_scanner
from typing import Any

import orjson

from amqpjobs.model.encoding import dump

MAX_DEPTH = 200
"""Levels of arrays and objects that a job may have. Fixed, and far below the parsers' own limits: those depend on how
deep the call stack happens to be, and two views would judge the same message differently."""

ENTRY_DEPTH = MAX_DEPTH + 2
"""Levels of a stream message: the deepest job, in an entry, in an array of entries."""

_BOM = b"\xef\xbb\xbf"
_SPACE = b" \t\n\r"
_ESCAPE = re.compile(rb"\\.", re.DOTALL)
_BRACKETS = bytes.maketrans(b"{}", b"[]")
_NOT_STRUCTURE = bytes(set(range(256)) - set(b'[]{}"'))
_BLANKS = frozenset(" \t\n\r")
_BLANK = re.compile(r"[ \t\n\r]*")
_NAME = re.compile(r'[ \t\n\r]*("[^"\\\x00-\x1f]*(?:\\.[^"\\\x00-\x1f]*)*")[ \t\n\r]*:[ \t\n\r]*')
_scan = make_scanner(json.JSONDecoder())  # type: ignore[arg-type]  # what the decoder itself does


class NotJson(ValueError):
    """These bytes are no JSON text that we read; the message says why."""


def bare(raw: bytes) -> bytes:
    """The text without a byte order mark and without white space around it: what can be spliced."""
    if raw[:1] == b"{" and raw[-1:] == b"}":
        return raw
    return raw.removeprefix(_BOM).strip(_SPACE)  # slices only where there is something to take off


def members(raw: bytes) -> list[tuple[str, bytes]]:
    """The top-level members of an object, each value's bytes as they came; NotJson when it is no object."""
    body = decode(raw)
    return [(name, body[value:end].encode()) for name, _, value, end in _members(body)]


def member(raw: bytes, name: str) -> bytes | None:
    """The bytes of one top-level member of a JSON object, None when it has no such member."""
    raw = bare(raw)
    if (last := last_member(raw, name)) is not None:
        return last[0]
    return next((value for each, value in reversed(members(raw)) if each == name), None)


def elements(raw: bytes) -> list[bytes]:
    """The elements of a top-level array, each one's bytes as they came; NotJson when it is no array."""
    body = decode(raw)
    return [body[at:end].encode() for at, end, _ in _elements(body)]


def entries(raw: bytes) -> list[tuple[bytes, Any]]:
    """The elements of a top-level array, each one's bytes and its value; NotJson when it is no array."""
    body = decode(raw)
    return [(body[at:end].encode(), value) for at, end, value in _elements(body)]


def with_members(raw: bytes, changes: Mapping[str, Any], drop: Collection[str] = ()) -> bytes:
    """The same object with members set or removed and the bytes of every other member untouched.

    A member that was there keeps its place, a new one is added at the end. NotJson when it is no object.
    """
    if not drop and (quick := _spliced(raw, changes)) is not None:
        return quick
    body = decode(raw)
    waiting = dict(changes)
    parts: list[str] = []
    for name, start, _, end in _members(body):
        if name in waiting:
            parts.append(_member(name, waiting.pop(name)))
        elif name not in changes and name not in drop:
            parts.append(body[start:end])
    parts.extend(_member(name, value) for name, value in waiting.items())
    return ("{" + ",".join(parts) + "}").encode()


def _spliced(raw: bytes, changes: Mapping[str, Any]) -> bytes | None:
    """`with_members` without reading every member; None where it is not certain which bytes a member has."""
    raw = bare(raw)
    try:
        value = orjson.loads(raw)
    except ValueError:
        return None
    return spliced(raw, value, changes) if isinstance(value, dict) else None


def spliced(raw: bytes, value: Mapping[str, Any], changes: Mapping[str, Any]) -> bytes | None:
    """`with_members` of a bare object that was read already; None where it is not certain which bytes a member has.

    Without a backslash, `"name"` stands for a string of its own wherever it stands. If the object has such a member and
    the string is there once, it is the member's name. What has its value already keeps its bytes.
    """
    if not value or b"\\" in raw or raw.count(b"[") + raw.count(b"{") > MAX_DEPTH:
        return None
    body, added = raw, b""
    for name, change in changes.items():
        quoted = _quoted(name)
        if name not in value:
            added += b"," + quoted + b":" + dump(change)
        elif body.count(quoted) != 1:
            return None
        elif type(value[name]) is not type(change) or value[name] != change:
            body = _replaced(body.decode(), quoted.decode(), dump(change).decode()).encode()
    return body[:-1] + added + b"}"


def _replaced(body: str, quoted: str, value: str) -> str:
    begin = _skip(body, _expect(body, _skip(body, body.index(quoted) + len(quoted)), ":"))
    return body[:begin] + value + body[value_at(body, begin)[1] :]


@functools.lru_cache(256)
def _quoted(name: str) -> bytes:
    return dump(name)


def check_depth(raw: bytes, depth: int) -> None:
    """Raise NotJson when brackets nest deeper than `depth`. It takes them off from the inside, a level at a time."""
    structure = (_ESCAPE.sub(b"", raw) if b"\\" in raw else raw).translate(_BRACKETS, _NOT_STRUCTURE)
    left = b"".join(structure.split(b'"')[::2])  # what stands outside of strings
    for _ in range(depth):
        inner, left = left, left.replace(b"[]", b"")  # one level less
        if len(inner) == len(left):
            break
    if left:
        raise NotJson(f"brackets do not match, or nest deeper than {depth} levels")


def last_member(raw: bytes, name: str) -> tuple[bytes, Any] | None:
    """The bytes and the value of the member if it is the last of the bare object, as `job` is in an entry: found
    without reading the rest. The value as orjson reads it: of a number beyond 64 bits only the bytes are to be trusted.

    What follows its name up to the closing brace is its value only if that is one JSON value: from a member further in,
    a brace would be left over. And no string holds an unescaped quote, so what looks like a name is one.
    """
    opening = _quoted(name) + b":"
    at = raw.rfind(opening)
    if at < 1 or raw[max(0, at - 8) : at].rstrip(_SPACE)[-1:] not in (b",", b"{"):
        return None
    value = bare(raw[at + len(opening) : -1])
    try:
        return value, orjson.loads(value)
    except ValueError:
        return None


def decode(raw: bytes) -> str:
    """The text of a JSON document; NotJson when it is none for its encoding or depth."""
    raw = bare(raw)
    if not raw:
        raise NotJson("empty")
    if raw.count(b"[") + raw.count(b"{") > ENTRY_DEPTH:
        check_depth(raw, ENTRY_DEPTH)
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise NotJson(f"not UTF-8 at byte {error.start}") from None


def value_at(body: str, at: int) -> tuple[Any, int]:
    """The value that starts at `at`, and where it ends."""
    try:
        value, end = _scan(body, at)
    except StopIteration:
        raise NotJson(f"expected a value at character {at}") from None
    except (ValueError, RecursionError) as error:
        raise NotJson(str(error)) from None
    return value, end


def _elements(body: str) -> Iterator[tuple[int, int, Any]]:
    """Where each element of an array starts, where it ends, and its value."""
    at = _skip(body, _expect(body, 0, "["))
    sign = "]" if body.startswith("]", at) else ","
    while sign == ",":
        value, end = value_at(body, at)
        yield at, end, value
        sign = body[end : end + 1]
        if sign in _BLANKS:
            end = _skip(body, end)
            sign = body[end : end + 1]
        at = end + 1 if sign == "," else end
        if body[at : at + 1] in _BLANKS:
            at = _skip(body, at)
    _end(body, _expect(body, at, "]"))


def _skip(body: str, at: int) -> int:
    """Where the white space at `at` ends."""
    if body[at : at + 1] not in _BLANKS:
        return at
    blank = _BLANK.match(body, at)
    return blank.end() if blank else at


def _expect(body: str, at: int, sign: str) -> int:
    if not body.startswith(sign, at):
        raise NotJson(f"expected {sign} at character {at}")
    return at + len(sign)


def _end(body: str, at: int) -> None:
    if at != len(body):
        raise NotJson(f"something follows at character {at}")


def _members(body: str) -> Iterator[tuple[str, int, int, int]]:
    """Of each member of an object: its name, where the name starts, where the value starts, where it ends."""
    at = _skip(body, _expect(body, 0, "{"))
    sign = "}" if body.startswith("}", at) else ","
    while sign == ",":
        name = _NAME.match(body, at)
        if name is None:
            raise NotJson(f"expected a member at character {at}")
        begin = name.end()
        end = value_at(body, begin)[1]
        yield _name(name[1]), name.start(1), begin, end
        at = _skip(body, end)
        sign = body[at : at + 1]
        at += sign == ","
    _end(body, _expect(body, at, "}"))


def _name(quoted: str) -> str:
    if "\\" not in quoted:
        return quoted[1:-1]
    try:
        return str(json.loads(quoted))
    except ValueError as error:
        raise NotJson(str(error)) from None


def _member(name: str, value: Any) -> str:
    return f"{dump(name).decode()}:{dump(value).decode()}"
