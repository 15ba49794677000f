# Everything runs in a virtual environment in .venv; only Python 3.11+ and pip are needed.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: setup run style check fast test format ui bench sample

.venv/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch .venv/.ready

setup: .venv/.ready

run: setup  ## the main job on the project's data
	$(BIN)/agent-eval run

style: setup  ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

check: setup  ## style, types and the fast tests, at the same time
	$(MAKE) --jobs 2 --output-sync style fast

fast: setup
	$(BIN)/python -m pytest -n 2 -m 'not slow and not live and not by_hand'

test: style  ## style, types and all tests
	$(BIN)/python -m pytest -n 4

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

ui: setup
	$(BIN)/agent-eval ui

bench: setup
	$(BIN)/python -m benchmarks

sample: setup  ## rebuild data/ from tests/sample/authored
	$(BIN)/python -m tests.sample.build
