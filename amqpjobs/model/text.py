"""JSON as it comes over the wire: read leniently, and passed on byte for byte.

A job travels through schedule, retry, dead and back inside other JSON objects. It is never parsed and written again on
the way (which would turn `1.10` into `1.1` and 2**70 into a float): its bytes are cut out and spliced in.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Mapping
from typing import Any

import orjson

MAX_DEPTH = 200
"""Levels of arrays and objects that a job may have. Fixed, and far below the parsers' own limits: those depend on how
deep the call stack happens to be, and two views would judge the same message differently."""

ENTRY_DEPTH = MAX_DEPTH + 2
"""Levels of a stream message: the deepest job, in an entry, in an array of entries."""

_BOM = b"\xef\xbb\xbf"
_SPACE = b" \t\n\r"
_OUTLINE = bytes.maketrans(b"{123456789", b"[000000000")
_LONG_NUMBER = b"0" * 19
_ESCAPE = re.compile(rb"\\.", re.DOTALL)
_BRACKETS = bytes.maketrans(b"{}", b"[]")
_NOT_STRUCTURE = bytes(set(range(256)) - set(b'[]{}"'))
_BLANKS = frozenset(" \t\n\r")
_BLANK = re.compile(r"[ \t\n\r]*")
_NAME = re.compile(r'[ \t\n\r]*("[^"\\\x00-\x1f]*(?:\\.[^"\\\x00-\x1f]*)*")[ \t\n\r]*:[ \t\n\r]*')
_scan = json.JSONDecoder().scan_once


class NotJson(ValueError):
    """These bytes are no JSON text that we read; the message says why."""


class Verbatim:
    """JSON bytes that `dump` splices as they are, unchecked."""

    __slots__ = ("raw",)

    def __init__(self, raw: bytes) -> None:
        self.raw = raw


class _HasVerbatim(Exception):
    """The exact encoder met a `Verbatim` further down."""


class _Exact(json.JSONEncoder):
    """The slow encoder, which changes no number."""

    def default(self, o: Any) -> Any:
        """What JSON does not know: a Verbatim, or what orjson writes as well (dates, dataclasses, enums)."""
        if isinstance(o, Verbatim):
            raise _HasVerbatim
        return orjson.loads(orjson.dumps(o))


_exact = _Exact(separators=(",", ":"))


def parse(raw: bytes, *, depth: int = MAX_DEPTH) -> Any:
    """Read UTF-8 JSON (NaN, Infinity, lone surrogates and integers of any size up to 4,300 digits included).

    Raises NotJson, and nothing else, for everything else: other encodings, nothing at all, more than `depth` levels.
    """
    raw = bare(raw)
    outline = raw.translate(_OUTLINE)  # every digit a 0, every bracket that opens a [
    if outline.count(b"[") > depth:
        _check_depth(raw, depth)
    if _LONG_NUMBER not in outline:  # orjson turns integers beyond 64 bits into floats without a word
        try:
            return orjson.loads(raw)
        except ValueError:
            pass  # it may still be one of the things that only the standard parser reads
    body = _decode(raw)
    value, end = _value_at(body, 0)
    if end != len(body):
        raise NotJson(f"something follows the value at character {end}")
    return value


def bare(raw: bytes) -> bytes:
    """The text without a byte order mark and without white space around it: what can be spliced."""
    return raw.removeprefix(_BOM).strip(_SPACE)  # slices only where there is something to take off


def members(raw: bytes) -> list[tuple[str, bytes]]:
    """The top-level members of an object, each value's bytes as they came; NotJson when it is no object."""
    body = _decode(raw)
    return [(name, body[value:end].encode()) for name, _, value, end in _members(body)]


def member(raw: bytes, name: str) -> bytes | None:
    """The bytes of one top-level member of a JSON object, None when it has no such member."""
    raw = bare(raw)
    found = _last_member(raw, name)
    if found is None:
        found = next((value for each, value in reversed(members(raw)) if each == name), None)
    return found


def elements(raw: bytes) -> list[bytes]:
    """The elements of a top-level array, each one's bytes as they came; NotJson when it is no array."""
    return [piece for piece, _ in entries(raw)]


def entries(raw: bytes) -> list[tuple[bytes, Any]]:
    """The elements of a top-level array, each one's bytes and its value; NotJson when it is no array."""
    body = _decode(raw)
    if not body.startswith("["):
        raise NotJson("not an array")
    found: list[tuple[bytes, Any]] = []
    at = _skip(body, 1)
    if body.startswith("]", at):
        at += 1
    else:
        while True:
            value, end = _value_at(body, at)
            found.append((body[at:end].encode(), value))
            at = _skip(body, end)
            if not body.startswith(",", at):
                break
            at = _skip(body, at + 1)
        at = _expect(body, at, "]")
    if at != len(body):
        raise NotJson(f"something follows the array at character {at}")
    return found


def with_members(raw: bytes, changes: Mapping[str, Any], drop: Collection[str] = ()) -> bytes:
    """The same object with members set or removed and the bytes of every other member untouched.

    A member that was there keeps its place, a new one is added at the end. NotJson when it is no object.
    """
    body = _decode(raw)
    waiting = dict(changes)
    parts: list[str] = []
    for name, start, _, end in _members(body):
        if name in waiting:
            parts.append(_member(name, waiting.pop(name)))
        elif name not in changes and name not in drop:
            parts.append(body[start:end])
    parts.extend(_member(name, value) for name, value in waiting.items())
    return ("{" + ",".join(parts) + "}").encode()


def dump(value: Any) -> bytes:
    """Compact JSON: integers of any size exact, NaN and infinities as those words, `Verbatim` bytes spliced.

    Text is UTF-8, lone surrogates are escaped. Raises TypeError or ValueError for what JSON cannot hold.
    """
    try:
        fast = orjson.dumps(value, default=_fragment)
    except TypeError:
        return _dump_exact(value)
    # orjson writes NaN as null: where a null came out, only the slow way tells which it was
    return _dump_exact(value) if b"null" in fast else fast


def strict(value: Any) -> Any:
    """The value for display: NaN and infinities become the strings "NaN", "Infinity", "-Infinity", and text becomes

    safe to encode (see `safe`); the rest is unchanged. What comes out is JSON for any parser.
    """
    if isinstance(value, float):
        return value if math.isfinite(value) else _exact.encode(value)
    if isinstance(value, str):
        return safe(value)
    if isinstance(value, list):
        return [strict(each) for each in value]
    if isinstance(value, dict):
        return {strict(name): strict(each) for name, each in value.items()}
    return value


def safe(words: str) -> str:
    """The text with lone surrogates spelled out (`\\ud800`), which no log, database or UTF-8 encoder takes."""
    if words.isascii():
        return words
    return words.encode("utf-8", "backslashreplace").decode()


def _check_depth(raw: bytes, depth: int) -> None:
    """Raise NotJson when brackets nest deeper than `depth`. It takes them off from the inside, a level at a time."""
    structure = (_ESCAPE.sub(b"", raw) if b"\\" in raw else raw).translate(_BRACKETS, _NOT_STRUCTURE)
    left = b"".join(structure.split(b'"')[::2])  # what stands outside of strings
    for _ in range(depth):
        inner, left = left, left.replace(b"[]", b"")  # one level less
        if len(inner) == len(left):
            break
    if left:
        raise NotJson(f"brackets do not match, or nest deeper than {depth} levels")


def _last_member(raw: bytes, name: str) -> bytes | None:
    """The bytes of the member if it is the last one of the object, found without reading the others (the usual case:

    `job` ends an entry). What follows its name up to the closing brace is its value only if that is one JSON value:
    from a member further in, a brace would be left over, and an unescaped quote after a comma begins a name.
    """
    opening = b'"%s":' % name.encode()
    at = raw.rfind(opening)
    if at < 1 or raw[at - 1] not in b",{" or not raw.endswith(b"}"):
        return None
    value = bare(raw[at + len(opening) : -1])
    try:
        orjson.loads(value)
    except ValueError:
        return None
    return value


def _decode(raw: bytes) -> str:
    raw = bare(raw)
    if not raw:
        raise NotJson("empty")
    if raw.count(b"[") + raw.count(b"{") > ENTRY_DEPTH:
        _check_depth(raw, ENTRY_DEPTH)
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise NotJson(f"not UTF-8 at byte {error.start}") from None


def _value_at(body: str, at: int) -> tuple[Any, int]:
    """The value that starts at `at`, and where it ends."""
    try:
        value, end = _scan(body, at)
    except StopIteration:
        raise NotJson(f"expected a value at character {at}") from None
    except (ValueError, RecursionError) as error:
        raise NotJson(str(error)) from None
    return value, end


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


def _members(body: str) -> list[tuple[str, int, int, int]]:
    """Of each member of an object: its name, where the name starts, where the value starts, where it ends."""
    if not body.startswith("{"):
        raise NotJson("not an object")
    found: list[tuple[str, int, int, int]] = []
    at = _skip(body, 1)
    if body.startswith("}", at):
        at += 1
    else:
        while True:
            name = _NAME.match(body, at)
            if name is None:
                raise NotJson(f"expected a member at character {at}")
            start, begin = name.start(1), name.end()
            _, end = _value_at(body, begin)
            found.append((_name(name[1]), start, begin, end))
            at = _skip(body, end)
            if not body.startswith(",", at):
                break
            at += 1
        at = _expect(body, at, "}")
    if at != len(body):
        raise NotJson(f"something follows the object at character {at}")
    return found


def _name(quoted: str) -> str:
    if "\\" not in quoted:
        return quoted[1:-1]
    try:
        return str(json.loads(quoted))
    except ValueError as error:
        raise NotJson(str(error)) from None


def _member(name: str, value: Any) -> str:
    return f"{dump(name).decode()}:{dump(value).decode()}"


def _fragment(value: Any) -> Any:
    if isinstance(value, Verbatim):
        return orjson.Fragment(value.raw)
    raise TypeError(f"{type(value).__name__} is not JSON")


def _dump_exact(value: Any) -> bytes:
    if isinstance(value, Verbatim):
        return value.raw
    try:
        return _exact.encode(value).encode()
    except _HasVerbatim:
        pass
    except RecursionError:
        raise ValueError("nested too deep") from None
    if isinstance(value, Mapping):
        parts = (_dump_exact(str(name)) + b":" + _dump_exact(each) for name, each in value.items())
        return b"{" + b",".join(parts) + b"}"
    return b"[" + b",".join(_dump_exact(each) for each in value) + b"]"
