# Everything a developer needs. Works on a bare Debian 12 with Python 3.11 and make; the second time is quick,
# because what is already installed is remembered in stamp files that live inside what they describe.

VENV   := .venv
PYTHON := $(VENV)/bin/python
JOBS   ?= 4
ARGS   ?=

READY    := $(VENV)/.ready
RUNNABLE := $(VENV)/.runnable
INTEROP  := tests/interop/node_modules/.ready
SOURCES  := $(wildcard src tests bench scripts)

.PHONY: help run demo pictures test long check lint types unit bench lab soak attack docs system clean

help:  ## this list
	@sed -n 's/^\([a-z]*\):.*##  *\(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

run: $(RUNNABLE)  ## start a broker and its web console on this machine (ARGS="--port 1884" passes options)
	@exec $(VENV)/bin/tidegate serve --console $(ARGS)

demo: $(RUNNABLE)  ## a node with sensors, a slow worker, a flood, calls to labels and a cluster, to look at in the console
	@exec $(VENV)/bin/tidegate demo $(ARGS)

pictures: $(READY) system  ## make docs/pictures of the console again
	$(PYTHON) scripts/console_pictures.py $(ARGS)

# Tests of timing can fail because others ran beside them or the host stood still: what failed is run once more, alone,
# and has to pass then; both runs are in the output. Exit status 5 means that no test carries the mark.
test: $(READY) system $(INTEROP)  ## all tests, with other projects' clients and brokers
	@status=0; \
	$(PYTHON) -m pytest -q -n $(JOBS) --cache-clear -m "not (serial or spark or long)" $(ARGS) || status=$$?; \
	$(PYTHON) -m pytest -q -n 0 -m "(serial or spark) and not long" $(ARGS) \
	  || { code=$$?; [ $$code -eq 5 ] || [ $$status -gt 1 ] || status=$$code; }; \
	[ $$status -ne 1 ] || { echo "once more, alone, what failed:"; \
	  $(PYTHON) -m pytest -q -n 0 --last-failed --last-failed-no-failures none -m "not long" $(ARGS); status=$$?; }; \
	exit $$status

long: $(READY) system  ## whole runs of the pipeline on Spark, and on a cluster of it, and all attacks: 15 minutes
	$(PYTHON) -m pytest -q -n 0 -m long $(ARGS)

check: lint types unit  ## lint, types and unit tests: before every commit, under two minutes

lint: $(READY)
	$(VENV)/bin/ruff check $(SOURCES)

types: $(READY)
	$(VENV)/bin/mypy

unit: $(READY)
	$(PYTHON) -m pytest -q -n $(JOBS) -m "not spark" tests/unit $(ARGS)

bench: $(READY) system  ## measure beside Mosquitto, write bench/results and bench/README.md
	$(PYTHON) bench/run.py $(ARGS)

lab: $(READY) system  ## run the papers' experiments and render results/ (ARGS="e1.1-traffic --quick")
	$(VENV)/bin/tidegate lab run $(or $(ARGS),backoff)

attack: $(READY)  ## attack a node for 30 minutes in all ways it has (ARGS="--minutes 2 --seed 7")
	$(PYTHON) -m pytest -q -n 0 -m long tests/attack/test_memory.py
	$(PYTHON) -m bench.attack --json bench/results/attack.json $(ARGS)

soak: $(READY)  ## kill a loaded broker 200 times and count what it lost (ARGS="--kills 20 --soak-seed 7")
	$(PYTHON) -m pytest -q -s -n 0 --timeout 0 tests/crash/test_soak.py tests/crash/test_restart.py \
	  --kills 200 --queued 1000000 $(ARGS)

docs: $(READY)  ## write the generated pages again and build the guide into build/site
	$(PYTHON) scripts/render_configuration.py
	$(PYTHON) scripts/render_commands.py
	$(PYTHON) packaging/grafana/build.py
	$(PYTHON) -m mkdocs build --quiet
	@echo "the guide: build/site/index.html"

system:
	@scripts/ensure-system

clean:  ## remove everything that make installed or built
	rm -rf $(VENV) tests/interop/node_modules build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis

# To run a broker takes far less than to test one.
$(RUNNABLE): pyproject.toml constraints.txt scripts/ensure-venv
	@[ -x $(VENV)/bin/tidegate ] || echo "installing Tidegate into $(VENV): once, less than a minute" >&2
	@scripts/ensure-venv $(VENV) console
	@touch $@

$(READY): pyproject.toml constraints.txt scripts/ensure-venv
	@[ -x $(VENV)/bin/tidegate ] || echo "installing Tidegate into $(VENV): once, about a minute" >&2
	@scripts/ensure-venv $(VENV)
	@touch $@

$(INTEROP): tests/interop/package.json tests/interop/package-lock.json | system
	@cd tests/interop && npm ci --no-audit --no-fund --loglevel=error
	@touch $@
