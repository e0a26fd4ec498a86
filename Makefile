# Three commands for people (demo, lab, test); the rest serves those who edit the notebooks.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
BROWSER ?= $(or $(MINBERT_BROWSER),$(shell command -v chromium || command -v chromium-browser))
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 --dist loadfile --no-loadscope-reorder tests --ignore tests/test_repository.py
SECURITY := $(patsubst %,tests/test_%.py,attacks damage hostile_text reading_submissions)
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: setup demo test test-long test-all test-security book lab export wheel site release clean

setup: $(READY)         ## install everything into .venv, as every other target does at first

demo: $(READY)          ## fine-tune on the open data in the package and print a table
	$(BIN)/minbert demo

test: book              ## in sync? every notebook, then every test but the long ones
	$(PYTEST) -m "not long and not browser"

test-long: book         ## and the long ones, as .ci/run asks: attacks, damaged files, the browser, other processors
	MINBERT_BROWSER="$(BROWSER)" $(PYTEST) -m "not release"
	$(BIN)/python scripts/processors.py --short

test-all: test-long     ## and what a release needs: old front ends, cells for a GPU, whole workspaces
	MINBERT_BROWSER="$(BROWSER)" $(PYTEST) -m release

test-security: $(READY) ## hostile notebooks, texts and files against grading and loading, the long tests included
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q $(SECURITY)

book: $(READY)
	$(BIN)/python -m pytest -q tests/test_repository.py
	$(BIN)/python scripts/run_notebooks.py

lab: $(READY)           ## JupyterLab with the exercises to solve, in the folder lab/; the solved book is one link away
	$(BIN)/python scripts/lab.py

export: $(READY)        ## notebooks -> minbert/, the learner's edition and README.md
	$(BIN)/nbdev_export
	$(BIN)/python scripts/build_course.py
	$(BIN)/python scripts/build_readme.py

wheel: $(READY)         ## one file that pip installs anywhere: dist/minbert-*.whl
	rm -rf build/lib build/bdist.* dist/minbert-*   # a stale copy of a module that is gone would get into the wheel
	$(BIN)/python -m build --wheel --outdir dist .

site: $(READY)          ## the website, from notebooks, package and stored results: build/site/html; no network, every link checked
	OMP_NUM_THREADS=1 $(BIN)/python scripts/build_site.py

release: wheel site     ## wheel and site, checked; prints how to tag. Run `make test-all` before it
	$(BIN)/python scripts/check_release.py

$(READY): constraints.txt settings.ini setup.py pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit("minbert needs Python 3.10 or newer, found " + sys.version.split()[0] if sys.version_info < (3, 10) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q -c constraints.txt torch
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[dev]'
	touch $(READY)

clean:
	rm -rf $(VENV) build dist _proc *.egg-info
