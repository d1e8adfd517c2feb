"""Fixtures of the server's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.core.cache import cache

from tests.server.cast import Api, Company, company


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
