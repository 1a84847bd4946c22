# On a fresh x86-64 Linux machine with Python 3.11 to 3.14 and make, `make demo` and `make test` need
# no preparation and no root. Each target first installs into $(VENV) the extras that it needs and
# that are not there yet. `make` alone lists the targets.

PYTHON ?= python3
VENV ?= .venv
PYTEST_ARGS ?= -n 2 --dist worksteal
ASV_ARGS ?=
EXTRAS ?= emulator,test
N ?= 20
# Tests start some hundred Pythons, and each would compile NumPy, SciPy, CuPy and this package anew.
unexport PYTHONDONTWRITEBYTECODE

BIN = $(VENV)/bin
ASV = $(abspath $(VENV))/bin/asv
SETUP = command -v $(PYTHON) >/dev/null || { \
	echo "setup: error: no $(PYTHON) on PATH"; \
	echo "setup: remedy: sudo apt install python3 python3-venv, or name one: make $@ PYTHON=/path/to/python3.12"; \
	exit 1; }; \
	$(PYTHON) tools/setup_environment.py $(VENV)
CUDA_TESTS = tests/cuda tests/products/test_matmul.py tests/products/test_matmul_errors.py tests/plan/test_plan.py \
	tests/epilogue/test_epilogue.py tests/products/test_epilogue_calls.py tests/tuning/test_timing.py
MODELLED_TESTS = tests/products/test_matmul.py tests/epilogue/test_epilogue.py tests/products/test_epilogue_calls.py \
	tests/products/test_float8.py tests/products/test_integer_products.py tests/cuda/test_bytes.py \
	tests/cuda/test_epilogue.py tests/cuda/test_types.py tests/cuda/test_hopper.py \
	--deselect tests/cuda/test_hopper.py::test_a_stream_and_a_graph \
	--deselect tests/cuda/test_hopper.py::test_threads_with_a_stream_each_share_a_plan \
	--deselect tests/cuda/test_hopper.py::test_a_split_product_is_the_same_bits_each_time
C_SOURCES = $$(git ls-files '*.c' '*.cpp' '*.h' '*.hip' '*.hpp' '*.cu' '*.cuh')

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-ci test-all test-cuda test-modelled lint format typecheck bench history regressions docs clean

help: ## List the targets
	@grep -E '^[a-z-]+:.*##' Makefile | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 23

setup: ## Create .venv and install cupygemm, its emulator and its tests (EXTRAS=... chooses)
	@$(SETUP) $(EXTRAS)
	@echo "setup: ready: $(BIN)/python -m cupygemm info"

demo: ## Multiply CuPy arrays on the best device at hand and check the results
	@$(SETUP) emulator
	@$(BIN)/python -m cupygemm demo
	@echo "demo: next, docs/tutorial/first_product.rst; $(BIN)/python -m cupygemm lists other commands"

test: ## Run the tests on the emulated device (PYTEST_ARGS="-x tests/products/test_matmul.py" chooses)
	@$(SETUP) emulator,test
	@$(BIN)/python -m pytest -m "not sweep and not slow" $(PYTEST_ARGS)

# Each commit draws another sample, and the same one whenever it is tested.
test-ci: ## The same with slow tests and larger samples of the long sweeps, which CI runs
	@$(SETUP) emulator,test
	@$(BIN)/python -m pytest -m "not sweep or drawn" --turn $$(git rev-list --count HEAD 2>/dev/null || echo 0) $(PYTEST_ARGS)

test-all: ## Every test, with every case of the sweeps, which CI runs once a week
	@$(SETUP) emulator,test
	@$(BIN)/python -m pytest $(PYTEST_ARGS)

test-cuda: VENV := .venv-cuda
test-cuda: ## On an NVIDIA H100 or H200: the tests there, and compute-sanitizer over every kernel
	@$(SETUP) cuda,test
	@$(BIN)/python -m pytest --device cuda $(CUDA_TESTS) $(PYTEST_ARGS)
	@compute-sanitizer --tool memcheck --report-api-errors no --error-exitcode 1 \
		$(BIN)/python -m tests.cuda.variants
	@compute-sanitizer --tool racecheck --error-exitcode 1 $(BIN)/python -m tests.cuda.variants

test-modelled: ## The tests for NVIDIA GPUs, on the model of a Hopper GPU (an hour)
	@$(SETUP) emulator,test
	@$(BIN)/python -m pytest --device modelled $(MODELLED_TESTS) $(PYTEST_ARGS)

lint: ## Check style: ruff, clang-format, numpydoc
	@$(SETUP) emulator,test,lint
	$(BIN)/ruff check .
	$(BIN)/ruff check --quiet --preview --select PLW1514 . # text without an encoding
	$(BIN)/ruff format --check .
	$(BIN)/clang-format --dry-run --Werror $(C_SOURCES)
	! LC_ALL=C.UTF-8 grep -nE '^.{101,}' $(C_SOURCES)
	$(BIN)/python -m numpydoc lint $$(git ls-files 'cupygemm/*.py')

format: ## Rewrite Python, C and device code in the project's format
	@$(SETUP) emulator,test,lint
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(C_SOURCES)

typecheck: ## Check the types of the package (mypy --strict)
	@$(SETUP) emulator,test,lint
	$(BIN)/mypy

bench: ## Run every benchmark once and print tables (ASV_ARGS="-b Computed" chooses)
	@$(SETUP) emulator,test,bench
	@cd benchmarks && $(ASV) machine --yes >/dev/null && \
		$(ASV) run --quick --python=same --show-stderr $(ASV_ARGS)

history: ## Compute the deterministic figures that the last N=20 commits lack, and write asv's site
	@$(SETUP) emulator,test,bench
	@$(BIN)/python -m benchmarks.history run -n $(N)
	@$(BIN)/python -m benchmarks.history publish
	@echo "history: $(BIN)/python -m benchmarks.history view shows it"

regressions: ## Compare the deterministic figures with the last kept ones; 2 % worse fails
	@$(SETUP) emulator,test
	@$(BIN)/python -m benchmarks.history check

docs: ## Build the documentation into docs/_build/html; a warning is an error
	@$(SETUP) emulator,test,docs
	@$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html
	@echo "docs: open docs/_build/html/index.html"

clean: ## Remove build products and tool caches (.venv and the kernel cache stay)
	@rm -rf build dist cupygemm.egg-info docs/_build docs/reference/generated .asv
	@rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@find . -path './$(VENV)' -prune -o -type d -name __pycache__ -print0 | xargs -0 -r rm -rf
	@echo "clean: done; rm -r $(VENV) removes the environment too"
