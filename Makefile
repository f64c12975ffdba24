.DEFAULT_GOAL := help
.PHONY: help build demo test bench lint format asan tsan clean
SHELL := /bin/bash
JOBS ?= $(shell nproc)
export CCACHE_DIR ?= $(HOME)/.cache/strake-ccache
BENCH ?= all
STRAKE_VENV ?= .venv
COMPILE := cmake --build --preset release -j $(JOBS)
TIDY ?=

help: ## Show this list
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

build: ## Set up and build the program: build/strake
	@tools/setup.sh build
	@cmake --preset release $(if $(wildcard build/CMakeCache.txt),>/dev/null)
	@$(COMPILE) --target program

demo: build ## Fine-tune a pretrained encoder on real text and score a held-back part (FULL=1: all 15 classes)
	@tools/setup.sh demo
	@tools/demo.sh $(if $(FULL),--full)

test: build ## Set up, build and run every test
	@tools/setup.sh test
	@$(COMPILE)
	@# Tests share the cores: threads that wait for each other leave theirs to the test beside them.
	@OMP_WAIT_POLICY=passive ctest --test-dir build --output-on-failure -j $(JOBS)

bench: build ## Compare with the named peers (BENCH=training, ranks, language, collectives, states, linears, inference, long, latency, masked, perplexity, prepare, memory, accuracy or all)
	@tools/setup.sh test bench
	@$(COMPILE)
	@[ $(BENCH) = memory -o $(BENCH) = accuracy ] || $(STRAKE_VENV)/bin/python benchmarks/run.py $(BENCH)
	@[ $(BENCH) != memory -a $(BENCH) != all ] || $(STRAKE_VENV)/bin/python benchmarks/memory.py
	@[ $(BENCH) != accuracy -a $(BENCH) != all ] || { tools/setup.sh demo && $(STRAKE_VENV)/bin/python benchmarks/accuracy.py; }

lint: build ## clang-format, ruff, include layers, sizes, clang-tidy on what changed (TIDY=all, none or a revision)
	@tools/setup.sh lint
	@tools/lint.sh $(TIDY)

format: ## Format C++ and Python in place
	@tools/setup.sh lint
	@git ls-files '*.h' '*.cpp' | xargs $(STRAKE_VENV)/bin/clang-format -i
	@$(STRAKE_VENV)/bin/ruff format --quiet .

asan: ## Run the tests under AddressSanitizer, LeakSanitizer and UndefinedBehaviorSanitizer
	@tools/setup.sh build test
	@cmake --preset asan >/dev/null && cmake --build --preset asan -j $(JOBS)
	@ctest --preset asan

tsan: ## Run the tests of what threads share under ThreadSanitizer
	@tools/setup.sh build
	@cmake --preset tsan >/dev/null
	@cmake --build --preset tsan -j $(JOBS) --target core_tests comm_tests comm_nccl_comm_test data_tests kernels_tests
	@ctest --preset tsan

clean: ## Remove build folders (the virtual environment stays)
	@rm -rf build build-dev build-asan build-tsan
