# One command each. On a fresh machine: Python 3.11 or newer, make, and a way to the package index.
#   make demo      see it work in the browser
#   make test      run every test

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

# Programs find what others have compiled, on machines that are told to keep nothing, too: pytest compiles its
# plugins at each start otherwise, in every worker.
export PYTHONDONTWRITEBYTECODE :=

VENV    := .venv
PEERS   := .venv-bench
# Benchmarks on another interpreter than that of .venv: environments of its own, for ours and the peers.
ifdef INTERPRETER
export PYTHON := $(INTERPRETER)
VENV    := .venv-$(notdir $(INTERPRETER))
PEERS   := .venv-bench-$(notdir $(INTERPRETER))
endif
BIN     := $(VENV)/bin
export BENCH_PEERS := $(PEERS)
VIEWER  := swagger-ui-dist@5.35.0
SCAN    := .venv-scan
BEFORE  := .venv-aiohttp
WORKERS ?= 4
CODE    := $(wildcard proxy tests bench)

PIP     := -m pip install --quiet --disable-pip-version-check
LOCKED  := $(PIP) --require-hashes --requirement
COMPILE := uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header $(UPGRADE)

RUNTIME_STAMP := $(VENV)/.installed-runtime
DEV_STAMP     := $(VENV)/.installed-dev
PEERS_STAMP   := $(PEERS)/.installed
SCAN_STAMP    := $(SCAN)/.installed
BEFORE_STAMP  := $(BEFORE)/.installed

.PHONY: help install demo native test explore guides soak upgrade check aiohttp fuzz bench dist chart sbom openapi viewer lock clean

help:  ## show this list
	@echo "make <target>, where <target> is one of:"
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 12

install: $(RUNTIME_STAMP)  ## install the command domicile into .venv, at the locked versions

native: $(RUNTIME_STAMP)  ## compile the optional native code, which takes a C compiler and the headers of Python
	@$(BIN)/python -m proxy.redactor.json.native

demo: $(RUNTIME_STAMP)  ## start a sample application, the proxy and the vault, and say where to see both sides
	@$(BIN)/domicile demo $(ARGS)

test: $(DEV_STAMP) $(SCAN_STAMP)  ## run every test (WORKERS=4; ARGS="-k name" for a choice)
	@$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(ARGS)

explore: $(DEV_STAMP)  ## try new random examples, at least twenty times as many as make test (nightly; EXPLORE=20)
	@EXPLORE=$(or $(EXPLORE),20) $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal tests/property tests/fuzz tests/unit/redactor/json $(wildcard tests/e2e/test_kill*.py) \
	    tests/e2e/test_key_rotation.py tests/e2e/test_database_writer.py tests/e2e/test_adoption.py tests/e2e/test_postgres.py tests/e2e/test_migrate.py \
	    tests/e2e/test_replicas.py tests/e2e/test_takeover.py tests/e2e/test_bench_smoke.py $(ARGS)
	@$(BIN)/python -m tests.support.modelcheck $$RANDOM 100000

guides: $(DEV_STAMP)  ## follow every guide with its real application, Directus too, whose packages take 730 MB and some minutes
	@$(BIN)/python -c 'from tests.support.real import installed; installed.directus()'
	@HEAVY=1 $(BIN)/python -m pytest tests/e2e/test_guides.py tests/e2e/test_javascript_guides.py $(ARGS)

soak: $(DEV_STAMP)  ## mixed load with key rotation, reloads, backups and restarts (MINUTES=30; REPLICAS=yes: two instances on PostgreSQL; SEVERAL=yes: two workers before one owner); ends with status 1 on a fault or on growth
	@PYTHONPATH=. $(BIN)/python -m tests.support.soak $(or $(MINUTES),30) $(if $(REPLICAS),replicas)$(if $(SEVERAL),several)

upgrade: $(DEV_STAMP)  ## an earlier version (FROM=revision) serves people and is replaced by this one, on one machine and, two at once, on PostgreSQL; ends with status 1 on a wrong answer
	@PYTHONPATH=. $(BIN)/python -m tests.support.upgrade $(FROM)

check: $(DEV_STAMP)  ## lint, format, types, import directions and the architecture tests
	@$(BIN)/ruff check $(CODE)
	@$(BIN)/ruff format --check $(CODE)
	@$(BIN)/mypy $(CODE)
	@PYTHONPATH=. $(BIN)/lint-imports --no-logo
	@$(BIN)/python -m pytest -q tests/arch

aiohttp: $(DEV_STAMP) $(BEFORE_STAMP)  ## try the listeners on the minor version of aiohttp before the one that is locked
	@PYTHONPATH=$(CURDIR)/$(BEFORE) $(BIN)/python -m pytest -q -n $(WORKERS) -p no:cacheprovider tests/arch/test_aiohttp.py tests/unit/net/test_server.py \
	    tests/integration/net/test_caller_connection.py tests/unit/net/test_listener.py tests/integration/gateway/test_passthrough_quick.py \
	    tests/unit/edge/test_connections.py tests/unit/api/test_connection.py tests/unit/api/test_app.py

fuzz: $(DEV_STAMP)  ## fuzz one target for so many seconds (ARGS="json 600"; head, chunks, json, form, override, path)
	@$(BIN)/python -m tests.fuzz $(or $(ARGS),json 60)

bench: $(DEV_STAMP) $(PEERS_STAMP)  ## measure against nginx and mitmproxy and print the ratios (ARGS="1 4" for a choice; INTERPRETER=/usr/bin/python3.11: all of it on that one)
	@$(BIN)/python -m bench $(ARGS)

dist: $(RUNTIME_STAMP)  ## write the wheel and the source distribution to dist/; the same sources give the same bytes
	@rm -rf dist
	@$(BIN)/python -m hatchling build

chart: $(DEV_STAMP)  ## write the Helm chart in k8s/chart from k8s/base
	@$(BIN)/python -m tests.support.chart

sbom: $(RUNTIME_STAMP) $(SCAN_STAMP)  ## write build/sbom.cdx.json, the bill of materials of the locked versions, with their licences (CycloneDX 1.6)
	@mkdir -p build
	@$(SCAN)/bin/cyclonedx-py requirements requirements/runtime.txt --pyproject pyproject.toml --mc-type application \
	    --output-reproducible -o build/sbom.cdx.json
	@$(BIN)/python .ci/licences.py build/sbom.cdx.json

openapi: $(RUNTIME_STAMP)  ## write the interface document of the vault to openapi.json
	@$(BIN)/python -c 'from proxy.api import openapi, operations as o; print(openapi.render(openapi.interface_document(o.OPERATIONS)).decode())' > openapi.json

viewer:  ## fetch the viewer of /docs again, at its locked version, from the npm registry that npm is set to
	@folder=$$(mktemp -d) && cd $$folder && npm pack --silent $(VIEWER) && tar xzf *.tgz \
	  && cd package && sha256sum --check $(CURDIR)/proxy/api/viewer/SHA256SUMS \
	  && cp $$(cut -c67- $(CURDIR)/proxy/api/viewer/SHA256SUMS) $(CURDIR)/proxy/api/viewer/ && rm -r $$folder

lock: $(DEV_STAMP)  ## write requirements/*.txt anew from pyproject.toml (UPGRADE=-U for the newest versions)
	@$(BIN)/$(COMPILE) pyproject.toml --group dev -o requirements/dev.txt
	@$(BIN)/$(COMPILE) pyproject.toml -c requirements/dev.txt -o requirements/runtime.txt
	@$(BIN)/$(COMPILE) pyproject.toml --all-extras -c requirements/dev.txt -o requirements/extras.txt
	@$(BIN)/$(COMPILE) --group build -c requirements/dev.txt -o requirements/build.txt
	@$(BIN)/$(COMPILE) --group bench -o requirements/bench.txt
	@$(BIN)/$(COMPILE) --group scan -o requirements/scan.txt
	@$(BIN)/$(COMPILE) --no-deps --group aiohttp -o requirements/aiohttp.txt

clean:  ## remove the environments and every cache; data folders stay
	@rm -rf $(VENV) $(PEERS) $(SCAN) $(BEFORE) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .schemathesis .import_linter_cache .grimp_cache
	@find $(CODE) -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp is newer than the lock it was made from, so that a second call does nothing.

$(BIN)/python:
	@for name in $${PYTHON:-} python3.11 python3.12 python3.13 python3.14 python3; do \
	    if "$$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then found="$$name"; break; fi; \
	done; \
	if [ -z "$${found:-}" ]; then \
	    echo "Domicile needs Python 3.11 or newer, and none was found on this machine: install it, or say PYTHON=/where/it/is make $(MAKECMDGOALS)." >&2; exit 1; \
	fi; \
	"$$found" -m venv $(VENV) || { echo "$$found cannot make a virtual environment: install its venv module (on Debian: python3-venv)." >&2; exit 1; }

$(RUNTIME_STAMP): requirements/runtime.txt requirements/build.txt pyproject.toml | $(BIN)/python
	@echo "Installing the locked versions into $(VENV) ..."
	@$(BIN)/python $(LOCKED) requirements/build.txt
	@$(BIN)/python $(LOCKED) requirements/runtime.txt
	@$(BIN)/python $(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

$(DEV_STAMP): requirements/dev.txt $(RUNTIME_STAMP) | $(BIN)/python
	@echo "Installing the locked tools into $(VENV) ..."
	@$(BIN)/python $(LOCKED) requirements/dev.txt
	@touch $@

$(PEERS_STAMP): requirements/bench.txt | $(BIN)/python
	@echo "Installing the peers of the benchmarks into $(PEERS) ..."
	@$(BIN)/python -m venv $(PEERS)
	@$(PEERS)/bin/python $(LOCKED) requirements/bench.txt
	@touch $@

$(SCAN_STAMP): requirements/scan.txt | $(BIN)/python
	@echo "Installing the TLS scanners and the writer of bills of materials into $(SCAN) ..."
	@$(BIN)/python -m venv $(SCAN)
	@$(SCAN)/bin/python $(LOCKED) requirements/scan.txt
	@touch $@

$(BEFORE_STAMP): requirements/aiohttp.txt | $(BIN)/python
	@echo "Installing the minor version of aiohttp before into $(BEFORE) ..."
	@rm -rf $(BEFORE)
	@$(BIN)/python $(LOCKED) requirements/aiohttp.txt --no-deps --target $(BEFORE)
	@touch $@
