# `make run` opens the dashboard, `make test` checks everything; both set up .venv first, once.

PYTHON ?= python3
PORT ?= 8501
BENCH ?= train
TEST_PROCESSES ?= 4

VENV := .venv
BIN := $(VENV)/bin
APP_READY := $(VENV)/.app-ready
DEV_READY := $(VENV)/.dev-ready
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check --no-input

.DEFAULT_GOAL := help
.PHONY: help .venv run test test-fast lint style bench results clean

help:
	@echo "make run     open the dashboard at http://127.0.0.1:$(PORT)   (PORT=8501)"
	@echo "make test    ruff, mypy and all tests, the ones in a real browser included"
	@echo "make test-fast   the tests that need no browser, no cluster and no background process"
	@echo "make lint    ruff, mypy, and an audit of the installed packages where the network allows"
	@echo "make bench   measure speed, as one JSON object   (BENCH=train)"
	@echo "make results build docs/results.md from the finished studies of the store   (AFTERIMAGE_STORE=runs)"
	@echo "make .venv   only install what the dashboard and the command line need   (PYTHON=python3)"
	@echo "make clean   remove .venv and caches; runs are kept"

.venv: $(APP_READY)

$(APP_READY): requirements.txt
	@command -v "$(PYTHON)" >/dev/null 2>&1 || \
		{ echo "Python was not found as '$(PYTHON)'; install Python 3.11 or newer, or name it: make PYTHON=/path/to/python3" >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Python 3.11 or newer is needed, '$(PYTHON)' is $$("$(PYTHON)" -V 2>&1); name a newer one: make PYTHON=python3.11" >&2; exit 1; }
	@"$(PYTHON)" -c 'import venv, ensurepip' 2>/dev/null || \
		{ echo "'$(PYTHON)' cannot make virtual environments; install its venv module (Debian: apt-get install python3-venv)" >&2; exit 1; }
	@rm -f $(APP_READY) $(DEV_READY)
	@$(BIN)/python -c 'import pip' 2>/dev/null || "$(PYTHON)" -m venv --clear $(VENV)
	@echo "Installing what the app needs into $(VENV); the first time takes a few minutes."
	@$(PIP) -r requirements.txt
	@touch $@

$(DEV_READY): requirements-dev.txt $(APP_READY)
	@echo "Installing what the tests need into $(VENV)."
	@$(PIP) -r requirements-dev.txt
	@touch $@

run: $(APP_READY)
	@$(BIN)/python -m streamlit run serve.py --server.port $(PORT)

style: $(DEV_READY)
	@$(BIN)/python -m ruff check .
	@$(BIN)/python -m ruff format --check .
	@$(BIN)/python -m mypy

lint: style
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python .ci/audit.py

# Bytecode is kept even where the shell says otherwise: the tests start some hundred processes that load the same code.
test test-fast: export PYTHONDONTWRITEBYTECODE =

# Without the audit: what the tests say must not hang on a network or on an advisory of this morning. And beside mypy,
# which has one core to itself for a minute where nothing is cached.
test: $(DEV_READY)
	@$(BIN)/python -m ruff check .
	@$(BIN)/python -m ruff format --check .
	@$(BIN)/python -m mypy >$(VENV)/mypy.txt 2>&1 & types=$$!; trap "kill $$types 2>/dev/null" INT TERM; \
		$(BIN)/python -m pytest -n $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder --durations=15; tests=$$?; \
		wait $$types; typed=$$?; cat $(VENV)/mypy.txt; exit $$((tests || typed))

test-fast: $(DEV_READY)
	@$(BIN)/python -m pytest -q -n 2 --dist loadfile -m "not browser and not cluster and not processes and not slow"

bench: $(APP_READY)
	@$(BIN)/python -m benchmarks $(BENCH) --json

results: $(APP_READY)
	@$(BIN)/python -m recon_core results --to docs/results.md

clean:
	@rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist *.egg-info
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
