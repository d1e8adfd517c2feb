"""Fixtures for every test: real databases and a real Redis-protocol server, made empty for each test that asks."""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests import services

TEMPLATE: Final = "c4a_test_template"
OWN_SERVERS: Final = {"server", "own_server", "embedded_server", "production_server"}


def pytest_configure(config: pytest.Config) -> None:
    """Name the run's folder before xdist starts its workers, so that they share its servers."""
    if not hasattr(config, "workerinput") and services.FOLDER_VARIABLE not in os.environ:
        # Only named here: a run that starts no server makes no folder, however it ends.
        os.environ[services.FOLDER_VARIABLE] = str(Path(tempfile.gettempdir()) / f"c4a-tests-{secrets.token_hex(8)}")
        os.environ[f"{services.FOLDER_VARIABLE}_OWNER"] = str(os.getpid())


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove the run's folder; where a server was started, its keeper does so once this process is gone."""
    if os.environ.get(f"{services.FOLDER_VARIABLE}_OWNER") == str(os.getpid()):
        folder = Path(os.environ[services.FOLDER_VARIABLE])
        if not any(folder.glob("*.url")):
            shutil.rmtree(folder, ignore_errors=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In the second run, the server's tests on PostgreSQL, leave out those that start servers of their own, in both shapes."""
    if "C4A_DATABASE_URL" not in os.environ:
        return
    own = [item for item in items if OWN_SERVERS & set(getattr(item, "fixturenames", ()))]
    config.hook.pytest_deselected(items=own)
    items[:] = [item for item in items if item not in own]


@pytest.fixture(scope="session")
def run_folder() -> Path:
    """A folder shared by all workers of this test run."""
    folder = Path(os.environ[services.FOLDER_VARIABLE])
    folder.mkdir(mode=0o755, exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def postgres_server(run_folder: Path) -> str:
    """The address of the run's PostgreSQL, database `postgres`."""
    return services.postgres_server_url(run_folder)


@pytest.fixture
def postgres_url(postgres_server: str) -> Iterator[str]:
    """A fresh, empty PostgreSQL database of this test's own."""
    url = services.database_create(postgres_server)
    yield url
    _drop(url)


@pytest.fixture(scope="session")
def record_template(postgres_server: str, run_folder: Path) -> Iterator[str]:
    """The name of a template database that holds the record's schema, made once per run."""
    mark = run_folder / "template.name"
    with services.locked(run_folder, "template"):
        if not mark.exists():
            mark.write_text(_template_make(postgres_server))
    name = mark.read_text()
    yield name
    if not services.postgres_is_ours():
        services.database_drop(services.with_database(postgres_server, name))


@pytest.fixture
def record_postgres_url(postgres_server: str, record_template: str) -> Iterator[str]:
    """A PostgreSQL database of this test's own with the record's schema and nothing recorded."""
    url = services.database_create(postgres_server, template=record_template)
    yield url
    _drop(url)


@pytest.fixture
def redis_url(run_folder: Path, worker_id: str) -> str:
    """An empty database of a real Redis-protocol server; each xdist worker has its own number.

    The server named by C4A_TEST_REDIS_URL is for tests: its database, and the ones after it, are emptied.
    """
    import redis

    base = services.redis_server_url(run_folder)
    offset = int(worker_id.removeprefix("gw")) if worker_id.startswith("gw") else 0
    path = base.rsplit("/", 1)[1]
    number = (int(path) if path.isdigit() else 0) + offset
    url = services.with_database(base, str(number))
    with redis.Redis.from_url(url) as connection:
        connection.flushdb()
    return url


@pytest.fixture
def committing_db(transactional_db: None) -> Iterator[None]:
    """The server's database with real transactions; the record is empty again afterwards. See `tests.committing`."""
    yield
    from tests.committing import record_empty

    record_empty()


def _template_make(server: str) -> str:
    from c4a.record.postgres import migrate

    url = services.database_create(server, prefix=TEMPLATE)
    migrate(url)
    return url.rsplit("/", 1)[1]


def _drop(url: str) -> None:
    # Dropping forces a checkpoint; a server that goes away with the run is spared that.
    if not services.postgres_is_ours():
        services.database_drop(url)
