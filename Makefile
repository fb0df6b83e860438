# make demo      sets everything up and reproduces the paper's motivating example (about three minutes on two cores)
# make check     lint, types and the fast tests: two minutes on two cores, to be run while one works
# make test      all tests but the slowest, at most 15 minutes on two cores: what must pass before anything is merged
# make test-all  every test
#
# A test says itself where it belongs, with a mark on it or, as `pytestmark`, on its whole file: `medium` is not in make check, `slow` only
# in make test-all. Without a mark it is in all three, so most new tests need none. As a rule, on a core of its own, a test of more than
# 3 seconds is medium, one of more than 30 slow; `pytest --durations 20` tells which have outgrown their place.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo check test test-all lint browser setup bench constraints clean

demo: $(READY)
	$(BIN)/iterq reproduce car-on-hill

check: lint
	$(BIN)/python -m pytest -n auto -m "not medium and not slow"

test: lint browser
	$(BIN)/python -m pytest -n auto -m "not slow"

test-all: lint browser
	$(BIN)/python -m pytest -n auto

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

# Pages are tested in a real browser, and MuJoCo draws without a display. Where there is no browser, it and what draws are installed if that
# takes nothing but a word to Debian's packager.
browser:
	@command -v chromedriver >/dev/null || { test "$$(id -u)" = 0 && command -v apt-get >/dev/null && \
	  { apt-get -qq update && apt-get -qq install -y --no-install-recommends chromium chromium-driver libegl1 libgl1-mesa-dri; } >/dev/null 2>&1; } || \
	  echo "no browser, so its tests are skipped; apt-get install chromium chromium-driver brings one"

bench: $(READY)
	$(BIN)/python bench/car_on_hill.py

setup: $(READY)

# Pinned to constraints.txt, with uv where it is installed and pip otherwise.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "iterq needs Python 3.11 or newer; set PYTHON=..." >&2; exit 2; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	if command -v uv >/dev/null 2>&1; then uv pip install --quiet --python $(BIN)/python -c constraints.txt -e '.[dev]'; \
	else $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'; fi
	touch $(READY)

# Versions only, no addresses: one file for every Python from 3.11 on.
constraints:
	uv pip compile --quiet --universal --python-version 3.11 --all-extras --no-header --no-annotate \
	  --upgrade -o constraints.txt pyproject.toml

clean:
	rm -rf $(VENV) runs build dist .pytest_cache .ruff_cache .hypothesis
