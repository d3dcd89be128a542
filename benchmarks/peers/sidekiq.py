"""Sidekiq over Redis: from a folder with Debian sid (BENCH_SID) where there is one, else the host's package."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from benchmarks.peers.product import NO_DISK, Product, flush_redis
from benchmarks.place import Place
from benchmarks.processes import ROOT, Command

SID = Path(os.environ.get("BENCH_SID", "/var/tmp/brokers/sid"))
SOURCE = ROOT / "benchmarks" / "apps" / "sidekiq_app.rb"
CLASSES = {"noop": "noop", "tick": "tick"}


def _in_sid() -> bool:
    return (SID / "usr" / "bin" / "sidekiq").exists()


def _program(*words: str) -> list[str]:
    return [str(ROOT / "benchmarks" / "inside"), *words] if _in_sid() else list(words)


def _source(place: Place) -> str:
    """A copy of the app where the folder can see it."""
    copy = place.work / SOURCE.name
    shutil.copyfile(SOURCE, copy)
    return str(copy)


def _worker(place: Place) -> Command:
    program = _program("sidekiq", "-r", _source(place), "-c", "10", "-q", "default")
    return Command(program, {**place.environment(), "BENCH_SID": str(SID)})


def _enqueue(place: Place, jobs: int, job: str) -> Command:
    program = _program("ruby", _source(place), str(jobs), CLASSES[job])
    return Command(program, {**place.environment(), "BENCH_SID": str(SID)})


def _version() -> str:
    code = 'require "sidekiq"; print "sidekiq ", Sidekiq::VERSION, ", ruby ", RUBY_VERSION'
    environment = {**os.environ, "BENCH_SID": str(SID)}
    command = _program("ruby", "-e", code)
    told = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout.strip()
    return f"{told} ({'Debian sid' if _in_sid() else 'the host'})"


SIDEKIQ = Product(
    key="sidekiq",
    title="Sidekiq",
    version=_version,
    how="10 threads a process",
    durability=f"{NO_DISK}; taken from the queue before the job",
    jobs=25_000,
    enqueue=_enqueue,
    workers=lambda place, count: [_worker(place) for _ in range(count)],
    left=lambda place: place.lists("queue:default"),
    empty=flush_redis,
    missing=lambda: not _in_sid() and shutil.which("sidekiq") is None,
)
