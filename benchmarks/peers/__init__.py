"""Ours, the yardsticks and the peers: one small module each, and the order in which they are measured."""

from __future__ import annotations

from benchmarks.peers import bullmq, celery, dramatiq, ours, saq, sidekiq, taskiq, trial, yardstick
from benchmarks.peers.product import Product

OURS = (ours.LEAN, ours.QUORUM, ours.PLAIN, ours.AIORMQ)
BEFORE = (ours.BEFORE_LEAN, ours.BEFORE_AIORMQ)
PEERS = (sidekiq.SIDEKIQ, bullmq.BULLMQ, dramatiq.DRAMATIQ, celery.THREADS, celery.PREFORK, taskiq.TASKIQ, saq.SAQ)
YARDSTICKS = (yardstick.YARDSTICK, trial.TRIAL)

ALL: tuple[Product, ...] = (*OURS, *PEERS, *YARDSTICKS, *BEFORE)
