"""The trail of a log: a few bits of each of its last messages. It tells a log from another under its name.

The last message alone does not. A broker that loses the log's tail (a power cut: streams are not synced to the disk)
takes other messages in its place, and one whose confirm was lost is sent again: that very message may land where it
stood, after others than before. So whoever comes back to a log, or begins in its middle with a checkpoint, compares the
last LENGTH messages, as far as retention left them. To look alike all of them would have to land again, each at its
place.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import NamedTuple

LENGTH = 100


class Step(NamedTuple):
    """A message's offset, and the CRC-32 of its body."""

    offset: int
    crc: int


def step(offset: int, body: bytes) -> Step:
    """The step that this message is."""
    return Step(offset, zlib.crc32(body))


def continued(trail: Sequence[Step], steps: Sequence[Step]) -> tuple[Step, ...]:
    """The trail after these steps too. Where it leads beyond them already, as a checkpoint's does for who begins below
    its end, it stays."""
    return (*trail, *(each for each in steps if not trail or each.offset > trail[-1].offset))[-LENGTH:]


def agrees(trail: Sequence[Step], found: Sequence[Step]) -> bool:
    """Whether `found`, the messages of a log from the trail's first one on, as far as there are any, are the trail's.

    Retention may have taken the first ones, never the rest. A trail of nothing, which is what was known before there
    were trails, says nothing.
    """
    if not trail:
        return True
    return bool(found) and [each for each in trail if each.offset >= found[0].offset] == list(found)
