# Thin names; the work is done by claw/bootstrap.py and the tools it installs. `make demo ARGS="--seed 1"`.
PYTHON ?= python3
BIN := .venv/bin
ARGS ?=

.PHONY: demo test soak test-unit alerts-test wheel-test images-test manifests-test clients setup light check format lint types contracts schemas lock release pictures gpu-check clean help

help:  ## these lines
	@grep -E '^[a-z%-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

demo:  ## set everything up and let agents learn through a real Kafka log
	@$(PYTHON) claw/bootstrap.py demo $(ARGS)

test:  ## set everything up and run all tests but those that need a GPU, four files at a time (`ARGS="-n 0"`: one)
	@$(PYTHON) claw/bootstrap.py test $(ARGS)

soak:  ## kill, stop and starve gateway, streams, trainer and fleet again and again: `make soak N=50`
	@CLAW_SOAK=$(or $(N),100) $(PYTHON) claw/bootstrap.py test -m soak --timeout 7200 $(ARGS)

test-unit:  ## the tests that need no broker, no engine and no other process, in a minute or two
	@$(PYTHON) claw/bootstrap.py test --dist worksteal -m "not (kafka or vllm or process or slow or gpu)" $(ARGS)

wheel-test:  ## build the wheel, install each extra alone outside the clone, then all of it, and let agents learn there (downloads)
	@CLAW_WHEEL=run $(PYTHON) claw/bootstrap.py test -n 0 -s tests/infra/test_wheel.py $(ARGS)

images-test:  ## build images on Debian's packages and run them, where an engine is to be had (downloads): `TARGETS="trainer rollout"`: the whole loop
	@CLAW_IMAGES_TEST="$(or $(TARGETS),run)" $(PYTHON) claw/bootstrap.py test -n 0 -s tests/infra/live $(ARGS)

manifests-test:  ## the images, Compose and Kubernetes files of infra against schemas, catalogue and settings
	@$(PYTHON) claw/bootstrap.py test -n 0 tests/infra/test_images.py tests/infra/test_compose.py tests/infra/kubernetes $(ARGS)

clients:  ## real clients from their registries, as `claw client` configures them, on a scripted engine (needs npm), and ClickHouse on our topics
	@CLAW_CLIENTS=run $(PYTHON) claw/bootstrap.py test -n 0 tests/clients/test_live.py tests/clients/test_clickhouse.py $(ARGS)

setup:  ## install only
	@$(PYTHON) claw/bootstrap.py setup

light:  ## install gateway, streams and Kafka only, without torch
	@$(PYTHON) claw/bootstrap.py setup --light

check:  ## format, lint, types and import contracts, without changing a file
	@infra/check.sh

format:  ## rewrite the files in the house's format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	DENO_DIR=.deno_cache $(BIN)/deno fmt --quiet

lint:  ## style rules
	$(BIN)/ruff check .

types:  ## strict types
	$(BIN)/mypy

contracts:  ## who may import whom
	$(BIN)/lint-imports

schemas:  ## generate the event types from schemas/avro
	$(BIN)/python -m claw_r1.schemas.generate

lock:  ## resolve all requirements again and write claw/install/locks/*.txt
	infra/lock.sh

release: setup  ## freeze and build a version, and print what a person must do: `make release VERSION=0.1.0`
	@$(BIN)/python infra/release.py $(VERSION)

bench-%: setup  ## measure one room: bench-agents, bench-dashboard, bench-datapool, bench-deltas, bench-environments, bench-gateway, bench-loop, bench-rewards, bench-scale, bench-trainer, bench-weights (`python -m bench` says what each measures)
	$(BIN)/python -m bench.$* $(ARGS)

pictures: setup  ## every view of the dashboard, 1440 and 360 px wide, light and dark, in .tools/pictures; `ARGS=--docs`: those of docs/dashboard
	$(BIN)/python -m tests.consumers.dashboard.pictures $(ARGS)

alerts-test: setup  ## run Prometheus's own test over the alerts of infra/alerts (fetches Debian's promtool)
	$(BIN)/pytest -q tests/infra/test_alerts.py

gpu-check: setup  ## check on a GPU what only a GPU can show; where none is, print what is skipped
	$(BIN)/python -m bench.gpu_check $(ARGS)

clean:  ## forget runs, caches and the environment
	rm -rf .venv .tools .claw .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
