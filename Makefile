# Two commands do all the set-up on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
INSTALLED_FOR_DEMO := $(VENV)/.installed-demo
CORE := .venv-core
AUDIO := .venv-audio
LOOPS := $(wildcard src/earmark/native/*.[ch])
export OMP_WAIT_POLICY := passive
# Tests start hundreds of Pythons, which would compile all of this anew.
export PYTHONDONTWRITEBYTECODE :=
# The lowest versions that pyproject.toml declares are installed here.
FLOORS := .venv-floors
# Two processes, a file at a time, in the order that tests/conftest.py gives them; no proofs of minutes.
TWO := --numprocesses 2 --dist loadfile --no-loadscope-reorder -m "not slow"

.PHONY: demo test test-slow test-core test-audio test-floors audit lint docs wheel bench clean

# The demo needs a fifth of what the tests need; both may use the same environment.
demo: $(INSTALLED_FOR_DEMO)
	$(BIN)/earmark demo --work demo-work

# Every test runs once: those that need no extra where there is none (tests/extras.py). The types
# are checked meanwhile, as they take one core and leave the other idle.
test: $(INSTALLED) $(CORE)/.installed
	$(MAKE) --jobs 2 lint test-core
	OMP_NUM_THREADS=1 $(BIN)/pytest $(TWO) --rest

# Proofs of minutes: every pair of verbs that write; deaths of nodes of a cluster.
test-slow: $(INSTALLED)
	OMP_NUM_THREADS=1 $(BIN)/pytest -m slow

# The core alone; every command either works there or says which extra it needs.
test-core: $(CORE)/.installed
	OMP_NUM_THREADS=1 $(CORE)/bin/pytest $(TWO) --core --ignore tests/browser

# Sound, where only the extra `audio` is installed.
test-audio: $(AUDIO)/.installed
	OMP_NUM_THREADS=1 $(AUDIO)/bin/pytest $(TWO) tests/audio tests/datasets $(NEEDS_MORE:%=--ignore tests/%)

NEEDS_MORE := audio/test_front_end.py audio/test_pictures.py datasets/test_hub_library.py datasets/test_hugging_face.py

# The tests of the core with the lowest versions that pyproject.toml declares.
test-floors: $(FLOORS)/.installed
	OMP_NUM_THREADS=1 $(FLOORS)/bin/pytest --core $(FLOOR_ROOMS:%=tests/%)

FLOOR_ROOMS := labels scores metrics flags
$(FLOORS)/.installed: pyproject.toml $(LOOPS)
	test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
	$(@D)/bin/pip install --quiet uv
	$(@D)/bin/uv pip install --quiet --python $(@D)/bin/python --resolution lowest-direct \
	    $(PIP_FIND_LINKS:%=--find-links %) --editable '.[test]'
	touch $@

# Whether anything is known against the versions of constraints.txt; says so where PyPI does not tell.
audit:
	$(PYTHON) .ci/audit.py

$(CORE)/.installed: EXTRAS := test
$(AUDIO)/.installed: EXTRAS := audio,test
$(CORE)/.installed $(AUDIO)/.installed: pyproject.toml constraints.txt $(LOOPS)
	test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
	$(@D)/bin/pip install --quiet --constraint constraints.txt --editable '.[$(EXTRAS)]'
	touch $@

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# The site, with warnings as errors, its notebooks run, and then its pages looked at.
docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build
	$(BIN)/pytest site

# What is published, installed where nothing else is.
wheel: $(VENV)/.release
	rm -rf build/lib build/bdist.* dist
	$(BIN)/python -m build --outdir dist
	PATH=$(CURDIR)/$(BIN):$$PATH $(BIN)/pytest .ci
	$(BIN)/hadolint Dockerfile

bench: $(INSTALLED)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[bench]'
	for script in benchmarks/*.py; do echo "== $$script"; $(BIN)/python $$script || exit 1; done

$(INSTALLED): pyproject.toml constraints.txt $(LOOPS)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@ $(INSTALLED_FOR_DEMO)

$(INSTALLED_FOR_DEMO): pyproject.toml constraints.txt $(LOOPS)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[demo]'
	touch $@

$(VENV)/.docs $(VENV)/.release: $(INSTALLED)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[$(patsubst .%,%,$(@F))]'
	touch $@

clean:
	rm -rf $(VENV) $(CORE) $(AUDIO) $(FLOORS) demo-work build dist src/earmark/native/compiled.*so
