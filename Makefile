# Two commands: `make study` and `make test`. Both need only Python >= 3.11; the environment is made in .venv
# (`make install` makes it alone).
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
OUT    ?= results/study
COLD   := .ci/cold
MADE   := docs/_build docs/api docs/examples
STUDIES = $(shell $(BIN)/cje-lab list --group $(1))
JOBS   ?= $(shell nproc 2>/dev/null || sysctl -n hw.ncpu 2>/dev/null || echo 1)

.PHONY: help install study pages docs test whole compiling others suite \
        compiled compiled-analyses compiled-studies smoke-compiling smoke-others smoke-report lint fast coverage dist clean
.DEFAULT_GOAL := study

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("cje-lab needs Python >= 3.11, found " + sys.version.split()[0] + "; try make PYTHON=python3.11") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)
	@# Python comes with a pip that takes half as long again as this one
	-$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --upgrade pip
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --constraint constraints.txt --editable '.[dev]'
	@# pip would compile to bytecode on one core, and every package's own tests too
	-$(BIN)/python -m compileall -qq -j 0 -x '/tests/' $(VENV)/lib
	touch $@

$(VENV)/.warm: $(VENV)/.installed
	@echo "compiling ahead what analyses and studies call (once, about a minute)"
	$(MAKE) --no-print-directory -j2 compiled
	touch $@

help:  ## this list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## */\t/' | expand -t 10

install: $(VENV)/.warm  ## the environment, compiled ahead; then . .venv/bin/activate puts cje-lab on the path

study: $(VENV)/.warm  ## quick profile of the headline studies, the report, and the claims ledger
	$(BIN)/cje-lab run $(call STUDIES,headlines) --profile quick --jobs $(JOBS) --out $(OUT)
	$(BIN)/cje-lab report $(OUT)
	$(BIN)/cje-lab claims --profile quick --jobs $(JOBS) --results $(OUT) --out $(OUT)/claims --brief

# not those of interval_coverage (an hour) and of peers (which need an interpreter that has them): each says how it was made
pages: $(VENV)/.installed  ## docs/studies made again: quick profiles (about half an hour on 2 cores), the grid of estimators at the paper's size
	$(BIN)/cje-lab run $(call STUDIES,pages) --profile quick --jobs $(JOBS) --out results/pages
	$(BIN)/cje-lab docs results/pages
	$(BIN)/cje-lab run $(call STUDIES,paper_pages) --profile paper --jobs $(JOBS) --out results/paper
	$(BIN)/cje-lab docs results/paper

docs: $(VENV)/.installed  ## the documentation in docs/_build/html, its examples executed; a warning is an error
	$(BIN)/python -m sphinx -q -W --keep-going -d docs/_build/doctrees docs docs/_build/html
	@echo "open docs/_build/html/index.html"

lint: $(VENV)/.installed  ## format, lint, types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

fast: $(VENV)/.installed  ## the suite without the slow checks
	$(BIN)/pytest -n $(JOBS) --dist worksteal -m 'not slow'

coverage: $(VENV)/.installed  ## branch coverage of the fast suite; slower than `fast` by up to four fifths
	$(BIN)/pytest -n $(JOBS) -m 'not slow' --cov --cov-report=term

test: $(VENV)/.installed  ## everything: lint, types, the whole suite, the smoke profile of every study, all with empty caches
	$(COLD) $(MAKE) --no-print-directory whole

# No core waits: one runs the studies that compile what most tests call, compiles the rest, and runs the other studies, which
# find all compiled; the other looks at types and makes the documentation. The suite finds all compiled, and a browser reads
# the report beside it.
whole:
	rm -rf results/smoke
	$(MAKE) --no-print-directory -j2 compiling others
	$(MAKE) --no-print-directory -j2 suite smoke-report

compiling: smoke-compiling
	$(MAKE) --no-print-directory compiled-analyses
	$(MAKE) --no-print-directory smoke-others

others: lint
	$(MAKE) --no-print-directory docs

suite: $(VENV)/.installed
	$(BIN)/pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder --durations=25

SMOKE  := $(BIN)/cje-lab run --profile smoke --jobs 1 --out results/smoke
ALL    := $(filter-out __init__ __main__,$(notdir $(basename $(wildcard studies/*.py))))

smoke-compiling: $(VENV)/.installed
	$(SMOKE) $(call STUDIES,compiling)

smoke-others: $(VENV)/.installed
	$(SMOKE) $(filter-out $(call STUDIES,compiling),$(ALL))

smoke-report: $(VENV)/.installed
	$(BIN)/cje-lab report results/smoke >results/smoke/report.txt
	$(BIN)/python tests/browser.py results/smoke/report.html

dist:  ## wheel and sdist in dist/, each installed into an environment of its own that runs cje-lab demo
	PYTHON=$(PYTHON) .ci/dist

compiled: compiled-analyses compiled-studies

compiled-analyses: $(VENV)/.installed
	$(BIN)/python -m cje_core.workflow.warm_up

# numba keeps what it compiles for the types it has seen: a small run sees those of a large one
compiled-studies: $(VENV)/.installed
	@rm -rf results/warm_up
	$(BIN)/cje-lab run $(call STUDIES,headlines) --profile smoke --jobs 1 --out results/warm_up >/dev/null
	@rm -rf results/warm_up

clean:  ## environment, results and caches away
	rm -rf $(VENV) results $(MADE) .mypy_cache .ruff_cache .coverage* *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
