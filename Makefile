# Everything runs in .venv, which each target sets up from nothing: only Python >= 3.10 and make are needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
READY := $(VENV)/.ready
OLDEST := .venv-oldest

# Two files of tests at a time.
PYTEST_OPTIONS ?= --numprocesses 2 --dist loadfile
# A number: fail when fewer percent of the lines of hf_elmo/ and conversion/ are run by the tests.
COVERAGE ?=

export HF_HUB_OFFLINE := 1
export HF_HUB_DISABLE_TELEMETRY := 1
export TOKENIZERS_PARALLELISM := false

.PHONY: demo test test-oldest lint format docs full reliability bench clean help

help: ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | sort

# torch comes first and exactly: a later, looser requirement is then satisfied and fetches no other build.
$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "hf-elmo needs Python 3.10 or newer: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet "$$(grep '^torch==' constraints.txt)"
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[convert,plot]'
	@touch $@

# What only tests and linters need comes on top.
$(READY): $(INSTALLED)
	$(BIN)/python -m pip install --quiet --use-pep517 --constraint constraints.txt --editable '.[dev]'
	@touch $@

demo: $(INSTALLED) ## senses of words with the model of the package; writes demo.png
	@$(BIN)/python -m hf_elmo.scripts.demo

test: $(READY) lint ## lint, type check, all tests
	$(BIN)/python -m pytest $(PYTEST_OPTIONS) $(if $(COVERAGE),--cov --cov-report=term --cov-fail-under=$(COVERAGE))

$(OLDEST)/.ready: pyproject.toml constraints-oldest.txt
	$(PYTHON) -m venv --clear $(OLDEST)
	$(OLDEST)/bin/python -m pip install --quiet "$$(grep '^torch==' constraints-oldest.txt)"
	$(OLDEST)/bin/python -m pip install --quiet --use-pep517 --constraint constraints-oldest.txt --editable '.[docs,test]'
	@touch $@

test-oldest: $(OLDEST)/.ready ## all tests with the oldest versions that pyproject.toml allows (Python 3.11)
	$(OLDEST)/bin/python -m pytest $(PYTEST_OPTIONS)

lint: $(READY) ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY) ## let ruff rewrite the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(READY) ## the documentation, into site/
	$(BIN)/mkdocs build --strict

# What an ordinary run tries less often: a million strange texts, and 100,000 words by a model of the original size.
full: $(READY) ## the two promises that an ordinary run does not try in full
	HF_ELMO_FULL=1 $(BIN)/python -m pytest $(PYTEST_OPTIONS) -m promise tests/test_any_text.py tests/test_memory.py

reliability: $(READY) ## the tests of the promises, and their results into RELIABILITY.md
	$(BIN)/python -m pytest -m promise $(PYTEST_OPTIONS) --reliability=RELIABILITY.md

# BENCH_OPTIONS="--conllu en_ewt-ud-dev.conllu --simple-elmo" measures a real file and simple_elmo, too.
bench: $(READY) ## measure everything on an idle machine, into results/speed and the README
	$(BIN)/python -m hf_elmo.scripts.bench_all --output results/speed $(BENCH_OPTIONS)
	$(BIN)/python scripts/results_table.py README.md results
	$(BIN)/python scripts/results_table.py README.ko.md results
	$(BIN)/python scripts/results_table.py docs/results.md results

clean: ## remove everything that was built
	rm -rf $(VENV) $(OLDEST) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
