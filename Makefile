# Two commands do everything on a fresh machine with Python >= 3.11: `make demo` and `make test`.
PYTHON ?= python3
BIN    := .venv/bin
UP     ?=
COMPILE = uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --quiet

.PHONY: demo test check proto lock e2e bench tools image cluster-up cluster-down cluster-status clean

demo: .venv/.done
	$(BIN)/dra-driver demo $(DEMO)

test: .venv/.done
	$(BIN)/pytest -n auto $(TEST)

check: .venv/.done
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest -q tests/project

# Generated code is checked in; `make check` compares it.
proto: .venv/.done
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python proto/generate.py

# A real Kubernetes 1.37 cluster on this machine (root, Go): see e2e/cluster/README.md. UP="--feature-gates A=true".
cluster-up: .venv/.done
	$(BIN)/python -m e2e.cluster up $(UP)

# What the cluster is made of: compiled once, kept outside the clone.
tools: .venv/.done
	$(BIN)/python -m e2e.cluster build

# The image of the programs, without a container engine; nodes of a running cluster get it.
image: .venv/.done
	$(BIN)/python -m e2e.cluster image

cluster-down: .venv/.done
	$(BIN)/python -m e2e.cluster down

cluster-status: .venv/.done
	$(BIN)/python -m e2e.cluster status

# E2E_INSTALL=chart: against the chart and the image instead of processes.
e2e: .venv/.done
	$(BIN)/pytest -p no:xdist e2e $(TEST)

# Our node program against a Go peer on the running cluster, a minute a round: BENCH="--rounds 2 --json"; see docs/dev/performance.md.
bench: .venv/.done
	$(BIN)/python -m bench $(BENCH)

# The environment: hashed lock, installed with the standard tools only.
.venv/.done: pyproject.toml requirements/dev.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python >= 3.11 is needed, found " + sys.version.split()[0] + ": make PYTHON=/path/to/python3.11 ...")'
	@echo "Installing into .venv, about a minute the first time"
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

# The image (runtime, build) gets the versions that the tests ran with.
lock:
	$(COMPILE) --group dev pyproject.toml --output-file requirements/dev.txt
	$(COMPILE) --constraint requirements/dev.txt pyproject.toml --output-file requirements/runtime.txt
	$(COMPILE) --constraint requirements/dev.txt --group build --output-file requirements/build.txt

clean:
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache
