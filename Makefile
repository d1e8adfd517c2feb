# Two commands matter: `make run` starts everything on this machine, `make test` tests it.
# Nothing is needed but Python 3.12 or 3.13 with pip; see .ci/find-python and .ci/environment.py.

.DEFAULT_GOAL := help
.PHONY: help run test demo prove lint format bench lock clean environment-run environment-test

BIN := .venv/bin
PYTEST := $(BIN)/python -m pytest --quiet
WORKERS := --numprocesses logical --maxprocesses 8 --dist worksteal

help:
	@echo "make run     start C4A on this machine (SQLite, nothing to install); ends with a sign-in link"
	@echo "make test    every test of tier T, on SQLite, a real PostgreSQL and a real Redis-protocol server"
	@echo "make demo    a real agent process, killed and started again: the mail is sent once"
	@echo "make lint    formatting, lint, types, layers, templates, migrations, deploy checks"
	@echo "make prove   the long tests: kills at every statement, every guard taken out once"
	@echo "make bench   the benchmarks, side by side with the bare database"
	@echo "make lock    write requirements*.txt anew from requirements*.in"
	@echo "make clean   remove .venv, var and caches"
	@echo "PYTHON=/path/to/python3.12 names an interpreter; C4A_PORT=9000 a port."

environment-run environment-test: environment-%:
	@python=$$(.ci/find-python) && "$$python" .ci/environment.py $*

run: environment-run
	@exec $(BIN)/python manage.py run

test: environment-test
	@echo "Tests, the server on SQLite"
	@$(PYTEST) $(WORKERS) tests
	@echo "Tests of the server again, on PostgreSQL and Redis"
	@$(BIN)/python -m tests.services run --server-on-postgresql -- $(PYTEST) $(WORKERS) tests/server

demo: environment-test
	@exec $(BIN)/python -m tests.services run -- $(BIN)/python -m c4a.demo

lint: environment-test
	@.ci/lint

format: environment-test
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

prove: environment-test
	@echo "Tests of tier P"
	@$(PYTEST) -m prove --override-ini faulthandler_timeout=5400 tests
	@echo "Every guard taken out once"
	@$(BIN)/python -m tests.walls.mutate
	@echo "Benchmarks, into docs/benchmarks"
	@$(MAKE) --no-print-directory bench BENCH=--million

# Exits 1 if a figure falls short of its must; the reports are written all the same.
bench: environment-test
	@$(BIN)/python -m tests.services run -- $(BIN)/python -m benchmarks.record $(BENCH) --write docs/benchmarks/record.md; record=$$?; \
		$(BIN)/python -m tests.services run -- $(BIN)/python -m benchmarks.rest --write docs/benchmarks/rest.md && exit $$record

lock: environment-test
	@.ci/lock $(UPGRADE)

clean:
	@rm -rf .venv .venv-library .venv.lock var build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
