# Everything runs in a local .venv; `make demo` and `make test` set it up.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
SEED ?= 0
GATEWAYS ?= 10
REPORT ?= demo-report
DEMO_ARGS ?=
BENCH_ARGS ?=
TEST_PROCESSES ?= 3
FUZZ_SECONDS ?= 60
SOAK_ARGS ?= --kills 300 --seed 0
LONG_WAITS := tests/link_faults/test_bad_links.py tests/link_faults/test_doubles.py tests/e2e/test_watchdog.py \
	tests/e2e/test_storage_faults.py
LONG_SITES := tests/link_faults tests/hostile tests/security tests/deploy tests/e2e/test_readme.py \
	tests/e2e/test_footprint.py tests/e2e/test_kills.py tests/e2e/test_bridge_disk.py
LOCKS := deploy/locks

.PHONY: help setup setup-ci oracle mosquitto demo test test-long check format lint types contracts docs demo-check fuzz soak bench clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

setup: $(STAMP) ## create .venv from the lock files

$(STAMP): $(LOCKS)/dev.txt pyproject.toml deploy/setup.sh
	@PYTHON="$(PYTHON)" VENV="$(VENV)" bash deploy/setup.sh
	@touch $@

mosquitto: ## install the broker where that is possible
	@bash deploy/ensure-mosquitto.sh

oracle: setup ## install torch, its exporter and fed-clma, against which gradients and cohorts are checked
	@$(BIN)/python -c 'import torch' 2>/dev/null || $(BIN)/pip install --quiet "torch==2.13.0"
	@# without their requirements: the locks and torch have them, and they must not move them
	@$(BIN)/python -c 'import onnxscript' 2>/dev/null || $(BIN)/pip install --quiet --no-deps "onnxscript==0.7.2" "onnx-ir==1.1.0"
	@$(BIN)/python -c 'import clma' 2>/dev/null || $(BIN)/pip install --quiet --no-deps "fed-clma==0.1.1"

setup-ci: setup mosquitto oracle

demo: setup mosquitto ## the main job: a drifting fleet repairs itself
	$(BIN)/server-bridge demo --gateways $(GATEWAYS) --seed $(SEED) --report $(REPORT) $(DEMO_ARGS)

test: setup mosquitto ## the tests, without the long ones
	@# a seventh of the time is waiting: one process more than this has cores; each begins with a part of its own
	$(BIN)/python -m pytest -m "not long" -n $(TEST_PROCESSES) --dist worksteal

test-long: setup mosquitto ## kills, bad links, floods, installations: half a minute or more each
	@# mostly waiting, so in three parts side by side
	@$(BIN)/python -m pytest -m long $(LONG_WAITS) >.test-long-1.log 2>&1 & one=$$!; \
	$(BIN)/python -m pytest -m long $(LONG_SITES) $(LONG_WAITS:%=--ignore=%) >.test-long-2.log 2>&1 & two=$$!; \
	$(BIN)/python -m pytest -m long $(LONG_WAITS:%=--ignore=%) $(LONG_SITES:%=--ignore=%); three=$$?; \
	wait $$one; one=$$?; wait $$two; two=$$?; cat .test-long-1.log .test-long-2.log; rm -f .test-long-1.log .test-long-2.log; \
	[ $$one$$two$$three = 000 ]

check: setup mosquitto format lint types contracts docs test test-long fuzz demo-check ## what CI runs

format: setup
	$(BIN)/ruff format --check .

lint: setup
	$(BIN)/ruff check .

types: setup
	$(BIN)/mypy

contracts: setup
	$(BIN)/lint-imports

docs: setup ## generated documents are up to date
	$(BIN)/python -m tests.docs_build --check

demo-check: setup mosquitto
	$(BIN)/server-bridge demo --gateways $(GATEWAYS) --seed $(SEED) --report $(REPORT) --headless

fuzz: setup ## hostile bytes on every topic and in every file, FUZZ_SECONDS long
	$(BIN)/python -m tests.fuzz --seconds $(FUZZ_SECONDS) --seed $(SEED)

soak: setup mosquitto ## kill -9 of every part, three hundred times: SOAK_ARGS="--kills N --seed S"
	$(BIN)/python -m tests.soak $(SOAK_ARGS)

bench: oracle ## benchmarks, side by side with their peers
	$(BIN)/python -m tests.benchmarks $(BENCH_ARGS)

clean:
	rm -rf $(VENV) $(REPORT) .mypy_cache .ruff_cache .pytest_cache .hypothesis
