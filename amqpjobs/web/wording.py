"""Figures as people read them. Nothing here is rounded so far that it says something else."""

from __future__ import annotations

from datetime import UTC, datetime

from amqpjobs.model.tally import LAST_INSTANT

_SIZES = ("B", "kB", "MB", "GB", "TB")


def number(value: float | None) -> str:
    """A count with its thousands apart; an en dash when it is not known."""
    return "–" if value is None else f"{value:,.0f}"


def rate(per_second: float | None) -> str:
    """Jobs a second: one decimal below a hundred, none above."""
    if per_second is None:
        return "–"
    if per_second == 0:
        return "0"
    return f"{per_second:.1f}" if per_second < 100 else f"{per_second:,.0f}"


def share(part: int, whole: int) -> str:
    """A percentage; tiny ones are not rounded to nothing, nor nearly all to all."""
    if whole <= 0 or part <= 0:
        return "0 %"
    percent = 100 * part / whole
    if percent < 0.1:
        return "under 0.1 %"
    if part < whole and percent > 99.9:
        return "over 99.9 %"
    return f"{percent:.1f} %"


def duration(seconds: float | None) -> str:
    """A length of time in its two largest units; an en dash when it is not known."""
    if seconds is None:
        return "–"
    if seconds < 0.9995:
        return f"{_short(max(0.0, seconds) * 1000)} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    whole = int(seconds)
    days, hours, minutes = whole // 86400, whole // 3600 % 24, whole // 60 % 60
    units = [(days, "d"), (hours, "h"), (minutes, "min"), (whole % 60, "s")]
    first = next(place for place, (value, _) in enumerate(units) if value)
    return " ".join(f"{value:,} {unit}" for value, unit in units[first : first + 2] if value)


def _short(ms: float) -> str:
    """Two digits at least: most jobs of those who run thousands a second take less than a millisecond."""
    if ms < 0.005:
        return "0"
    return f"{ms:.2f}" if ms < 0.995 else f"{ms:.1f}" if ms < 9.95 else f"{ms:.0f}"


def age(seconds: float) -> str:
    """How long ago, whole seconds and up: it is read live, and tenths would flicker."""
    return duration(seconds) if seconds >= 60 else f"{max(0.0, seconds):.0f} s"


def size(kilobytes: float | None) -> str:
    """Memory, told in units of 1,024 bytes as `rss_kb` is; an en dash when it is not known."""
    if kilobytes is None:
        return "–"
    value = kilobytes * 1024
    for unit in _SIZES:
        if value < 1000 or unit == _SIZES[-1]:
            break
        value /= 1000
    return f"{value:,.0f} {unit}" if value >= 100 or unit == "B" else f"{value:.1f} {unit}"


def iso(at: float) -> str:
    """An instant for machines (`2026-11-27T23:41:00.000Z`); the empty string when no calendar has it."""
    if not 0 <= at < LAST_INSTANT:
        return ""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def instant(at: float) -> str:
    """An instant for people without JavaScript, in UTC; with it, the page shows the viewer's own zone."""
    if not 0 <= at < LAST_INSTANT:
        return "–"
    return datetime.fromtimestamp(at, UTC).strftime("%-d %b %H:%M UTC")


def date(at: float) -> str:
    """The UTC day of an instant."""
    return datetime.fromtimestamp(at, UTC).strftime("%-d %b") if 0 <= at < LAST_INSTANT else "–"


def segment(queue: str) -> str:
    """A queue's name as a part of an address: browsers take `.` and `..` for the way up, however they are written."""
    return f"~{queue}" if queue in (".", "..") else queue
