"""JSON as it comes over the wire: read leniently, and passed on byte for byte.

A job travels through schedule, retry, dead and back inside other JSON objects. It is never parsed and written again on
the way (which would turn `1.10` into `1.1` and 2**70 into a float): its bytes are cut out and spliced in.
"""

from __future__ import annotations

from typing import Any

import orjson

from amqpjobs.model import slices
from amqpjobs.model.encoding import Verbatim, dump, safe, strict
from amqpjobs.model.slices import (
    ENTRY_DEPTH,
    MAX_DEPTH,
    NotJson,
    bare,
    check_depth,
    decode,
    elements,
    last_member,
    member,
    members,
    spliced,
    value_at,
    with_members,
)

__all__ = [
    "ENTRY_DEPTH",
    "MAX_DEPTH",
    "NotJson",
    "Verbatim",
    "bare",
    "dump",
    "elements",
    "entries",
    "flat",
    "last_member",
    "member",
    "members",
    "parse",
    "parse_bare",
    "safe",
    "spliced",
    "strict",
    "with_members",
]

_OUTLINE = bytes.maketrans(b"{123456789", b"[000000000")
_LONG_NUMBER = b"0" * 19


def parse(raw: bytes, *, depth: int = MAX_DEPTH) -> Any:
    """Read UTF-8 JSON (NaN, Infinity, lone surrogates and integers of any size up to 4,300 digits included).

    Raises NotJson, and nothing else, for everything else: other encodings, nothing at all, more than `depth` levels.
    """
    return parse_bare(bare(raw), depth=depth)


def parse_bare(raw: bytes, *, depth: int = MAX_DEPTH) -> Any:
    """`parse`, of what is `bare`."""
    outline = raw.translate(_OUTLINE)  # every digit a 0, every bracket that opens a [
    if outline.count(b"[") > depth:
        check_depth(raw, depth)
    if _LONG_NUMBER not in outline:  # orjson turns integers beyond 64 bits into floats without a word
        try:
            return orjson.loads(raw)
        except ValueError:
            pass  # it may still be one of the things that only the standard parser reads
    body = decode(raw)
    value, end = value_at(body, 0)
    if end != len(body):
        raise NotJson(f"something follows the value at character {end}")
    return value


def entries(raw: bytes) -> list[tuple[bytes, Any]]:
    """The elements of a top-level array, each one's bytes and its value; NotJson when it is no array.

    An array of objects is first cut where one seems to end and the next to begin. If each of the pieces is an object,
    the cut was right: objects with commas between them are an array of exactly these, in one way only.
    """
    body = bare(raw)
    if body.startswith(b"[{") and body.endswith(b"}]"):
        between = b"},{" if b"},{" in body else b"}, {"
        pieces = [b"{" + piece + b"}" for piece in body[2:-2].split(between)]
        try:
            return [(piece, parse(piece, depth=ENTRY_DEPTH - 1)) for piece in pieces]
        except NotJson:
            pass  # it was cut inside of one, or is no JSON: the slow way tells
    return slices.entries(raw)


def flat(raw: bytes) -> list[dict[str, Any]] | None:
    """The object, or the objects of an array, when no bracket is in any of them; None of all else.

    For who reads many and knows what to do with the rest: `parse` and `entries` tell the same, and take longer.
    """
    try:
        value = orjson.loads(raw)
    except ValueError:
        return None
    outline, several = raw.translate(_OUTLINE), type(value) is list
    found = value if several else [value]
    if outline.count(b"[") != len(found) + several or set(map(type, found)) != {dict}:
        return None
    if _LONG_NUMBER in outline and any(map(_rounded, (each for entry in found for each in entry.values()))):
        return None
    return found


def _rounded(value: Any) -> bool:
    """Whether this may be an integer beyond 64 bits that became a float."""
    return type(value) is float and abs(value) >= 2**63
