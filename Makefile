# Two commands for a newcomer: `make demo` and `make test`. Each installs what it needs first.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# Test processes: each has a PostgreSQL of its own, so there are as many as processors, at most 4.
JOBS   ?= $(shell n=$$(nproc 2>/dev/null || echo 2); [ $$n -gt 4 ] && n=4; echo $$n)

.DEFAULT_GOAL := help
.PHONY: help setup setup-core postgres-programs demo test campaign lint bench bench-peers chaos proto docs clean

help: ## Show the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "%-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(VENV)/.stamp-all postgres-programs ## Install everything that development needs

setup-core: $(VENV)/.stamp-core postgres-programs

demo: setup-core ## Deploy this repository's application and call it; shows what one gets
	@$(BIN)/python -m apiary.cli demo

test: setup ## Run all tests
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile $(ARGS)

campaign: setup ## Run the tests that take minutes each
	$(BIN)/python -m pytest -m campaign $(ARGS)

lint: $(VENV)/.stamp-all ## Check style and types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy --strict apiary

bench: setup ## Measure our own systems: make bench ARGS='--workload reserve'
	$(BIN)/python -m apiary.cli bench $(ARGS)

# The server of Restate is a program in an npm package; everything else is Python.
RESTATE := $(VENV)/restate/node_modules/@restatedev

bench-peers: $(VENV)/.stamp-bench postgres-programs ## Compare with others; writes docs/benchmarks.md
	APIARY_BENCH_RESTATE=$$(ls $(CURDIR)/$(RESTATE)/restate-server-*/bin/restate-server) \
	    $(BIN)/python -m apiary.cli bench --peers --report docs/benchmarks.md $(ARGS)

chaos: setup ## Kill things at random for longer: make chaos N=2000
	$(BIN)/python -m tests.chaos.campaign --runs $(or $(N),200) $(ARGS)

proto: $(VENV)/.stamp-all ## Generate the Python of apiary/proto
	$(BIN)/python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. --grpc_python_out=. \
	    apiary/proto/apiary/v1/apiary.proto

docs: $(VENV)/.stamp-all ## Write docs/cli.md from the commands
	$(BIN)/python -m apiary.cli.reference > docs/cli.md.new && mv docs/cli.md.new docs/cli.md

clean: ## Remove what was made here, but not .apiary (the data of `apiary dev`)
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +

# A stamp is newer than pyproject.toml when what that asks for is installed.
$(VENV)/.stamp-core: pyproject.toml
	@.ci/venv "$(PYTHON)" $(VENV)
	$(BIN)/python -m pip install --quiet --editable .
	@touch $@

$(VENV)/.stamp-all: pyproject.toml
	@.ci/venv "$(PYTHON)" $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.[dev,services]'
	@touch $@ $(VENV)/.stamp-core

$(VENV)/.stamp-bench: $(VENV)/.stamp-all
	$(BIN)/python -m pip install --quiet --editable '.[bench]'
	npm install --silent --no-fund --no-audit --ignore-scripts --prefix $(VENV)/restate \
	    @restatedev/restate-server@1.7.12
	@touch $@

postgres-programs: $(VENV)/.stamp-core
	@.ci/postgres $(BIN)/python
