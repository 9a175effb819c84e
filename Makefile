# `make help` says what there is. Everything is installed into .venv, by the first target that needs it.

PYTHON ?= python3
PORT ?= 8000
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
PIP_INSTALL := $(BIN)/python -m pip install -qq --disable-pip-version-check

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo serve test versions lint bench chaos guards format clean

help: ## This list
	@echo 'make <target>; PYTHON=$(PYTHON) is what a new .venv is made with (3.10 or later)'
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/.demo ## Puts the promises to the test on SQLite, with real worker processes
	@exec $(BIN)/python manage.py demo

serve: $(VENV)/.demo ## Runs the example for the browser until Ctrl-C; PORT=8000
	@exec $(BIN)/python manage.py serve --port $(PORT)

test: $(VENV)/.test mysqlclient ## Runs the tests on every database that answers; ARGS='-k claim'
	$(BIN)/pytest $(ARGS)

versions: $(VENV)/.versions ## The quick tests on the oldest and the newest Python and Django, if they are here
	$(BIN)/tox run -e py310-django52-postgres,py313-django61-postgres -- $(or $(ARGS),tests/unit tests/contract)

lint: $(VENV)/.lint ## Style, types, layers, missing migrations
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python manage.py makemigrations --check --dry-run

bench: $(VENV)/.test mysqlclient ## Measures how fast it is here; ARGS='--quick drain latency'
	$(BIN)/python -m tests.benchmarks $(ARGS)

chaos: $(VENV)/.test mysqlclient ## Kills, stops and cuts off workers and databases for half an hour; ARGS are handed on
	$(BIN)/python -m tests.faults $(ARGS)

guards: $(VENV)/.test mysqlclient ## Takes each guard away in turn, and demands that its test fails; ARGS are handed on
	$(BIN)/python -m tests.faults.guards $(ARGS)

format: $(VENV)/.lint ## Rewrites the code in the project's style
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

clean: ## Removes all that these targets made, .venv too
	rm -rf $(VENV) var build dist *.egg-info .tox .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Set-up. A stamp is made again when pyproject.toml has changed since.

$(VENV)/.python:
	@command -v $(PYTHON) >/dev/null || { \
	  echo 'There is no $(PYTHON) here: install Python 3.10 or later, or say make PYTHON=/path/to/python.'; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { \
	  echo 'Python 3.10 or later is needed, and $(PYTHON) is older or does not run: say make PYTHON=python3.12 or so.'; \
	  exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo '$(PYTHON) cannot make virtual environments. On Debian and Ubuntu: apt-get install python3-venv.'; exit 1; }
	@echo 'Making $(VENV) (this once) ...'
	@$(PYTHON) -m venv --clear $(VENV)
	@$(PIP_INSTALL) --upgrade 'pip>=25.1'
	@touch $@

$(VENV)/.demo: pyproject.toml $(VENV)/.python
	@echo 'Installing the package and what the example needs ...'
	@$(PIP_INSTALL) --editable . --group demo
	@touch $@

$(VENV)/.test: pyproject.toml $(VENV)/.python
	@echo 'Installing the package and what the tests need ...'
	@$(PIP_INSTALL) --editable . --group test
	@touch $@

$(VENV)/.versions: pyproject.toml $(VENV)/.python
	@echo 'Installing tox ...'
	@$(PIP_INSTALL) --group versions
	@touch $@

$(VENV)/.lint: pyproject.toml $(VENV)/.python
	@echo 'Installing the package and what the checks need ...'
	@$(PIP_INSTALL) --editable . --group test --group lint
	@touch $@

# It has no wheels for Linux, and building it needs a compiler and headers that may not be here.
.PHONY: mysqlclient
mysqlclient: $(VENV)/.test
	@$(BIN)/python -c 'import MySQLdb' 2>/dev/null \
	  || $(PIP_INSTALL) --editable '.[mysql]' >/dev/null 2>&1 \
	  || echo 'MariaDB is not tested: mysqlclient cannot be built here (Debian: apt-get install libmariadb-dev pkg-config gcc).'
