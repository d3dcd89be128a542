"""JSON written: exactly what was meant, digit for digit."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import orjson


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


_exact = _Exact(separators=(",", ":"), ensure_ascii=False)
_escaped = _Exact(separators=(",", ":"))


def dump(value: Any) -> bytes:
    """Compact JSON: integers of any size exact, NaN and infinities as those words, `Verbatim` bytes spliced.

    Text is UTF-8, lone surrogates are escaped. Raises TypeError or ValueError for what JSON cannot hold.
    """
    try:
        fast = orjson.dumps(value, default=_fragment)
    except TypeError:
        return _dump_exact(value)
    # orjson writes NaN as null: where a null came out, it has to be seen which it was (`in` takes longer than `find`)
    return _dump_exact(value) if fast.find(b"null") >= 0 and not _finite(value) else fast


def strict(value: Any) -> Any:
    """The value as any JSON parser takes it, for display.

    NaN and infinities become the strings "NaN", "Infinity", "-Infinity"; text becomes safe to encode (see `safe`); the
    rest is unchanged.
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


_NEVER_NAN = frozenset([str, int, bool, type(None), Verbatim])


def _finite(value: Any) -> bool:
    """Whether there is no NaN or infinity in it; False too for what may hide one."""
    kind = type(value)
    if kind is dict:
        return all(map(_finite, value.values()))
    if kind is list or kind is tuple:
        return all(map(_finite, value))
    return math.isfinite(value) if kind is float else kind in _NEVER_NAN


def _fragment(value: Any) -> Any:
    if isinstance(value, Verbatim):
        return orjson.Fragment(value.raw)
    raise TypeError(f"{type(value).__name__} is not JSON")


def _dump_exact(value: Any) -> bytes:
    if isinstance(value, Verbatim):
        return value.raw
    try:
        return _exact.encode(value).encode()
    except UnicodeEncodeError:  # a lone surrogate
        return _escaped.encode(value).encode()
    except _HasVerbatim:
        pass
    except RecursionError:
        raise ValueError("nested too deep") from None
    if isinstance(value, Mapping):
        parts = (_dump_exact(str(name)) + b":" + _dump_exact(each) for name, each in value.items())
        return b"{" + b",".join(parts) + b"}"
    return b"[" + b",".join(_dump_exact(each) for each in value) + b"]"
