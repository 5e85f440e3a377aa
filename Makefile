# Two commands do all the set-up: `make demo` and `make test`.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
BROWSER := .venv/.browser
# Tests run side by side, a file at a time in each process, with one thread each lest they fight over the cores.
SIDE_BY_SIDE := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1
WORKERS ?= -n auto --maxprocesses 8 --dist loadgroup

.PHONY: demo test reproduce test-slow test-adapters test-lowest docs lint format benchmark tutorial release-check clean

demo: $(READY)
	$(BIN)/steincritic demo --out out/demo

test: $(READY) $(BROWSER)
	$(SIDE_BY_SIDE) $(BIN)/python -m pytest -q $(WORKERS)

# A study of the paper or of the library: make reproduce NAME=gm-2d; NAME=list shows all.
reproduce: $(READY)
	$(BIN)/python -m studies $(NAME)

test-slow: $(READY)
	$(BIN)/python -m pytest -q -m slow

test-adapters: .venv/adapters/.ready
	.venv/adapters/bin/python -m pytest -q tests/models/adapters tests/integrations

# The site, in docs/_build/html: warnings are errors; then its links, its pages in a browser, and the examples of docstrings.
# GALLERY=0 leaves the gallery's scripts unrun.
docs: $(BROWSER) .venv/docs/.ready
	$(SIDE_BY_SIDE) .venv/docs/bin/python -m sphinx -n -W --keep-going -q -j auto docs docs/_build/html
	$(SIDE_BY_SIDE) .venv/docs/bin/python -m pytest -q $(WORKERS) --doctest-ignore-import-errors \
	  tests/test_site.py tests/test_docs.py src/steincritic

# With the lowest versions that pyproject.toml names; torch is that of constraints.txt. What such old ones warn
# of is not ours.
LOWEST := .venv/lowest
LOWEST_TESTS ?= tests
test-lowest:
	$(PYTHON) -m venv $(LOWEST)
	$(LOWEST)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch \
	  $$($(PYTHON) .ci/lowest.py sklearn parquet) pytest pytest-xdist hypothesis jsonschema pyyaml
	$(LOWEST)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -e .
	$(LOWEST)/bin/python -m pip check
	$(SIDE_BY_SIDE) $(LOWEST)/bin/python -m pytest -q $(WORKERS) -o filterwarnings=default $(LOWEST_TESTS)

# Wheel and sdist, each in an empty environment outside of the repository: README, command line, gallery.
release-check:
	PYTHON=$(PYTHON) .ci/release-check

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The tutorial notebook, from a gallery script.
tutorial: $(READY)
	$(BIN)/python examples/make_tutorial.py

benchmark: $(READY)
	$(BIN)/python benchmarks/training.py

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("steincritic needs Python 3.11 or newer, this is " + sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv || { echo "python3 has no venv module: apt-get install python3-venv"; exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,dask]'
	@touch $(READY)

# The libraries whose models are understood, in an environment of their own: they are large.
.venv/adapters/.ready: $(READY)
	$(PYTHON) -m venv .venv/adapters
	.venv/adapters/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,adapters]' lightning
	@touch $@

# The site and the libraries that scripts of the gallery use; without these, DOCS=docs, their pages have no pictures.
DOCS ?= docs,gallery
.venv/docs/.ready: $(READY)
	$(PYTHON) -m venv .venv/docs
	.venv/docs/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,dask,$(DOCS)]'
	@touch $@

# Chromium, for the tests that look at reports as a reader would: tried once, and never a reason to fail.
APT := DEBIAN_FRONTEND=noninteractive timeout 600 apt-get -qq -o Acquire::Retries=1 -o Acquire::http::Timeout=30
$(BROWSER): | $(READY)
	@{ command -v chromium || command -v chromium-browser || command -v google-chrome || \
	  { [ "$$(id -u)" = 0 ] && $(APT) update && $(APT) install -y --no-install-recommends chromium; }; } \
	  >/dev/null 2>&1 || echo "no Chromium: tests of reports in a browser are skipped; apt-get install chromium"
	@touch $(BROWSER)

clean:
	rm -rf .venv out docs/_build docs/generated docs/gallery
