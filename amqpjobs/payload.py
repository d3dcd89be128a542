"""The JSON of one job as it goes over the wire: options checked, arguments checked, then written.

What is refused here is refused before anything is sent, with an error that names the argument or option.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, TypedDict, cast

from amqpjobs.errors import seconds
from amqpjobs.model import names, text

MAX_DEPTH = text.MAX_DEPTH - 2
"""Arguments nested deeper would make a job that no reader of ours takes (the job and its `args` are two levels)."""
MAX_INTEGER_BITS = 14_000
"""Integers of about 4,200 digits and more are refused: readers give up on them."""
MAX_RETRY = 1000
MOST_KEY = 4096
"""Characters of a singleton's key."""
_TEXT = frozenset([str])


class JobOptions(TypedDict, total=False):
    """What a job may carry beside its class and arguments: options of `@job(...)` and of `enqueue(...)`."""

    queue: str
    """1 to 200 of letters, digits and `._-:`; `default` when not given."""
    retry: bool | int
    """How many retries after the first run (0 to 1000): False or 0 for none, True for the default of 25."""
    priority: int
    """0 (last) to 10 (first); without one a job waits with those of 0."""
    tags: Sequence[str]
    timeout: float | timedelta
    """Seconds that one run may take."""
    retry_delays: Sequence[float]
    """Seconds before each retry, in order; the last one repeats."""
    min_backoff: float | timedelta
    max_backoff: float | timedelta
    """Bounds in seconds of a delay that doubles with each retry, in place of the default backoff."""
    expires_in: float | timedelta
    """Seconds that the job may wait in its queue; an older one is dropped unrun."""
    dead: bool
    """False: discarded, and counted as failed, when the last try fails; True (default): kept among the dead."""
    backtrace: bool | int
    track: bool
    """True: its life can be asked about (docs/tracked.md)."""
    key: str
    """At most one job of a key and queue runs at a time; such a job is tracked."""
    meta: Mapping[str, Any]
    """Anything of yours in JSON; it travels along unchanged."""


class EnqueueOptions(JobOptions, total=False):
    """What one call of `enqueue` may say."""

    jid: str
    """The job's id; 24 random hexadecimal digits when not given."""


def document(
    name: str, args: list[Any] | dict[str, Any], options: EnqueueOptions, *, jid: str, now: float
) -> dict[str, Any]:
    """The job as a JSON object, everything checked. Raises TypeError or ValueError naming what is wrong."""
    if not isinstance(name, str) or not name:
        raise TypeError(f"a job is named by a non-empty string or a @job function, not {name!r}")
    checked = check_options(options) if options else {}
    carry(name, args)
    body: dict[str, Any] = {
        "jid": jid,
        "class": name,
        "args": args,
        "queue": names.DEFAULT_QUEUE,
        "retry": 25,
        "retry_count": 0,
        "enqueued_at": now,
        "created_at": now,
    }
    body.update(checked)
    return body


def encode(job: Mapping[str, Any]) -> bytes:
    """The object as compact JSON; digits of any length and NaN survive."""
    return text.dump(job)


def check_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options as they go into the job's JSON; `jid` is left to the caller."""
    checked = {}
    for key, value in options.items():
        if key == "jid":
            continue
        check = _CHECKS.get(key)
        if check is None:
            raise TypeError(f"unknown option {key!r}; options are {', '.join([*_CHECKS, 'jid'])}")
        if value is not None:
            checked[key] = check(key, value)
    return checked


def check_jid(jid: object) -> str:
    """A job's id as the caller wants it: a non-empty string of at most 255 bytes (AMQP's limit for a message id)."""
    if not isinstance(jid, str) or not 0 < len(jid.encode("utf-8", "replace")) <= 255:
        raise ValueError(f"jid is a string of 1 to 255 bytes, not {jid!r}")
    return jid


def _queue(key: str, value: object) -> str:
    if not names.is_queue_name(value):
        raise ValueError(
            f"{value!r} cannot be a queue's name: 1 to 200 of ASCII letters, digits and . _ - : are allowed"
        )
    return cast(str, value)


def _retry(key: str, value: object) -> int | bool:
    if isinstance(value, bool):
        return value
    return _whole(key, value, MAX_RETRY)


def _priority(key: str, value: object) -> int:
    return _whole(key, value, names.MAX_PRIORITY)


def _whole(key: str, value: object, highest: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{key} is a whole number from 0 to {highest}, not {value!r}")
    if not 0 <= value <= highest:
        raise ValueError(f"{key} is a whole number from 0 to {highest}, not {value}")
    return value


def _seconds(key: str, value: Any) -> float:
    try:
        number = seconds(value)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{key}: {error}") from None
    if number is None or number <= 0:
        raise ValueError(f"{key} is a number of seconds above 0, not {value!r}")
    return number


def _delays(key: str, value: object) -> list[float]:
    if isinstance(value, str | bytes) or not isinstance(value, Sequence) or not value:
        raise TypeError(f"{key} is a list of seconds with at least one in it, not {value!r}")
    return [0.0 if one == 0 else _seconds(key, one) for one in value]


def _tags(key: str, value: object) -> list[str]:
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        raise TypeError(f"{key} is a list of strings, not {value!r}")
    if not all(isinstance(tag, str) and tag for tag in value):
        raise TypeError(f"{key} is a list of strings that are not empty; {value!r} holds something else")
    return list(value)


def _flag(key: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{key} is True or False, not {value!r}")
    return value


def _backtrace(key: str, value: object) -> bool | int:
    return value if isinstance(value, bool) else _whole(key, value, 10_000)


def _key(key: str, value: object) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= MOST_KEY:
        raise ValueError(f"{key} is a string of 1 to {MOST_KEY} characters, not {str(value)[:80]!r}")
    return value


def _meta(key: str, value: object) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise TypeError(f"{key} is a mapping with string keys, not {value!r}")
    _carry(dict(value), key, 0)
    return dict(value)


_CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "queue": _queue,
    "retry": _retry,
    "priority": _priority,
    "tags": _tags,
    "timeout": _seconds,
    "retry_delays": _delays,
    "min_backoff": _seconds,
    "max_backoff": _seconds,
    "expires_in": _seconds,
    "dead": _flag,
    "backtrace": _backtrace,
    "track": _flag,
    "key": _key,
    "meta": _meta,
}

_HINTS = {
    "datetime": "pass value.isoformat() or a number of seconds",
    "date": "pass value.isoformat()",
    "time": "pass value.isoformat()",
    "timedelta": "pass value.total_seconds()",
    "UUID": "pass str(value)",
    "Decimal": "pass str(value)",
    "bytes": "pass text, or base64.b64encode(value).decode()",
    "bytearray": "pass text, or base64.b64encode(value).decode()",
    "set": "pass a list",
    "frozenset": "pass a list",
    "generator": "pass a list",
    "PosixPath": "pass str(value)",
}


def carry(name: str, args: Sequence[Any] | Mapping[str, Any]) -> None:
    """Check that JSON can carry the arguments as they are. Raises TypeError naming the one that it cannot."""
    if _plain_object(args, 1) if isinstance(args, dict) else _plain(args, 1):
        return
    pairs = args.items() if isinstance(args, Mapping) else enumerate(args)
    for key, value in pairs:
        where = f"argument {key!r}" if isinstance(key, str) else f"argument {key}"
        if isinstance(args, Mapping) and not isinstance(key, str):
            raise TypeError(f"{name}: keyword arguments have strings as names, not {key!r}")
        try:
            _carry(value, where, 1)
        except TypeError as error:
            raise TypeError(f"{name}: {error}; nothing was sent") from None


def _plain(values: Iterable[object], depth: int) -> bool:
    """The same check without words: True for values of JSON's own types, and False for what needs a closer look."""
    for value in values:
        kind = type(value)
        if kind is str or value is None or kind is bool or kind is float:
            continue
        if kind is int:
            if cast(int, value).bit_length() > MAX_INTEGER_BITS:
                return False
        elif depth > MAX_DEPTH:
            return False
        elif kind is list or kind is tuple:
            if not _plain(cast("list[object]", value), depth + 1):
                return False
        elif kind is not dict or not _plain_object(cast("dict[object, object]", value), depth + 1):
            return False
    return True


def _plain_object(value: Mapping[Any, object], depth: int) -> bool:
    return _TEXT.issuperset(map(type, value)) and _plain(value.values(), depth)


def _carry(value: object, where: str, depth: int) -> None:
    """JSON's own types only: a silent conversion would hand the handler something else than the caller passed."""
    if value is None or isinstance(value, str | bool | float):
        return
    if isinstance(value, int):
        if value.bit_length() > MAX_INTEGER_BITS:
            raise TypeError(f"{where} is an integer of thousands of digits: pass hex(value), a string")
        return
    if depth > MAX_DEPTH:
        raise TypeError(f"{where[:80]}… is nested deeper than {MAX_DEPTH}: pass it flat, or as one string")
    if isinstance(value, list | tuple):
        for index, item in enumerate(value):
            _carry(item, f"{where}[{index}]", depth + 1)
    elif isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise TypeError(f"{where} has the key {key!r}: keys of JSON objects are strings, pass str(key)")
            _carry(item, f"{where}[{key!r}]", depth + 1)
    else:
        kind = type(value).__name__
        hint = _HINTS.get(kind, "pass what the job can look it up by, such as an id, or its fields as a dict")
        raise TypeError(f"{where} is a {kind}, which JSON cannot carry: {hint}")
