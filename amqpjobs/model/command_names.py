"""Names for commands that sort by when they were made: `{milliseconds:011x}-{run}-{number:x}`.

Verdicts are kept by name, so those of one time lie together on disk; and a name that is greater than all that were
judged is new, without a look. Any other name does for a command as well.
"""

from __future__ import annotations

_DATE = 11
"""Hexadecimal digits of the milliseconds since 1970: enough until the year 2527."""


def dated(at: float, run: str, number: int) -> str:
    """The name of a command made at `at` (seconds since 1970), the `number`th of its process's run."""
    return f"{int(at * 1000):0{_DATE}x}-{run}-{number:x}"


def is_dated(name: str) -> bool:
    """Whether it looks like one of these. It may be anybody's: only order is taken from it."""
    return name[_DATE : _DATE + 1] == "-"
