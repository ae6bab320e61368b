# Everything runs in .venv, which is made on first use. `make` alone prints what there is.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
JOBS ?= $(shell nproc)
# Processes of tests, each of which has PyTorch loaded.
TEST_JOBS ?= $(shell echo $$(( $(JOBS) < 8 ? $(JOBS) : 8 )))
VENV := .venv
BIN := $(VENV)/bin
export PATH := $(CURDIR)/$(BIN):$(PATH)
# MLIR's wheels lie where Python packages do.
SITE = $(shell $(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
# By find, not by git: sources may have come without a repository.
CXX_SOURCES = $(or $(shell find dialects lib tools -name '*.cpp' -o -name '*.h' | sort),$(error no C++ source is found: run make in the project's folder))
PYTHON_FOLDERS := python test examples benchmarks

# A comma in an argument of call.
, := ,
# $(call step,NAME,COMMAND): runs a command and prints how long it took.
define step
@echo "== $(1)"; start=$$(date +%s); if $(2); then echo "== $(1): ok, $$(( $$(date +%s) - start )) s"; \
else echo "== $(1): FAILED"; exit 1; fi
endef

.PHONY: help demo check check-gpu format dev docs wheel clean
help:
	@echo "make demo       build, compile a training step, train with it beside eager PyTorch, show both"
	@echo "make check      format, lint, types, docs, lit tests, an installed wheel, steps for GPUs, pytest"
	@echo "make conformance  try all operators of docs/conformance.md on PyTorch's own samples, and write that page"
	@echo "make check-gpu  the tests that need an NVIDIA GPU"
	@echo "make dev        build into build/ and install the package of this checkout into .venv"
	@echo "make format     bring Python and C++ into the project's format"
	@echo "make docs       write docs/dialect.md and docs/passes.md anew"
	@echo "make wheel      write dist/trainkernel-*.whl"
	@echo "make clean      remove build/, dist/ and .venv"

PACKAGES_HELP := help: pip says above what is missing. Without a network, PIP_FIND_LINKS=FOLDER takes wheels from a folder; \
PIP_INDEX_URL=URL names another index

# $(call need,PROGRAM,WHAT): ends with a message where a program is missing.
define need
@command -v "$(1)" >/dev/null || { echo "$(2)" >&2; exit 1; }
endef

# Downloads are shown: the first time they take minutes.
$(VENV)/packages: pyproject.toml
	$(call need,$(PYTHON),no Python is found$(,) expected 3.11 or newer: install it or set PYTHON=/path/to/python3.11)
	@"$(PYTHON)" -c 'import platform, sys; sys.exit(sys.version_info < (3, 11) and f"$(PYTHON) is Python {platform.python_version()}, expected 3.11 or newer: install it, or set PYTHON=/path/to/python3.11")'
	@# Without pip, which Debian keeps in another package, what is left of the folder would pass for an environment.
	@test -x $(BIN)/pip || "$(PYTHON)" -m venv --clear $(VENV) || { rm -rf $(VENV); exit 1; }
	$(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")' \
	  > $(VENV)/build-requirements.txt
	$(call step,packages: PyTorch$(,) MLIR and tools; several GB when they are not in pip's cache,\
	  { $(BIN)/python -m pip install -r $(VENV)/build-requirements.txt \
	  && $(BIN)/python -m pip install --no-build-isolation -e '.[dev]'; } || { echo "$(PACKAGES_HELP)" >&2; false; })
	@touch $@

# Other folders of MLIR than the last time, e.g. in a new .venv, need a new configuration.
build/build.ninja: $(VENV)/packages
	$(call need,cmake,CMake is not found$(,) expected 3.20 or newer on PATH)
	$(call need,$${CXX:-c++},no C++ compiler is found$(,) expected c++ on PATH or CXX: install g++ or clang)
	cmake -S . -B build -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_MAKE_PROGRAM=$(CURDIR)/$(BIN)/ninja \
	  -DMLIR_DIR=$(SITE)/mlir/lib/cmake/mlir -DLLVM_DIR=$(SITE)/llvm/lib/cmake/llvm
	@touch $@

dev: build/build.ninja
	$(call step,build,$(BIN)/ninja -C build -j $(JOBS))

demo: dev
	$(BIN)/python examples/online_training.py

# What takes one core each is done at once, then what takes all.
check: dev
	@$(MAKE) --no-print-directory -j $(TEST_JOBS) --output-sync=target check-sources check-types check-built
	$(call step,steps for GPUs,$(BIN)/python test/gpu/build_steps.py --jobs $(TEST_JOBS) >build/gpu-steps.log || { cat build/gpu-steps.log; false; })
	@echo "== pytest"
	@$(BIN)/python -m pytest -q -n $(TEST_JOBS) --dist worksteal

.PHONY: check-sources check-types check-built check-wheel
check-sources: $(VENV)/packages
	$(call step,ruff format,$(BIN)/ruff format --check --quiet $(PYTHON_FOLDERS))
	$(call step,ruff check,$(BIN)/ruff check --quiet $(PYTHON_FOLDERS))
	$(call step,clang-format,$(BIN)/clang-format --dry-run -Werror $(CXX_SOURCES))

check-types: $(VENV)/packages
	$(call step,mypy,$(BIN)/mypy)

# One behind another: the first and the last are builds.
check-built: build/build.ninja
	$(call step,docs,$(BIN)/ninja -C build docs >build/docs.log && cmp build/docs/dialect.md docs/dialect.md && cmp build/docs/passes.md docs/passes.md)
	$(call step,lit,$(BIN)/lit -q --order smart test)
	$(call step,wheel,$(MAKE) --no-print-directory check-wheel)

# The installed package is complete, and its runtime starts without PyTorch and MLIR: only the named packages are there.
check-wheel: wheel
	@rm -rf build/installed
	@$(BIN)/python -m pip install --quiet --no-deps --target build/installed dist/trainkernel-*.whl
	@$(BIN)/python test/check_installed.py build/installed

wheel: dev
	@rm -rf dist
	@$(BIN)/python -m pip wheel --quiet --no-build-isolation --no-deps -w dist --config-settings=build-dir=build \
	  --config-settings=cmake.define.MLIR_DIR=$(SITE)/mlir/lib/cmake/mlir \
	  --config-settings=cmake.define.LLVM_DIR=$(SITE)/llvm/lib/cmake/llvm .

# What has results in build/conformance is not tried again; some two hours on two cores in all.
.PHONY: conformance
conformance: dev
	$(BIN)/python test/conformance/run_conformance.py --jobs $(JOBS)

check-gpu: dev
	@$(BIN)/python -m pytest -q test/gpu; status=$$?; \
	if [ $$status -eq 5 ]; then echo "check-gpu: no test ran, for the reasons above; expected an NVIDIA GPU" >&2; fi; exit $$status

format: $(VENV)/packages
	$(BIN)/ruff check --quiet --fix $(PYTHON_FOLDERS)
	$(BIN)/ruff format --quiet $(PYTHON_FOLDERS)
	$(BIN)/clang-format -i $(CXX_SOURCES)

docs: dev
	$(BIN)/ninja -C build docs
	cp build/docs/dialect.md build/docs/passes.md docs/

clean:
	rm -rf build dist $(VENV)
