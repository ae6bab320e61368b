# Everything runs in .venv, which `make` builds from pyproject.toml. Two jobs: a compile takes about 1.5 GB.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
JOBS ?= 2
SOURCES := $(shell find dialects lib tools cmake python CMakeLists.txt pyproject.toml -type f -not -name '*.pyc')
export CMAKE_BUILD_PARALLEL_LEVEL := $(JOBS)

help:  ## Show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/installed: $(BIN)/python $(SOURCES)
	$(BIN)/python -m pip install -q '.[dev]' --config-settings=build-dir=build/wheel
	touch $@

demo: $(VENV)/installed  ## Compile a step, train on real data beside eager PyTorch, show both
	$(BIN)/python examples/online_training.py --plot online_training.png

check: $(VENV)/installed  ## Format, lint, types, lit tests, pytest
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	find dialects lib tools -name '*.cpp' -o -name '*.h' | xargs $(BIN)/clang-format --dry-run -Werror
	$(BIN)/mypy
	$(BIN)/lit -sv test
	$(BIN)/python -m pytest -q

check-gpu: $(VENV)/installed  ## The tests that need a GPU
	$(BIN)/python -m pytest -q test/gpu

dev: $(BIN)/python  ## Build in build/, for an editable checkout
	$(BIN)/python -m pip install -q -e '.[dev]'
	$(BIN)/cmake -S . -B build -G Ninja -DCMAKE_PREFIX_PATH=$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
	$(BIN)/ninja -C build -j $(JOBS)

clean:  ## Remove everything that was built
	rm -rf build $(VENV)

.PHONY: help demo check check-gpu dev clean
