# `make run` and `make test` need nothing but Python 3.11 or newer: they set up .venv by themselves.

PYTHON ?= python3
BIN := .venv/bin
RUN_LOCKS := requirements/run.txt requirements/build.txt
UV_COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate

.PHONY: run test lint types tests peers bench format lock clean

run: .venv/run.stamp  ## Run muxway in front of its demo servers and show what it does.
	$(BIN)/muxway demo

test: lint types tests  ## Set up everything and run every check.

lint: .venv/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/dev.stamp
	$(BIN)/pyright

peers: .venv/dev.stamp  ## Install the real clients and servers the tests talk to.
	$(BIN)/python -m tests.interop.peers

tests: peers  # Two at a time, because much of it waits for other programs; a file stays in one process.
	$(BIN)/python -m pytest -n 2 --dist loadfile

bench: .venv/dev.stamp  ## Measure muxway and its peers side by side (about eight minutes).
	$(BIN)/python -m bench

format: .venv/dev.stamp  ## Put the code in its usual shape.
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lock: .venv/dev.stamp  ## Resolve the dependencies anew.
	$(UV_COMPILE) pyproject.toml -o requirements/run.txt
	$(UV_COMPILE) --group build -o requirements/build.txt
	$(UV_COMPILE) pyproject.toml --group dev -o requirements/dev.txt

clean:  ## Remove everything that was set up.
	rm -rf .venv .envs .bench dist

.venv/run.stamp: pyproject.toml $(RUN_LOCKS)
	$(call make_venv)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes $(RUN_LOCKS:%=-r %)
	$(call install_muxway)

.venv/dev.stamp: pyproject.toml requirements/dev.txt
	$(call make_venv)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	$(call install_muxway)
	@touch .venv/run.stamp

define make_venv
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "muxway needs Python 3.11 or newer; try: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; exit 1; }
	@test -x $(BIN)/python || { echo "setting up .venv ..."; $(PYTHON) -m venv .venv; }
endef

define install_muxway
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps -e .
	@touch $@
endef
