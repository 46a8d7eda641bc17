# `make run` starts Plimsoll with a small real model; `make test` runs everything that CI runs. `make help` lists the rest.

PYTHON ?= python3
CARGO ?= cargo
# Where the daemon listens.
LISTEN ?= 127.0.0.1:8080
# A GGUF file to serve. Empty: the default model, fetched into the cache folder.
MODEL ?=
# Where the tests find their Python packages; tests/src/python.rs knows the same folder.
PYTHON_PACKAGES := target/python
TOOLS := target/tools
# What `make mutants` changes, which part of it, and the test programs that may notice (empty: all of daemon/decide's).
FILES ?= daemon/decide/src/**
SHARD ?= 0/1
TESTS ?=

.DEFAULT_GOAL := help
.PHONY: help run build test lint dependencies advisories mutants coverage doctest fetch-model fetch-test-models fetch-test-python tools

help: ## List the targets.
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 26
	@echo
	@echo "  make run MODEL=file.gguf LISTEN=127.0.0.1:9000   serves another model elsewhere"

run: build ## Fetch the default model, build in release, start the daemon.
	@set -e; model='$(MODEL)'; \
	if [ -z "$$model" ]; then model=$$($(PYTHON) tests/scripts/fetch_model.py smollm2 --print-path); fi; \
	exec target/release/plimsoll serve --model "$$model" --listen '$(LISTEN)'

build: tools ## Build the daemon and the worker in release.
	$(CARGO) build --locked --release -p plimsoll -p plimsoll-worker

test: lint dependencies fetch-test-models fetch-test-python doctest ## Everything that CI runs.
	@if $(CARGO) nextest --version >/dev/null 2>&1; \
	then $(CARGO) nextest run --locked --workspace --no-fail-fast; \
	else $(CARGO) test --locked --workspace --no-fail-fast --lib --bins --tests; fi

lint: tools ## Formatting and clippy.
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings

dependencies: $(TOOLS)/bin/cargo-deny $(TOOLS)/bin/cargo-machete ## Licences, bans, sources and unused dependencies (installs its tools into target/tools).
	$(TOOLS)/bin/cargo-deny --locked check --hide-inclusion-graph bans licenses sources
	$(TOOLS)/bin/cargo-machete

advisories: $(TOOLS)/bin/cargo-deny ## Known vulnerabilities: needs the network, so it is not part of `make test`.
	$(TOOLS)/bin/cargo-deny --locked check advisories

# Hours for all of it: a few seconds for each of more than a thousand changes. Not part of `make test`.
mutants: $(TOOLS)/bin/cargo-mutants ## Changes of the pure code that no test notices: FILES=daemon/decide/src/gpu.rs, SHARD=0/4, TESTS=zero_check.
	@set -ef; mkdir -p target/mutants; tool=cargo; if $(CARGO) nextest --version >/dev/null 2>&1; then tool=nextest; fi; \
	CARGO_PROFILE_DEV_DEBUG=0 $(TOOLS)/bin/cargo-mutants mutants -p plimsoll-decide --test-tool $$tool --sharding round-robin --shard $(SHARD) \
		-o target/mutants $(foreach file,$(FILES),--file '$(file)') $(foreach test,$(TESTS),--cargo-arg=--test=$(test))

# Two minutes, and a component of the toolchain that is not small. Not part of `make test`.
coverage: $(TOOLS)/bin/cargo-llvm-cov ## Lines of the pure code that a test runs; fails under 95 %.
	@rustup component list --installed | grep -q llvm-tools || rustup component add llvm-tools
	@set -e; runner=test; if $(CARGO) nextest --version >/dev/null 2>&1; then runner=nextest; fi; \
	$(TOOLS)/bin/cargo-llvm-cov llvm-cov $$runner -p plimsoll-decide --locked --summary-only --fail-under-lines 95 --ignore-filename-regex '/config/'

# Without optimisation: they run for seconds and would build for minutes.
$(TOOLS)/bin/cargo-deny:
	$(CARGO) install --locked --debug --root $(TOOLS) cargo-deny@0.20.2

$(TOOLS)/bin/cargo-mutants:
	$(CARGO) install --locked --debug --root $(TOOLS) cargo-mutants@27.1.0

$(TOOLS)/bin/cargo-llvm-cov:
	$(CARGO) install --locked --debug --root $(TOOLS) cargo-llvm-cov@0.9.1

$(TOOLS)/bin/cargo-machete:
	$(CARGO) install --locked --debug --root $(TOOLS) cargo-machete@0.9.2

doctest: tools
	$(CARGO) test --locked --workspace --doc --quiet

fetch-model: tools ## Fetch the default model into the cache folder.
	$(PYTHON) tests/scripts/fetch_model.py smollm2

fetch-test-models: tools ## Fetch the models that tests use.
	$(PYTHON) tests/scripts/fetch_model.py all

fetch-test-python: tools ## Fetch the Python packages that tests use.
	$(PYTHON) tests/scripts/fetch_python.py $(PYTHON_PACKAGES)

# What can't be fetched by package name, with the command that brings it.
tools:
	@command -v $(CARGO) >/dev/null || { echo "cargo is missing: install Rust with rustup (the toolchain file pins the version)" >&2; exit 1; }
	@command -v cc >/dev/null || { echo "a C linker is missing: sudo apt-get install build-essential" >&2; exit 1; }
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) is missing: sudo apt-get install python3 python3-pip" >&2; exit 1; }
