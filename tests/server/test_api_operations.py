"""Who am I, probes, metrics and the API's own description."""

from __future__ import annotations

import json

import jsonschema
import pytest
from django.test import Client
from drf_spectacular.validation import validate_schema
from pytest_django import Settings

from c4a.record.dialects import Statement
from c4a_project import checks
from gateway.operations import organization_digest_key
from ledger.digest_key import _refuse_other
from ledger.executor import executor_default
from tests.server.cast import Api, Company


def test_me_tells_an_agent_who_it_is(agent: Api, acme: Company) -> None:
    me = agent.get("me").json
    assert me["organization"] == {"id": acme.organization.id, "slug": "acme", "name": "Acme"}
    assert (me["actor"], me["scopes"], me["environment"]) == (f"agent:{acme.agent.id}", ["act", "read"], "live")


def test_only_agents_get_their_organizations_digest_key(acme: Company, other: Company) -> None:
    key = Api(acme.key).get("me").json["digest_key"]
    assert len(bytes.fromhex(key)) == 32
    assert key == organization_digest_key(acme.organization.id) != Api(other.key).get("me").json["digest_key"]
    for service in (acme.admin, acme.decider, acme.reader):
        assert "digest_key" not in Api(service).get("me").json


def test_another_digest_key_than_the_one_agents_were_given_is_refused(agent: Api, settings: Settings) -> None:
    _refuse_other.cache_clear()
    given = agent.get("me").json["digest_key"]
    assert checks.check_digest_key(None, databases=["default"]) == []
    settings.DIGEST_KEY = "another key of fifty characters, set by mistake ...."

    reply = agent.get("me")

    assert (reply.status, reply.code) == (500, "ledger-error")
    assert "C4A_DIGEST_KEY" in reply.json["detail"]
    assert settings.DIGEST_KEY not in reply.text
    assert [found.id for found in checks.check_digest_key(None, databases=["default"])] == ["c4a.E009"]
    assert given not in reply.text
    _refuse_other.cache_clear()


def test_the_probes_need_no_key_and_no_host_name(db: None) -> None:
    for path in ("/healthz", "/readyz"):
        reply = Client().get(path, headers={"Host": "10.0.0.7"})
        assert (reply.status_code, reply.json()) == (200, {"status": "ok"})
    assert Api(None).get("healthz").status == Api(None).get("readyz").status == 200


def test_it_is_not_ready_on_a_record_of_another_version(db: None) -> None:
    executor_default().trip([Statement("UPDATE c4a_meta SET value = '999' WHERE name = 'schema_version'", {})])
    reply = Api(None).get("readyz")
    assert (reply.status, reply.code) == (503, "record-unreachable")
    assert Api(None).get("healthz").status == 200


def test_metrics_count_the_organizations_own_doubts(agent: Api, other: Company) -> None:
    agent.doubt()
    agent.claim("r2")
    text = agent.get("metrics").text
    assert 'c4a_effects_in_doubt{organization="' in text
    assert [line.rsplit(" ", 1)[1] for line in text.splitlines() if not line.startswith("#")][:2] == ["1", "1"]
    assert [line.rsplit(" ", 1)[1] for line in Api(other.key).get("metrics").text.splitlines() if not line.startswith("#")] == ["0"] * 3


@pytest.fixture(scope="module")
def document() -> dict[str, object]:
    """The OpenAPI document as the server gives it out."""
    return Api(None).get("openapi.json").json  # type: ignore[no-any-return]


def test_openapi_is_valid_3_1(document: dict[str, object]) -> None:
    assert str(document["openapi"]).startswith("3.1")
    validate_schema(document)  # type: ignore[no-untyped-call]


def test_openapi_names_every_address_with_its_scope(document: dict[str, object]) -> None:
    from gateway.urls import urlpatterns

    paths = document["paths"]
    assert isinstance(paths, dict)
    served = [
        str(pattern.pattern).replace("effect_key:", "").replace("path:", "").replace("slug:", "").replace("str:", "")
        for pattern in urlpatterns
    ]
    expected = {"/" + path.replace("<", "{").replace(">", "}") for path in served if path.startswith("api/v1/")} - {"/api/v1/openapi.json"}
    assert set(paths) == expected
    for methods in paths.values():
        for operation in methods.values():
            assert operation["summary"]
            assert "Needs" in operation["description"]
            assert "default" in operation["responses"]


def test_answers_are_as_openapi_says(document: dict[str, object], agent: Api) -> None:
    paths = document["paths"]
    assert isinstance(paths, dict)

    def schema(path: str, method: str) -> dict[str, object]:
        return paths[path][method]["responses"]["200"]["content"]["application/json"]["schema"]  # type: ignore[no-any-return]

    grant = agent.claim()
    jsonschema.validate(grant.json, schema("/api/v1/effects/claim", "post"))
    jsonschema.validate(agent.get(f"effects/{grant.json['key']}").json, schema("/api/v1/effects/{key}", "get"))
    jsonschema.validate(agent.get("effects").json, schema("/api/v1/effects", "get"))
    jsonschema.validate(agent.get("me").json, schema("/api/v1/me", "get"))
    problem = paths["/api/v1/effects/claim"]["post"]["responses"]["default"]["content"]["application/problem+json"]["schema"]
    jsonschema.validate(agent.claim().json, problem)


def test_the_reference_page_shows_every_operation(document: dict[str, object]) -> None:
    page = Client().get("/api-reference")
    assert page.status_code == 200
    assert "script-src 'self'" in page.headers["Content-Security-Policy"]
    text = page.content.decode()
    for methods in json.loads(json.dumps(document["paths"])).values():
        for operation in methods.values():
            assert f'id="{operation["operationId"]}"' in text
    for code in ("effect-running", "key-conflict", "body-too-large", "no-such-address"):
        assert f"<code>{code}</code>" in text
