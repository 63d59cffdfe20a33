# Everything a person or CI does here is one word. `make` alone lists them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: help install serve test check format demo-scores bench-engine bench-proxy test-clients cases clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

$(VENV)/installed: pyproject.toml
	@echo "Installing into $(VENV) (the first time takes some minutes: torch is large)"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[engine,dev]'
	@touch $@

install: $(VENV)/installed  ## build .venv with all that is needed

serve: install  ## start the proxy with the embedded engine and the demo model
	$(BIN)/ninfer-proxy serve $(ARGS)

test: install  ## run the tests
	$(BIN)/python -m pytest $(ARGS)

check: install  ## format, lint, types, import arrows
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest tests/contract

format: install  ## format and fix what can be fixed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

demo-scores: install  ## measure the demo model
	$(BIN)/python -m tools.demo_scores $(ARGS)

bench-engine: install  ## measure the engine beside llama.cpp, transformers and itself; fails when a bar is missed
	$(BIN)/python -m bench.engine $(ARGS)

bench-proxy: install  ## measure what the proxy adds to a turn, with many conversations stored too; fails when a bar is missed
	$(BIN)/python -m bench.proxy $(ARGS)

test-clients: install  ## run the real OpenClaw against the proxy (needs npm; 650 MB the first time)
	$(BIN)/python -m tests.clients.run_openclaw $(ARGS)

CASES ?= tests/cases/data

cases: install  ## play recorded faults of this field against a live proxy (some 15 minutes); CASES=DIR for another folder
	$(BIN)/python -m tests.cases --cases $(CASES) $(ARGS)

clean:  ## remove what was built
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
