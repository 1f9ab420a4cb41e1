# Every target works on a machine that has Python 3.11 or newer, pip and make.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/ready
DOCS_READY := .venv/docs-ready
INSTALL := -m pip install --quiet --disable-pip-version-check --constraint $(CURDIR)/constraints.txt
TESTS ?= tests --pyargs fivesigma
# SCIPY_ARRAY_API: without it scikit-learn skips one of its checks. One thread: small fits only wait for more.
PYTEST := -m pytest --numprocesses auto --maxprocesses 8 --dist worksteal

.PHONY: coverage demo test test-oldest test-newest quick lint docs bench study study-screening release-check format browser clean

demo: $(READY)  ## the main job on the embedded default
	$(BIN)/fivesigma demo

test: $(READY)  ## all tests, warnings are errors
	SCIPY_ARRAY_API=1 OMP_NUM_THREADS=1 $(BIN)/python $(PYTEST)

test-oldest: .venv-oldest/ready  ## all tests with the lowest versions that pyproject.toml allows
	SCIPY_ARRAY_API=1 OMP_NUM_THREADS=1 .venv-oldest/bin/python $(PYTEST)

test-newest: .venv-newest/ready  ## all tests with the newest versions that there are; rm -r .venv-newest looks for them again
	SCIPY_ARRAY_API=1 OMP_NUM_THREADS=1 .venv-newest/bin/python $(PYTEST)

quick: $(READY)  ## README, documentation and layers, in seconds
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q tests/test_readme.py tests/test_docs.py tests/test_layers.py

coverage: $(READY)  ## the same with branch coverage, which doubles the time
	$(MAKE) test PYTEST_ADDOPTS="--cov --cov-report=term:skip-covered"

lint: $(READY)  ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(DOCS_READY)  ## the site, in docs/_build/html; every cell is run, warnings are errors, nothing is fetched
	rm -rf docs/_build docs/api/generated
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet --jobs auto -b html docs docs/_build/html
	$(BIN)/python docs/_ext/check_site.py docs/_build/html

release-check:  ## wheel and sdist, and the tests of the sdist in a fresh environment; TESTS=tests/significance runs a part
	rm -rf dist build/release
	$(PYTHON) -m venv build/release/venv
	build/release/venv/bin/python $(INSTALL) --upgrade pip hatchling hatch-fancy-pypi-readme
	build/release/venv/bin/python -m hatchling build
	build/release/venv/bin/python -m zipfile --list dist/fivesigma-*.whl | grep -q "^fivesigma/py.typed "
	! build/release/venv/bin/python -m zipfile --list dist/fivesigma-*.whl | grep -vE "^(File Name|fivesigma(-[0-9.]+\.dist-info)?/)"
	mkdir build/release/sdist && tar -xzf dist/fivesigma-*.tar.gz --strip-components=1 -C build/release/sdist
	cd build/release/sdist && ../venv/bin/python $(INSTALL) --build-constraint constraints.txt --group test ".[all]"
	cd build/release/sdist && SCIPY_ARRAY_API=1 OMP_NUM_THREADS=1 ../venv/bin/python $(PYTEST) $(TESTS)

bench: $(READY)  ## the quick benchmarks; writes benchmarks/results.json
	$(BIN)/python -m benchmarks

study: $(READY)  ## the study of docs/validation/study.md: make study DATA=folder-of-events; resumes where it was stopped
	$(BIN)/python -m benchmarks.studies.study all $(DATA) --jobs 2

study-screening: $(READY)  ## its first part, under half an hour
	$(BIN)/python -m benchmarks.studies.study screening $(DATA) --jobs 2

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

browser:  ## Chromium for the tests of the report's page, where root on Debian; without it they are skipped
	@if command -v chromium >/dev/null && command -v chromedriver >/dev/null; then exit 0; fi; \
	if [ "$$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then \
		echo "make browser installs on Debian as root only; install chromium and chromedriver yourself" >&2; exit 1; fi; \
	apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends chromium chromium-driver

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --build-constraint constraints.txt --group dev --editable ".[all]"
	touch $@

.venv-oldest/ready: pyproject.toml constraints-oldest.txt
	$(PYTHON) -m venv .venv-oldest
	.venv-oldest/bin/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	.venv-oldest/bin/python -m pip install --quiet --constraint constraints-oldest.txt --group test --editable ".[all,catboost]"
	touch $@

.venv-newest/ready: pyproject.toml
	$(PYTHON) -m venv .venv-newest
	.venv-newest/bin/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	.venv-newest/bin/python -m pip install --quiet --group test --editable ".[all,catboost]"
	touch $@

$(DOCS_READY): $(READY)
	$(BIN)/python $(INSTALL) --group docs
	touch $@

clean:
	rm -rf docs/_build docs/api/generated .venv .venv-oldest .venv-newest build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage
