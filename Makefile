# What a newcomer needs: `make demo`, `make test`. Each prepares the machine first (scripts/setup); quick when it is done.
.DEFAULT_GOAL := help
.PHONY: help setup demo test test-brokers test-lavinmq chaos chaos-pipeline bench schemathesis screenshots check format lock

PYTHON_IN_VENV := .venv/bin/python

help:
	@echo "make demo     everything in one terminal with sample jobs; prints the dashboard's address (PIPELINE=1: Spark too)"
	@echo "make test     the whole test suite, on real brokers, in WORKERS=3 processes (ANEW=1: property tests try other"
	@echo "              examples than they always do)"
	@echo "make chaos    a long run that kills parts at random, then counts; then a worker's network is cut for two"
	@echo "              minutes, and 20 clients race at three HTTP servers, without faults and with"
	@echo "              (SECONDS=600 RATE=100 SEED=1 JOBS=5000 KILLS=20)"
	@echo "make chaos-pipeline   the pipeline killed at random, then counted (ROWS=200000 KILLS=10 SEED=1 CLUSTER=1);"
	@echo "              MINUTES=60 instead: its lag and memory under RATE=500 jobs a second"
	@echo "make bench    ours and its peers measured on this machine (ONLY=noop,enqueue a part; docs/benchmarks.md)"
	@echo "make schemathesis    requests of all kinds by the interface's own description (SECONDS=600 EXAMPLES=50)"
	@echo "make screenshots    every page of the dashboard, light and dark, desktop and phone, as pictures (FOLDER=screenshots)"
	@echo "make test-brokers URLS='amqp://… amqp://…|http://…'    the messaging suite on these brokers (docs/brokers.md)"
	@echo "make test-lavinmq    the messaging suite on a LavinMQ of its own, where one is found (a part is in make test)"
	@echo "make check    ruff, mypy and the import contracts"
	@echo "make setup    only prepare .venv"
	@echo "make format   let ruff format the code"
	@echo "make lock     resolve the dependencies anew into requirements.lock; apart for Spark and for the Dockerfile"

setup:
	@scripts/setup

demo:
	@scripts/setup demo
	@if [ -n "$$PIPELINE" ]; then scripts/setup pipeline; fi
	@export AMQPJOBS_STATE_DIR=$${AMQPJOBS_STATE_DIR:-.demo} AMQPJOBS_LAKE_DIR=$${AMQPJOBS_LAKE_DIR:-.demo/lake} \
	  AMQPJOBS_ENQUEUE_LOG=$${AMQPJOBS_ENQUEUE_LOG:-bound}; \
	exec .venv/bin/amqpjobs up -A workers.demo \
	  --with "producer=$(PYTHON_IN_VENV) workers/foreign_producer.py --rate 4" \
	  $${PIPELINE:+--with "pipeline=$(PYTHON_IN_VENV) -m amqpjobs.pipeline run --quick"}

test-brokers:
	@AMQPJOBS_TEST_URL=given scripts/setup test
	@set -f; $(PYTHON_IN_VENV) -m tests.brokers $$URLS

test:
	@scripts/setup test
	@$(PYTHON_IN_VENV) -m pytest -n $${WORKERS:-3} --durations=25 $(PYTEST)
	@if [ -z "$(PYTEST)" ]; then $(PYTHON_IN_VENV) -m tests.lavinmq; fi

test-lavinmq:
	@AMQPJOBS_TEST_URL=given scripts/setup test
	@$(PYTHON_IN_VENV) -m tests.lavinmq all

chaos:
	@scripts/setup test
	@$(PYTHON_IN_VENV) -m tests.chaos --seconds $${SECONDS:-600} --rate $${RATE:-100} --seed $${SEED:-1}
	@$(PYTHON_IN_VENV) -m tests.chaos.race --jobs $${JOBS:-5000} --clients 20 --seed $${SEED:-1}
	@$(PYTHON_IN_VENV) -m tests.chaos.cut
	@$(PYTHON_IN_VENV) -m tests.chaos.race --jobs $${JOBS:-5000} --clients 20 --kills $${KILLS:-20} --seed $${SEED:-1}

chaos-pipeline:
	@scripts/setup test
	@if [ -n "$$MINUTES" ]; then \
	  exec $(PYTHON_IN_VENV) -m tests.pipeline.steady --minutes $$MINUTES --rate $${RATE:-500}; \
	fi; \
	exec $(PYTHON_IN_VENV) -m tests.pipeline.chaos --rows $${ROWS:-200000} --kills $${KILLS:-10} --seed $${SEED:-1} \
	  $${CLUSTER:+--cluster} $${URL:+--url $$URL --management $$MANAGEMENT}

bench:
	@if [ -z "$$BENCH_URL" ]; then AMQPJOBS_TEST_URL= scripts/setup test; else scripts/setup; fi
	@benchmarks/setup
	@PYTHONPATH=. $(PYTHON_IN_VENV) -m benchmarks

schemathesis:
	@scripts/setup test
	@$(PYTHON_IN_VENV) -m tests.web.examining --seconds $${SECONDS:-600} --examples $${EXAMPLES:-50}

screenshots:
	@scripts/setup test
	@$(PYTHON_IN_VENV) -m tests.web.screenshots $${FOLDER:-screenshots}

check:
	@scripts/setup
	@.venv/bin/ruff check
	@.venv/bin/ruff format --check
	@.venv/bin/mypy
	@.venv/bin/lint-imports

format:
	@scripts/setup
	@.venv/bin/ruff check --fix
	@.venv/bin/ruff format

lock:
	@scripts/setup
	@$(PYTHON_IN_VENV) -m pip install --quiet --disable-pip-version-check "uv>=0.5"
	@.venv/bin/uv pip compile pyproject.toml --extra dev --universal --python-version 3.11 \
	  --generate-hashes --no-emit-index-url --no-header --quiet --upgrade --output-file requirements.lock
	@.venv/bin/uv pip compile pyproject.toml --extra pipeline --constraints requirements.lock --universal \
	  --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --quiet --upgrade \
	  --output-file requirements-pipeline.lock
	@echo "hatchling>=1.27" | .venv/bin/uv pip compile pyproject.toml - --constraints requirements.lock --universal \
	  --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --quiet --output-file requirements-image.lock
