# `make demo` and `make test` do their own set-up: Python >= 3.11 and make are all that a machine needs.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ADAPTER ?= claude-code
ADAPTERS := claude-code codex opencode pi
SANDBOX ?= local
WORLD ?= sqlite
KILLS ?= 50
DEATHS ?= worker,worker,harness,machine
POINT ?= tool.effect_done
DEATH ?= harness
TESTS ?= tests
WORKERS ?= 3
SESSIONS ?= 30
MINUTES ?= 10
SCENARIOS ?=
QUICK ?=
RESULTS ?= $(if $(QUICK),build/bench.json,bench/results.json)

.PHONY: setup demo test test-full test-quick check format crash crash-matrix crash-service bench clean

setup: $(VENV)/.ready ## the virtual environment

$(VENV)/.ready: pyproject.toml
	$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), "Python 3.11 or newer is needed"'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[dev,docker]'
	touch $@

demo: setup ## a real agent is killed in the middle of a deployment, and comes back
	$(BIN)/harness-durable install $(ADAPTER) --sandbox $(SANDBOX)
	$(BIN)/harness-durable demo --adapter $(ADAPTER) --sandbox $(SANDBOX) --crash-at $(POINT) --death $(DEATH) --json

test: setup ## everything, with real harness binaries
	scripts/system-packages
	set -e; for adapter in $(ADAPTERS); do $(BIN)/harness-durable install $$adapter --all-versions; done
	$(BIN)/python -m pytest -n 2 --dist worksteal $(TESTS)

test-full: setup ## and what that leaves out: every death, version and World with every adapter (hours)
	HARNESS_DURABLE_CRASH=full $(MAKE) test

test-quick: setup ## what needs no harness binary
	$(BIN)/python -m pytest tests/unit tests/worlds tests/conformance -m 'not slow' -x -q

check: setup ## style, types, architecture
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pyright
	$(BIN)/lint-imports

format: setup
	$(BIN)/ruff check --fix --quiet .
	$(BIN)/ruff format --quiet .

crash-matrix: setup ## every crash point with every death on every World (about 15 minutes)
	$(BIN)/harness-durable install claude-code
	HARNESS_DURABLE_CRASH=full $(BIN)/python -m pytest -n 2 tests/crash

crash: setup ## random kills: KILLS=200 WORLD=sqlite|file|postgres|postgresql://… ADAPTER=claude-code DEATHS=machine
	$(BIN)/harness-durable install $(ADAPTER)
	$(BIN)/python -m tests.crash.campaign --kills $(KILLS) --world $(WORLD) --adapter $(ADAPTER) --deaths $(DEATHS)

crash-service: setup ## workers on one Postgres that die, and it restarts: WORKERS=3 SESSIONS=30 MINUTES=10
	$(BIN)/harness-durable install claude-code
	$(BIN)/python -m tests.crash.service_campaign --workers $(WORKERS) --sessions $(SESSIONS) --minutes $(MINUTES)

bench: setup ## us, the disk and what people would use instead, side by side (half an hour): QUICK=1 SCENARIOS="append turn"
	scripts/system-packages
	set -e; for adapter in $(ADAPTERS); do $(BIN)/harness-durable install $$adapter; done
	mkdir -p $(dir $(RESULTS))
	$(BIN)/python -m bench $(SCENARIOS) $(if $(QUICK),--quick) --json $(RESULTS)
	$(if $(QUICK),,$(BIN)/python -m bench.page)

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist
