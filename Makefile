# `make` alone lists the words. Every word sets up what it needs first.
#
#   PYTHON=python3.12   the interpreter for .venv (default: the first one found, 3.11 or newer)
#   WORKERS=4           test processes side by side
#   PORT=3001           where `make dev` serves the Dagster pages

WORKERS ?= 2
PORT ?= 3000
export PYTHON

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

BIN := .venv/bin
# Says JAVA_HOME where Java was found off the PATH.
RUN := source .venv/java.env &&

.PHONY: help setup readers demo dev test lint types bench docs clean

help:
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-7s %s\n", $$1, $$2 }' Makefile

setup: .venv/.project ## make .venv from the lock, find or install Java, fetch Spark's jars
	@deploy/setup.sh java
	@$(MAKE) --silent .venv/.jars

.venv/.requirements: requirements.txt
	@deploy/setup.sh requirements
	@touch $@

.venv/.project: .venv/.requirements pyproject.toml
	@deploy/setup.sh project
	@touch $@

.venv/.jars: .venv/.requirements mirror_assets/pipeline/session.py
	@$(RUN) deploy/setup.sh jars

readers: .venv/.requirements ## make the environments of readers for second opinions, in .readers
	@deploy/setup.sh readers

demo: setup ## show the whole thing once, in .demo, with nothing but this checkout
	@$(RUN) $(BIN)/python -m mirror_assets.demo

dev: setup ## serve Dagster on 127.0.0.1, in the foreground; it shows what `make demo` makes
	@mkdir -p .dagster_home && cp dagster.yaml .dagster_home/dagster.yaml
	@if [ ! -e mirror.toml ] && [ -z "$${MIRROR_METASTORE_URL:-}" ]; then \
		export MIRROR_METASTORE_URL="sqlite:///$(CURDIR)/.demo/mirror.db"; fi; \
	export MIRROR_DAGSTER_URL="$${MIRROR_DAGSTER_URL:-http://127.0.0.1:$(PORT)}"; \
	$(RUN) DAGSTER_HOME="$(CURDIR)/.dagster_home" exec $(BIN)/dagster dev \
		--workspace workspace.yaml --host 127.0.0.1 --port $(PORT)

test: setup ## run every test
	@if [ -d ../shared/corpora ]; then echo "corpora tests: run"; \
	else echo "corpora tests: absent, because ../shared/corpora is not beside this checkout"; fi
	@if [ -d .readers ]; then echo "readers tests: run"; \
	else echo "readers tests: absent; \`make readers\` makes what they need"; fi
	@$(RUN) $(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadgroup

lint: setup ## ruff: rules and format
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check

types: setup ## mypy, strict
	@$(BIN)/mypy

bench: setup ## run the benchmarks
	@$(RUN) $(BIN)/python -m benchmarks

docs: setup ## list the pages; they are plain Markdown, there is nothing to build
	@find README.md CHANGELOG.md docs -name '*.md' 2>/dev/null | sort || true

clean: ## remove .venv, .readers, caches, and what demo and dev left
	@rm -rf .venv .readers .demo .dagster_home .hypothesis .mypy_cache .pytest_cache .ruff_cache \
		build dist spark-warehouse metastore_db derby.log
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
