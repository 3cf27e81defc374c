# Every target sets up what it needs in .venv; a fresh clone with Python 3.11+ is enough.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: demo test attack lint format docs bench clean

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $(READY)

demo: $(READY)
	$(BIN)/rnc demo

test: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses auto --dist loadscope  # a process per core

CASES ?= 1560
attack: $(READY)  # every fuzzer, with CASES cases for one of share 1, and kills at every write
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/attack --numprocesses auto --attack-cases $(CASES)

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(READY)  # the documentation site, in site/; a warning is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

bench: $(READY)
	$(BIN)/python benchmarks/loss_speed.py

clean:
	rm -rf .venv build dist site
