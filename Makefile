# Two commands do all the set-up: `make demo` and `make test`.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: demo test test-slow lint format benchmark clean

demo: $(READY)
	$(BIN)/steincritic demo --out out/demo

test: $(READY)
	$(BIN)/python -m pytest -q

test-slow: $(READY)
	$(BIN)/python -m pytest -q -m slow

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

benchmark: $(READY)
	$(BIN)/python benchmarks/training.py

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("steincritic needs Python 3.11 or newer, this is " + sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv || { echo "python3 has no venv module: apt-get install python3-venv"; exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,dask]'
	@touch $(READY)

clean:
	rm -rf .venv out
