"""Log lines of a worker: each one that a job causes carries the job's jid."""

from __future__ import annotations

import logging
import sys

from amqpjobs.worker import context

_LINE = "%(asctime)s %(process)d %(levelname)s%(job)s %(name)s: %(message)s"


class JobFilter(logging.Filter):
    """Adds `jid` and `job` (" jid=…", or nothing) to each record, in the thread that logs: there the context is."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Never drops a record."""
        running = context.running()
        jid = running.jid if running is not None else getattr(record, "jid", None)
        record.jid = jid
        record.job = f" jid={jid}" if jid else ""
        return True


def configure(level: int = logging.INFO) -> None:
    """Log to standard error, one line a record (and a traceback where there is one)."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter(_LINE))
    handler.addFilter(JobFilter())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    logging.captureWarnings(True)
    logging.getLogger("asyncio").setLevel(max(level, logging.WARNING))
