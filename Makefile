# Each target sets up .venv if necessary; Python 3.11 or newer and a C compiler are enough.
#   make demo      see it work
#   make test      unit tests and one use of each command, in minutes
#   make test-all  also what commands do on small projects
#   make slow      tests of seconds each; make heavy: those that need PyTorch, a GPU or much time
#   make lint      style, types, layers, language
#   make compare REF=COMMIT  measure HEAD against another commit, by turns (COMPARE_ARGS: --only tight)
#   make dist   build and test the sdist and the wheel, in dist
#   make venv   only the virtual environment, with the `stoker` command in .venv/bin
.DEFAULT_GOAL := help
SHELL := /bin/sh

# The newest Python that is new enough; override with `make PYTHON=/path/to/python3 ...`.
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
BIN := .venv/bin
INSTALLED := .venv/installed
READY := .venv/ready
# Few tests are handed out at a time, so that no worker is left alone with the slow ones.
PYTEST_ARGS ?= -n auto --maxschedchunk 2
# Without cached bytecode, every test process would compile stoker again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help venv demo picture test test-all slow sanitize heavy bench compare dist lint types style format clean

help:
	@sed -n '/^# Each/,/^\./s/^# \{0,1\}//p' Makefile

venv: $(READY)

# stoker itself, with what it needs to run.
$(INSTALLED): pyproject.toml CMakeLists.txt $(wildcard launcher/*.[ch] src/stoker/knowledge/*.toml src/stoker/knowledge/*/*.toml)
	@test -n "$(PYTHON)" || { echo "make: no Python >= 3.11 with venv found." >&2; \
		echo "  Debian, Ubuntu: apt-get install python3-venv   Fedora: dnf install python3" >&2; exit 1; }
	@echo "making .venv (about 20 seconds, once)"
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	@$(BIN)/python -m pip install --quiet --editable .
	@touch $(INSTALLED)

$(READY): $(INSTALLED)
	@echo "installing the tools of the tests (about a minute, once)"
	@$(BIN)/python -m pip install --quiet --group dev
	@touch $(READY)

# CMake and ninja are taken from the package index where this machine has none.
demo: $(INSTALLED)
	@PATH="$(BIN):$$PATH"; command -v cmake >/dev/null && command -v ninja >/dev/null || \
		$(BIN)/python -m pip install --quiet --editable '.[tools]'
	@$(BIN)/python examples/demo.py .demo

# The memory curves of both builds of the demo, for the README: root and an idle machine.
picture: venv
	@$(BIN)/python examples/picture.py docs/memory.svg

# The longest test comes first, so that no worker is left alone with it.
test: venv
	$(BIN)/python -m pytest -m "not heavy and not slow" $(PYTEST_ARGS) tests/commands/test_every_command.py tests/unit

test-all: venv
	$(BIN)/python -m pytest -m "not heavy and not slow" $(PYTEST_ARGS)

slow: venv
	$(BIN)/python -m pytest -m "slow and not heavy" $(PYTEST_ARGS)

# The launcher's tests with the address and undefined behaviour sanitizers. The preloaded library is
# never built with them, so its tests are left out.
sanitize: venv
	STOKER_LAUNCHER_CMAKE_ARGS=-DSTOKER_SANITIZE=ON ASAN_OPTIONS=detect_leaks=0 \
		$(BIN)/python -m pytest $(PYTEST_ARGS) tests/unit/launcher/test_launcher_*.py

heavy: venv
	$(BIN)/python -m pytest -m heavy $(PYTEST_ARGS)
	$(BIN)/python -m pytest --hypothesis-profile=thorough -m hypothesis $(PYTEST_ARGS)

# Under a real memory limit: root and a memory cgroup. Minutes; best on an idle machine.
bench: venv
	$(BIN)/python benchmarks/governor.py
	$(BIN)/python benchmarks/governor.py --limit-mb 1850
	if command -v nvcc >/dev/null; then \
		$(BIN)/python benchmarks/governor.py --cuda --heavy 2 --light 4 --limit-mb 1200; fi

# Both commits do the same work by turns; above 1 is slower. Best on an idle machine.
compare: venv
	@test -n "$(REF)" || { echo "make: name the commit to compare with: make compare REF=main" >&2; exit 2; }
	$(BIN)/python benchmarks/compare.py $(REF) $(COMPARE_ARGS)

dist: venv
	@$(BIN)/python -m pip install --quiet --group release
	@$(BIN)/python release/dist.py dist

lint: types style

types: venv
	$(BIN)/mypy

style: venv
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/python tests/language.py

format: venv
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv .demo dist share .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
