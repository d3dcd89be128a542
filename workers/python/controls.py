"""The orders of operators, folded from the stream `controls` (docs/protocol.md, section 9)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pika
import pika.exceptions
from pika.adapters.blocking_connection import BlockingChannel
from pika.spec import Basic

from workers.python.job import number

TEN_MINUTES = 600.0
DAY = 86400.0


class Controls:
    """What is ordered by now. What this does not know has no effect."""

    def __init__(self, names: set[str], boot_at: float) -> None:
        self.names = names | {"*"}
        self.boot_at = boot_at
        self.paused: set[str] = set()
        self.cancelled: dict[str, float] = {}
        self.quiet = self.stop = False  # true for good: these two are never taken back
        self.last = -1  # the offset of the last order that counted

    def apply(self, entry: Any, offset: int) -> None:
        """The entry of a message at this offset."""
        kind = entry.get("type") if isinstance(entry, dict) else None
        if kind == "control":
            self.last = offset
            self.order(entry)
        # One whose writer had not yet read the last order would take that back; another one follows.
        elif kind == "controls_snapshot" and (number(entry.get("after")) or offset) >= self.last:
            self.paused, self.cancelled = set(entry["paused"]), {}
            for order in [{"op": "cancel", **each} for each in entry["cancelled"]] + entry["orders"]:
                self.order(order)
        self.cancelled = {jid: at for jid, at in self.cancelled.items() if at > time.time() - DAY}

    def order(self, entry: dict[str, Any]) -> None:
        # An order to "*" must not stop a process that was started after it, perhaps because of it.
        mine = entry.get("process") in self.names and (number(entry.get("at")) or 0.0) > self.boot_at
        match entry.get("op"):
            case "pause":
                self.paused.add(entry["queue"])
            case "resume":
                self.paused.discard(entry["queue"])
            case "cancel":
                self.cancelled[entry["jid"]] = float(entry["at"])
            case "quiet":
                self.quiet |= mine
            case "stop":
                self.stop |= mine


class ControlsReader(threading.Thread):
    """Reads the stream from ten minutes back (the scheduler repeats all of it every five) and hands on what it reads.

    On a connection of its own: most mistakes with a stream close all of it.
    """

    def __init__(
        self,
        parameters: pika.URLParameters,
        subscribed: Callable[[], None],
        take: Callable[[bytes, int], None],
        lose: Callable[[Exception], None],
    ) -> None:
        super().__init__(daemon=True)
        self.parameters = parameters
        self.subscribed = subscribed
        self.take = take
        self.lose = lose
        self.over = False

    def run(self) -> None:
        try:
            self.read()
            self.lose(ConnectionError("the stream controls was deleted"))
        except (pika.exceptions.AMQPError, OSError) as error:
            self.lose(error)

    def read(self) -> None:
        connection = pika.BlockingConnection(self.parameters)
        channel = connection.channel()
        channel.basic_qos(prefetch_count=100)  # streams demand one
        start = datetime.fromtimestamp(time.time() - TEN_MINUTES, UTC)
        deleted: list[Any] = []
        channel.add_on_cancel_callback(deleted.append)
        channel.basic_consume("controls", self.on_message, arguments={"x-stream-offset": start})
        self.subscribed()
        while not self.over and not deleted:
            connection.process_data_events(time_limit=1.0)
        connection.close()

    def on_message(
        self, channel: BlockingChannel, deliver: Basic.Deliver, properties: pika.BasicProperties, body: bytes
    ) -> None:
        channel.basic_ack(deliver.delivery_tag)
        self.take(body, properties.headers["x-stream-offset"])
