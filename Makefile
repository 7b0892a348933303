# Everything a fresh machine needs is set up by the first target that needs it: a virtual
# environment in .venv with the package, its dependencies and the tools, at the pinned versions.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: help demo test lint format type bench picture clean

help:  ## List the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(READY)  ## Set up, then run and verify an all-reduce on four ranks
	@$(BIN)/distdemo all-reduce --world-size 4

test: $(READY)  ## Set up, then run the whole test suite
	@$(BIN)/python -m pytest

lint: $(READY)  ## Check style and format
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

format: $(READY)  ## Mend style and format
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

type: $(READY)  ## Check types
	@$(BIN)/mypy

bench: $(READY)  ## Time start-up against its limits and the alternatives (some minutes)
	@$(BIN)/python benchmarks/startup.py

picture: $(READY)  ## Draw the README's pictures anew
	@$(BIN)/python docs/draw.py

clean:  ## Remove the environment and every cache
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The environment is made anew whenever what it was made from has changed.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' \
		|| { echo "distdemo needs Python 3.10 or newer: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@echo "Setting up $(VENV): once, a minute or so."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check \
		--constraint constraints.txt --editable '.[dev]'
	@touch $@
