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

.PHONY: demo test test-slow test-core test-floors audit lint docs wheel bench clean

# The demo needs a fifth of what the tests need; both may use the same environment.
demo: $(INSTALLED_FOR_DEMO)
	$(BIN)/earmark demo --work demo-work

# What needs no more than the core, or the extra `audio`, has been tested with just that: tests/extras.py.
test: lint test-core
	OMP_NUM_THREADS=1 $(BIN)/pytest $(TWO) --rest

# Proofs of minutes: every pair of verbs that write; deaths of nodes and of training processes on a cluster.
test-slow: $(INSTALLED)
	OMP_NUM_THREADS=1 $(BIN)/pytest -m slow

# The same tests where only the core is installed, and those of sound where the extra `audio` is too.
# Whatever needs another library is skipped and named; tests/extras.py says which rooms may skip nothing.
test-core: $(CORE)/.installed $(AUDIO)/.installed
	$(CORE)/bin/pytest $(REDUCED)
	$(AUDIO)/bin/pytest $(TWO) -r fEs $(SOUND_ROOMS:%=tests/%) $(WITH_SOUND)

test-core: export OMP_NUM_THREADS := 1
SOUND_ROOMS := audio datasets
WITH_SOUND := tests/cli/test_core_alone.py::test_with_audio_it_goes_as_far_as_it_can
REDUCED = $(TWO) -r fEs $(addprefix --ignore tests/,browser benchmarks docs $(SOUND_ROOMS))

# The tests of the core with the lowest versions that pyproject.toml declares.
test-floors: $(FLOORS)/.installed
	OMP_NUM_THREADS=1 $(FLOORS)/bin/pytest $(FLOOR_ROOMS:%=tests/%)

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
