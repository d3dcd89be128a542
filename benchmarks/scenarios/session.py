"""What every scenario is handed: the broker, a folder, how much to do; and where it says what goes on."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.broker import Broker
from benchmarks.peers.product import Product
from benchmarks.place import Place, place


@dataclass(slots=True)
class Session:
    """One `make bench`. `scale` shortens all runs, for trying out; `failures` are said in the report."""

    broker: Broker
    work: Path
    runs: int = 3
    scale: float = 1.0
    failures: dict[str, str] = field(default_factory=dict)
    minutes: float = 25.0
    """After which nothing is repeated any more: further runs are left out."""
    begun: float = field(default_factory=time.monotonic)

    @property
    def left(self) -> float:
        """Seconds until then."""
        return self.begun + 60 * self.minutes - time.monotonic()

    def jobs(self, count: int) -> int:
        """So many at full length."""
        return max(1000, int(count * self.scale))

    def say(self, words: str) -> None:
        """A line for whoever waits."""
        print(f"[{time.monotonic() - self.begun:5.0f} s] {words}", flush=True)

    def place(self, name: str) -> contextlib.AbstractContextManager[Place]:
        """A place of its own for a product."""
        return place(self.broker, self.work, name)

    @contextlib.contextmanager
    def survives(self, what: str) -> Iterator[None]:
        """A failure of this block is said and noted, and the others go on."""
        try:
            yield
        except Exception as error:  # whatever a peer's failure looks like, the others are measured
            self.failures[what] = f"{type(error).__name__}: {error}"[:400]
            self.say(f"{what} failed: {error}")


def installed(products: tuple[Product, ...], session: Session) -> list[Product]:
    """Those that are here; the others are said."""
    for product in products:
        if product.missing():
            session.say(f"{product.title} is not here: left out")
    return [product for product in products if not product.missing()]
