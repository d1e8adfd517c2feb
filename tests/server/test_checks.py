"""Settings and start-up checks: what production refuses, and that the checks see it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from c4a_project import checks, settings

ROOT = Path(__file__).resolve().parents[2]
SECRETS = {name: letter * 50 for name, letter in (("C4A_SECRET_KEY", "k"), ("C4A_RECORD_SECRET", "r"), ("C4A_DIGEST_KEY", "d"))}


@pytest.fixture
def production(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Settings of a production server that is set up well, as the checks see them."""
    made = SimpleNamespace(
        PRODUCTION=True,
        SECRET_KEY="k" * 50,
        RECORD_SECRET="r" * 50,
        DIGEST_KEY="d" * 50,
        REDIS_URL="redis://cache",
        DATABASE_URL="postgresql://db/c4a",
        ALLOWED_HOSTS=["c4a.example"],
        DEBUG=False,
        HTTPS=True,
    )
    monkeypatch.setattr(checks, "settings", made)
    return made


def ids() -> list[str | None]:
    """The ids that the checks without a database report."""
    found = [*checks.check_secrets(None), *checks.check_services(None), *checks.check_web(None)]
    return [message.id for message in found]


def test_a_good_production_server_passes(production: SimpleNamespace) -> None:
    assert ids() == []


@pytest.mark.parametrize(
    ("setting", "value", "expected"),
    [
        ("SECRET_KEY", settings.INSECURE_DEFAULT, ["c4a.E001"]),
        ("RECORD_SECRET", settings.INSECURE_DEFAULT, ["c4a.E001"]),
        ("DIGEST_KEY", settings.INSECURE_DEFAULT, ["c4a.E001"]),
        ("DIGEST_KEY", "short", ["c4a.E001"]),
        ("DIGEST_KEY", "k" * 50, ["c4a.E008"]),
        ("REDIS_URL", "", ["c4a.E003"]),
        ("DATABASE_URL", "", ["c4a.E004"]),
        ("ALLOWED_HOSTS", [], ["c4a.E005"]),
        ("ALLOWED_HOSTS", ["*"], ["c4a.E005"]),
        ("DEBUG", True, ["c4a.E006"]),
        ("HTTPS", False, ["c4a.W001"]),
    ],
)
def test_each_fault_has_its_id(production: SimpleNamespace, setting: str, value: Any, expected: list[str]) -> None:
    setattr(production, setting, value)
    assert ids() == expected


def test_an_embedded_server_needs_nothing(production: SimpleNamespace) -> None:
    production.PRODUCTION = False
    production.SECRET_KEY = production.RECORD_SECRET = settings.INSECURE_DEFAULT
    production.REDIS_URL = ""
    assert ids() == []


def test_a_newer_record_is_refused(db: None) -> None:
    from c4a.record.dialects import Statement
    from ledger.executor import executor_default

    assert checks.check_record_version(None, databases=["default"]) == []
    executor_default().trip([Statement("UPDATE c4a_meta SET value = '999' WHERE name = 'schema_version'", {})])
    (problem,) = checks.check_record_version(None, databases=["default"])
    assert problem.id == "c4a.E007"


def test_every_check_is_in_the_table() -> None:
    import re

    source = Path(checks.__file__).read_text()
    used = set(re.findall(r'id="(c4a\.[EW]\d{3})"', source))
    listed = set(re.findall(r"^\| (c4a\.[EW]\d{3}) ", source, re.MULTILINE))
    assert used == listed


def manage(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run manage.py in a process of its own, with nothing of this one's settings."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("C4A_", "DJANGO_"))}
    return subprocess.run(
        [sys.executable, "manage.py", *arguments],
        cwd=ROOT,
        env=clean | {"C4A_VAR_DIR": str(folder)} | environment,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_the_deploy_check_is_clean_with_a_production_environment(tmp_path: Path, postgres_url: str, redis_url: str) -> None:
    environment = {
        **SECRETS,
        "C4A_DATABASE_URL": postgres_url,
        "C4A_REDIS_URL": redis_url,
        "C4A_ALLOWED_HOSTS": "c4a.example",
        "C4A_PUBLIC_URL": "https://c4a.example",
    }
    environment["C4A_SECRET_KEY"] = "Zk3" + "abcdefghij0123456789" * 3
    checked = manage(tmp_path, "check", "--deploy", "--fail-level", "WARNING", "--database", "default", **environment)
    assert (checked.returncode, checked.stderr) == (0, "")


def test_production_does_not_start_without_its_secrets(tmp_path: Path, postgres_url: str) -> None:
    code = "import c4a_project.wsgi"
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("C4A_", "DJANGO_"))}
    started = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=clean | {"C4A_VAR_DIR": str(tmp_path), "C4A_DATABASE_URL": postgres_url},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert started.returncode == 1
    assert "The server does not start" in started.stderr
    for one in ("c4a.E001", "c4a.E003", "c4a.E005"):
        assert one in started.stderr


def test_an_embedded_server_makes_its_own_secrets_once(tmp_path: Path) -> None:
    folder = tmp_path / "var"
    for _ in range(2):
        checked = manage(folder, "check")
        assert checked.returncode == 0, checked.stderr
    secrets = {name: (folder / name).read_text() for name in ("secret-key", "record-secret", "digest-key")}
    assert len(set(secrets.values())) == 3
    assert folder.stat().st_mode & 0o777 == 0o700
    for name in (*secrets, "c4a.sqlite"):
        assert (folder / name).stat().st_mode & 0o777 == 0o600, name


def test_the_demo_organization_is_made_once(tmp_path: Path) -> None:
    import json

    assert manage(tmp_path, "migrate", "-v0").returncode == 0
    first, second = (json.loads(manage(tmp_path, "demo_organization").stdout) for _ in range(2))
    assert first == second
    key_file = Path(first["key_file"])
    assert key_file.stat().st_mode & 0o777 == 0o600
    key = key_file.read_text().strip()
    assert key.startswith("c4a_")
    assert key not in json.dumps(first)
    key_file.unlink()
    manage(tmp_path, "demo_organization")
    assert key_file.read_text().strip() != key


def test_the_demo_organization_is_not_made_in_production(tmp_path: Path) -> None:
    refused = manage(tmp_path, "demo_organization", "--skip-checks", C4A_PRODUCTION="true", **SECRETS)
    assert refused.returncode != 0
    assert "--in-production" in refused.stderr


def test_the_readers_refuse_what_they_cannot_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("C4A_TEST_WORD", "flase")
    with pytest.raises(ImproperlyConfigured, match="C4A_TEST_WORD"):
        settings.env_bool("C4A_TEST_WORD", True)
    monkeypatch.setenv("C4A_TEST_WORD", "many")
    with pytest.raises(ImproperlyConfigured, match="whole number"):
        settings.env_int("C4A_TEST_WORD", 1)
    monkeypatch.setenv("C4A_TEST_WORD", "-1")
    with pytest.raises(ImproperlyConfigured, match="at least"):
        settings.env_int("C4A_TEST_WORD", 1)
    monkeypatch.setenv("C4A_TEST_WORD_FILE", str(tmp_path / "missing"))
    with pytest.raises(ImproperlyConfigured, match="both set"):
        settings.env_text("C4A_TEST_WORD")
    monkeypatch.delenv("C4A_TEST_WORD")
    with pytest.raises(ImproperlyConfigured, match="cannot be read"):
        settings.env_text("C4A_TEST_WORD")
    (tmp_path / "missing").write_text("from a file\n")
    assert settings.env_text("C4A_TEST_WORD") == "from a file"


@pytest.mark.parametrize("url", ["mysql://x/y", "postgresql://host", "nonsense"])
def test_a_wrong_database_url_is_refused(url: str) -> None:
    with pytest.raises(ImproperlyConfigured, match="C4A_DATABASE_URL"):
        settings.postgresql_database(url)


def test_a_database_url_is_read_with_its_escapes() -> None:
    read = settings.postgresql_database("postgresql://us%40er:p%2Fw@db.example:6432/c4a?sslmode=require")
    assert (read["USER"], read["PASSWORD"], read["HOST"], read["PORT"], read["NAME"]) == ("us@er", "p/w", "db.example", "6432", "c4a")
    assert read["OPTIONS"]["sslmode"] == "require"


def test_only_one_settings_file_reads_the_environment() -> None:
    readers = [
        path.relative_to(ROOT).as_posix()
        for app in ("accounts", "ledger", "gateway", "approvals", "tickets")
        for path in (ROOT / app).rglob("*.py")
        if "os.environ" in path.read_text()
    ]
    assert readers == []


def test_a_role_that_may_change_entries_is_warned_of(tmp_path: Path, record_postgres_url: str) -> None:
    environment = {**SECRETS, "C4A_DATABASE_URL": record_postgres_url, "C4A_ALLOWED_HOSTS": "c4a.example"}
    checked = manage(tmp_path, "check", "--fail-level", "WARNING", "--database", "default", **environment)
    assert "c4a.W002" in checked.stderr
    assert "UPDATE, DELETE, TRUNCATE" in checked.stderr
