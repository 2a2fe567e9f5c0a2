# `make demo` and `make test` set up all they need; `make help` lists the rest.

BIN := .venv/bin
MODEL := .models/smollm2-135m-instruct
CODE := wire dht client_sdk services operator tests benchmarks scripts
export PYTHONUNBUFFERED := 1

.DEFAULT_GOAL := help
.PHONY: help venv tools model demo test check lint types layers unit e2e bench scale faults reference proto crd chart format clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9]+:.*## / {printf "  make %-9s  %s\n", $$1, $$2}' $(MAKEFILE_LIST)

venv: ## make .venv with all parts and tools
	@scripts/venv

model: venv ## make the demo model's folder
	@$(BIN)/python -m blockswarm_services.local.demo_model $(MODEL)

demo: model ## a swarm, a chat answer, a server killed in the middle, the same tokens
	@$(BIN)/python benchmarks/demo.py

test: check unit ## everything: lint, types, layers and all tests (without the long fault run)

check: lint types layers ## the checks that run no code

lint: venv
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)

types: venv
	$(BIN)/mypy
	$(BIN)/mypy tests benchmarks --config-file tests/mypy.ini

layers: venv
	$(BIN)/lint-imports

tools: venv
	@scripts/venv-k8s

unit: model tools
	@command -v promtool >/dev/null || { echo "promtool is missing: install Prometheus (Debian: apt-get install prometheus)" >&2; exit 1; }
	$(BIN)/pytest -n 2 tests/unit
	$(BIN)/pytest -m "not faults and not cluster" --ignore=tests/unit

e2e: model ## the tests on a real cluster: kind, or KUBECONFIG with BLOCKSWARM_TEST_REGISTRY
	$(BIN)/pytest -m cluster $(E2E_ARGS) tests/cluster

bench: model ## decode speed of three servers on loopback against plain transformers
	@$(BIN)/python benchmarks/decode.py

scale: venv ## 1,000 BlockServers in a cluster of its own: cold start, latency, requests, memory
	@PYTHONPATH=tests/harness $(BIN)/python benchmarks/operator_scale.py

faults: model ## 210 seeded kill points over real server processes
	$(BIN)/pytest -m faults -s $(FAULTS_ARGS) tests/faults

reference: venv ## rewrite docs/reference from the code
	$(BIN)/python scripts/reference.py

crd: venv ## rewrite the custom resource definition from the resource model
	$(BIN)/python scripts/crd.py

chart: venv ## rewrite what is derived from the chart and what the chart derives from elsewhere
	$(BIN)/python scripts/chart.py

proto: venv ## regenerate the protocol's code
	$(BIN)/python scripts/proto.py

format: venv ## let ruff fix what it can
	$(BIN)/ruff check --fix $(CODE)
	$(BIN)/ruff format $(CODE)

clean: ## remove the environment, the model and all caches
	rm -rf .venv .venv-k8s .tools .models .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
