"""Fixtures of the server's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from django.core.cache import cache

from tests import services
from tests.server.cast import Api, Company, company
from tests.server.live import LiveServer


@pytest.fixture
def acme(db: None) -> Company:
    """The organization whose things are tested."""
    return company("acme")


@pytest.fixture
def other(db: None) -> Company:
    """Where the stranger works."""
    return company("other")


@pytest.fixture
def agent(acme: Company) -> Api:
    """The REST API as Acme's agent sees it."""
    return Api(acme.key)


@pytest.fixture
def admin_key(acme: Company) -> Api:
    """The REST API as Acme's operator service sees it."""
    return Api(acme.admin)


@pytest.fixture(autouse=True)
def empty_cache() -> Iterator[None]:
    """No counter of one test throttles another."""
    cache.clear()
    yield
    cache.clear()


@pytest.fixture(scope="session")
def embedded_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """The embedded shape in a process of its own."""
    server = LiveServer(tmp_path_factory.mktemp("embedded"))
    server.prepare()
    server.start()
    yield server
    server.kill()


@pytest.fixture(scope="session")
def production_server(tmp_path_factory: pytest.TempPathFactory, postgres_server: str, run_folder: Path) -> Iterator[LiveServer]:
    """The production shape in processes of its own."""
    database = services.database_create(postgres_server)
    server = LiveServer(tmp_path_factory.mktemp("production"), database, services.redis_server_url(run_folder))
    server.prepare()
    server.start()
    yield server
    server.kill()
    if not services.postgres_is_ours():
        services.database_drop(database)


@pytest.fixture(params=["embedded", "production"])
def server(request: pytest.FixtureRequest) -> LiveServer:
    """A running server, in both shapes."""
    return request.getfixturevalue(f"{request.param}_server")  # type: ignore[no-any-return]
