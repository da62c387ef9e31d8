# Trainyard's commands. `make up` and `make test` need nothing but Debian with Python 3.11, pip and apt.

PYTHON ?= python3
ARGS ?=
VENV := .venv/bin
PYTEST := $(VENV)/python -m pytest
LOCK := $(VENV)/uv pip compile --quiet --generate-hashes --no-header --no-annotate \
	--python-version 3.11 --python-platform x86_64-manylinux_2_28

.PHONY: help up agent check format test test-fast test-postgres test-slow faults images-test bench lock environment tools clean

help:
	@echo 'make up [ARGS="--data DIR --port N --nodes N --no-demo --ready-file FILE"]   start Trainyard here'
	@echo 'make test      every test, real browser included'
	@echo 'make faults [ARGS="--minutes N --seed S --postgres"]   the fault suite: needs root, takes two hours'
	@echo 'make images-test   build both images and run docker-compose.yml from them: needs root, no container engine'
	@echo 'make check     lint, types, import contracts, fast tests (under a minute)'
	@echo 'make bench     ours against the floors and the peers'
	@echo 'make agent     the environment of a training machine without GPUs (make agent KIND=gpu with)'
	@echo 'make lock      resolve the packages again and write requirements/*.txt'

environment:
	@$(PYTHON) scripts/environment.py all

up: environment
	@exec $(VENV)/python manage.py up $(ARGS)

KIND ?= cpu
agent:
	@$(PYTHON) scripts/environment.py agent-$(KIND)

TEMPLATES := dashboard/templates orchestrator/templates
check: environment
	@$(VENV)/ruff check .
	@$(VENV)/ruff format --check .
	@$(VENV)/djangofmt --check --quiet $(TEMPLATES)
	@$(VENV)/djangofmt check $(TEMPLATES)
	@$(VENV)/biome check --error-on-warnings
	@$(VENV)/lint-imports
	@$(VENV)/mypy
	@$(MAKE) --no-print-directory test-fast

format: environment
	@$(VENV)/ruff check --fix . ; $(VENV)/ruff format .
	@$(VENV)/djangofmt $(TEMPLATES) ; $(VENV)/djangofmt check --fix $(TEMPLATES)
	@$(VENV)/biome check --write

# Without plugins that only slow tests use: each of the three processes would import them.
FAST := -q -n 2 -p no:playwright -p no:anyio -m "not tf and not stack and not browser and not gpu"
test-fast: environment
	@$(PYTEST) $(FAST)

test-postgres: environment
	@TRAINYARD_TEST_DATABASE=postgres $(PYTEST) $(FAST)

# Two files at a time: these start TensorFlow, Redis, agents and Chromium, and wait for them half of the time. The
# browser's have processes of their own, because the browser's driver keeps an event loop running in them.
test-slow: environment
	@$(PYTEST) -q -n 2 --dist loadfile --durations=12 -m "(tf or stack) and not browser"
	@$(PYTEST) -q -n 2 --dist loadfile -m "browser"

test: tools check test-postgres test-slow

# What the tests use beside Python packages: Chromium, the library its driver needs, and docker-compose for the test of
# docker-compose.yml. Installed from Debian where missing.
tools:
	@missing=""; \
	command -v chromium >/dev/null || missing="$$missing chromium fonts-liberation"; \
	/sbin/ldconfig -p | grep -q 'libatomic\.so\.1' || missing="$$missing libatomic1"; \
	command -v docker-compose >/dev/null || missing="$$missing docker-compose"; \
	test -z "$$missing" || { echo "trainyard: installing$$missing"; \
	apt-get update -q && apt-get install -q -y --no-install-recommends $$missing; }

# Machines as network namespaces, so root; nftables is installed from Debian where missing, and missed where it cannot be.
faults: environment
	@test -x /usr/sbin/nft || { echo "trainyard: installing nftables"; \
	apt-get update -q && apt-get install -q -y --no-install-recommends nftables; } || true
	@$(VENV)/python -m tests.faults $(ARGS)

# Both images and every service of docker-compose.yml, without a container engine: buildah and debootstrap build, namespaces
# contain. What is built stays in .images/ for the next time.
images-test: environment
	@missing=""; \
	for program in buildah debootstrap docker-compose tini; do \
	command -v $$program >/dev/null || missing="$$missing $$program"; done; \
	test -z "$$missing" || { echo "trainyard: installing$$missing"; \
	apt-get update -q && apt-get install -q -y --no-install-recommends $$missing; }
	@$(PYTEST) -q -n 0 --show-capture=no --durations=0 -m images tests/images $(ARGS)

bench: environment
	@$(VENV)/python -m benchmarks $(ARGS)

lock: environment
	$(LOCK) pyproject.toml --extra control --extra embedded --extra agent --extra agent-cpu --group dev -o requirements/all.txt
	$(LOCK) pyproject.toml --extra control -c requirements/all.txt -o requirements/control.txt
	$(LOCK) pyproject.toml --extra agent --extra agent-cpu -c requirements/all.txt -o requirements/agent-cpu.txt
	$(LOCK) pyproject.toml --extra agent --extra agent-gpu -o requirements/agent-gpu.txt
	$(LOCK) --no-deps requirements/no-deps.in -o requirements/no-deps.txt
	$(LOCK) --no-deps requirements/uv.in -c requirements/all.txt -o requirements/uv.txt

clean:
	rm -rf .venv .images .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
