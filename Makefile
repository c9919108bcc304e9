# `make run` and `make test` are all a newcomer needs; both set up what is missing first.
#   make run ARGS="..."      arguments for the demo
#   make test TESTS="..."    a part of the tests, or more options for pytest

VENV := .venv
READY := $(VENV)/.ready
TOOLS := $(VENV)/.tools
# Four workers for two cores, the smallest machine we care for: every other test mostly waits, for members to join or for
# one to be missed. Tests that share a server share a worker; tests/durations.py has their order.
WORKERS ?= 4
# Short tests wait even more.
QUICK_WORKERS ?= 6
TESTS ?=
ARGS ?=
PYTEST := $(VENV)/bin/pytest -q --dist loadgroup --no-loadscope-reorder
# These workers and some hundred short-lived programs read the same sources: compile them once, whatever the shell says.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help setup run test quick check style types imports house collected screenshots format clean

help: ## say what can be made
	@awk -F':.*## ' '/^[a-z]+:.*## / {printf "make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(READY): pyproject.toml constraints.txt scripts/setup.sh scripts/compile_spark.py hatch_build.py $(wildcard src/pluribus/_speed/c/*)
	@scripts/setup.sh

$(TOOLS): $(READY) scripts/setup.sh
	@scripts/setup.sh test

setup: $(READY) ## make .venv with everything in it; costs nothing the second time

run: setup ## show the bus at work
	@$(VENV)/bin/pluribus demo $(ARGS)

# `check` has run the tests of the house already.
test: $(TOOLS) check ## check the code, then run all tests
	$(PYTEST) -n $(WORKERS) $(or $(TESTS),--promises --ignore=tests/test_house.py)

quick: setup style ## style, and the short tests that need no server: for every few minutes
	$(PYTEST) -n $(QUICK_WORKERS) --quick --ignore=tests/test_house.py $(TESTS)

check: setup ## style, types, import directions and house rules
	@$(MAKE) --no-print-directory --jobs 2 --keep-going --output-sync=target types style imports house collected

style types imports house collected: setup

style:
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .

types:
	$(VENV)/bin/mypy --strict

imports:
	$(VENV)/bin/lint-imports --no-logo

house:
	$(VENV)/bin/pytest -q tests/test_house.py

# One process writes down what pytest makes of each file, before the workers read it.
collected:
	@$(VENV)/bin/pytest --collect-only -qq > $(VENV)/.collected || { cat $(VENV)/.collected; false; }

screenshots: setup ## take the pictures of the demo and the console in docs/
	@$(VENV)/bin/python scripts/screenshots.py

format: setup ## let ruff put the code in order
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

clean: ## remove .venv and every cache
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
