# `make run` and `make test` need nothing but Python 3.11 or newer: they set up .venv by themselves.

PYTHON ?= python3
VENV := .venv
ifneq ($(origin PYTHON),file)
# One that is asked for may be pyenv's without being on PATH; it gets a venv of its own if `.venv` is another version's.
SHOW_VERSION := -c 'import sys; print("%d.%d" % sys.version_info[:2])'
override PYTHON := $(shell $(PYTHON) -c '' 2> /dev/null && echo $(PYTHON) || \
	ls $${PYENV_ROOT:-$$HOME/.pyenv}/versions/*/bin/$(PYTHON) 2> /dev/null | tail -n 1 | grep . || echo $(PYTHON))
ASKED := $(shell $(PYTHON) $(SHOW_VERSION) 2> /dev/null)
$(if $(ASKED),,$(error $(PYTHON) does not run))
HERE := $(shell .venv/bin/python $(SHOW_VERSION) 2> /dev/null)
VENV := .venv$(if $(filter-out $(ASKED),$(HERE)),-$(ASKED))
endif
BIN := $(VENV)/bin
PIP_INSTALL := $(BIN)/python -m tests.installing $(BIN)/python -m pip install --quiet --disable-pip-version-check
RUN_LOCKS := requirements/run.txt requirements/build.txt
UV_COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate

FUZZ_SECONDS ?= 30
SOAK_SECONDS ?= 3600

.PHONY: run test test-all lint types tests other-pythons long-tests soak fuzz peers bench format lock clean

run: $(VENV)/run.stamp  ## Run muxway in front of its demo servers and show what it does.
	$(BIN)/muxway demo

test: lint types tests other-pythons  ## Set up everything and run every check.

lint: $(VENV)/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/dev.stamp
	$(BIN)/pyright --pythonpath $(BIN)/python

peers: $(VENV)/dev.stamp  ## Install the real clients and servers the tests talk to.
	$(BIN)/python -m tests.interop.peers

tests: peers  # Two at a time, because much of it waits for other programs; a file stays in one process.
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

other-pythons: $(VENV)/dev.stamp  # What does not touch the system, on every other interpreter of this machine.
	$(BIN)/python -m tests.interpreters

test-all: test long-tests  ## The same, and what takes long: half an hour.
	$(MAKE) soak SOAK_SECONDS=120

long-tests: peers
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m long

soak: $(VENV)/dev.stamp  ## An hour of calls while servers are hurt (SOAK_SECONDS); fails if anything grows or is lost.
	$(BIN)/python -m tests.proof.soak $(SOAK_SECONDS)

fuzz: .fuzz/stamp  ## Look for bytes that break a reader, FUZZ_SECONDS for each.
	@for target in $$(.fuzz/venv/bin/python -m fuzz); do \
		echo "$$target: $(FUZZ_SECONDS) s"; \
		PYTHONPATH=src .fuzz/venv/bin/python -m fuzz $$target $(FUZZ_SECONDS) 2> .fuzz/$$target.log || \
			{ tail -n 40 .fuzz/$$target.log; exit 1; }; \
		grep -E "number_of_executed_units|peak_rss_mb" .fuzz/$$target.log; \
	done

bench: $(VENV)/dev.stamp  ## Measure muxway and its peers side by side (about eight minutes).
	$(BIN)/python -m bench

format: $(VENV)/dev.stamp  ## Put the code in its usual shape.
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lock: $(VENV)/dev.stamp  ## Resolve the dependencies anew.
	$(UV_COMPILE) pyproject.toml -o requirements/run.txt
	$(UV_COMPILE) --group build -o requirements/build.txt
	$(UV_COMPILE) pyproject.toml --group dev -o requirements/dev.txt
	$(UV_COMPILE) --group fuzz -o requirements/fuzz.txt
	$(UV_COMPILE) pyproject.toml --extra semantic --constraints requirements/run.txt -o requirements/semantic.txt
	$(UV_COMPILE) pyproject.toml --extra keyring --constraints requirements/run.txt -o requirements/keyring.txt

clean:  ## Remove everything that was set up.
	rm -rf .venv .venv-* .envs .bench .fuzz dist

$(VENV)/run.stamp: pyproject.toml $(RUN_LOCKS)
	$(call make_venv)
	$(PIP_INSTALL) --require-hashes $(RUN_LOCKS:%=-r %)
	$(call install_muxway)

$(VENV)/dev.stamp: pyproject.toml requirements/dev.txt
	$(call make_venv)
	$(PIP_INSTALL) --require-hashes -r requirements/dev.txt
	$(call install_muxway)
	@touch $(VENV)/run.stamp

# A venv of its own: the fuzzer has wheels for few interpreters, and nothing else needs it.
.fuzz/stamp: requirements/run.txt requirements/fuzz.txt
	@test -x .fuzz/venv/bin/python || $(PYTHON) -m venv .fuzz/venv
	.fuzz/venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes $(^:%=-r %)
	@touch $@

define make_venv
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "muxway needs Python 3.11 or newer; try: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; exit 1; }
	@test -x $(BIN)/python || { echo "setting up $(VENV) ..."; $(PYTHON) -m venv $(VENV); }
endef

define install_muxway
	$(PIP_INSTALL) --no-build-isolation --no-deps -e .
	@touch $@
endef
