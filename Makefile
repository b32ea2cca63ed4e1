# Two commands do all the set-up on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
CORE := .venv-core
AUDIO := .venv-audio
export OMP_WAIT_POLICY := passive

.PHONY: demo test test-core lint bench clean

demo: $(INSTALLED)
	$(BIN)/earmark demo --work demo-work

test: lint test-core
	OMP_NUM_THREADS=1 $(BIN)/pytest --numprocesses 2 --dist loadfile

# The same tests where only the core is installed, and where the extra `audio` is too. Whatever needs
# another library is skipped and named; tests/extras.py says which rooms may skip nothing.
test-core: $(CORE)/.installed $(AUDIO)/.installed
	for environment in $(CORE) $(AUDIO); do \
	    echo "== $$environment"; \
	    OMP_NUM_THREADS=1 $$environment/bin/pytest --numprocesses 2 --dist loadfile -r fEs \
	        --ignore tests/browser --ignore tests/benchmarks || exit 1; \
	done

$(CORE)/.installed: EXTRAS := test
$(AUDIO)/.installed: EXTRAS := audio,test
$(CORE)/.installed $(AUDIO)/.installed: pyproject.toml constraints.txt
	test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
	$(@D)/bin/pip install --quiet --constraint constraints.txt --editable '.[$(EXTRAS)]'
	touch $@

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(INSTALLED)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[bench]'
	for script in benchmarks/*.py; do echo "== $$script"; $(BIN)/python $$script || exit 1; done

$(INSTALLED): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) $(CORE) $(AUDIO) demo-work build dist
