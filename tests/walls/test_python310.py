"""The library on every Python it promises, 3.10 to 3.13, as far as this machine has them; and without anything installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parent.parent.parent
VERSIONS: Final = ("3.10", "3.11", "3.12", "3.13")

IMPORT_ALL: Final = """
import importlib, pathlib, sys
sys.path.insert(0, sys.argv[1])
for path in sorted(pathlib.Path(sys.argv[1], "c4a").rglob("*.py")):
    name = ".".join(path.relative_to(sys.argv[1]).with_suffix("").parts).removesuffix(".__init__")
    if not name.endswith("__main__"):
        importlib.import_module(name)
"""
FOREIGN: Final = """
import sys
sys.path.insert(0, sys.argv[1])
before = set(sys.modules)
import c4a
loaded = {name.partition(".")[0] for name in set(sys.modules) - before}
print(*sorted(loaded - set(sys.stdlib_module_names) - {"c4a"}))
"""


def interpreters() -> dict[str, str]:
    """A working interpreter for each promised version that this machine has: `{"3.10": "/path"}`."""
    found: dict[str, str] = {}
    home = os.environ.get("PYENV_ROOT", str(Path("~/.pyenv").expanduser()))
    for version in VERSIONS:
        named = [sys.executable] if version == f"{sys.version_info.major}.{sys.version_info.minor}" else []
        candidates = [*named, f"python{version}", *sorted(map(str, Path(home).glob(f"versions/{version}.*/bin/python")))]
        working = next((one for one in candidates if _version_of(one) == version), None)
        if working is not None:
            found[version] = working
    return found


def _version_of(interpreter: str) -> str | None:
    command = [interpreter, "-I", "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


INTERPRETERS: Final = interpreters()


@pytest.mark.parametrize("version", INTERPRETERS)
def test_every_module_imports_with_the_standard_library_alone(version: str) -> None:
    # -I -S: no site-packages, so an import of anything else fails; -W error: no syntax or module that is on its way out.
    command = [INTERPRETERS[version], "-I", "-S", "-B", "-W", "error", "-c", IMPORT_ALL, str(ROOT)]

    done = subprocess.run(command, capture_output=True, text=True)

    assert done.returncode == 0, done.stderr


def test_import_c4a_loads_nothing_that_is_not_in_the_standard_library() -> None:
    done = subprocess.run([sys.executable, "-I", "-B", "-c", FOREIGN, str(ROOT)], capture_output=True, text=True, check=True)

    assert done.stdout.split() == []


@pytest.mark.ci
@pytest.mark.parametrize("version", INTERPRETERS)
def test_pip_install_brings_the_library_alone(version: str, tmp_path: Path) -> None:
    source = tmp_path / "source"
    subprocess.run(["git", "clone", "--quiet", ROOT, source], check=True)
    subprocess.run([INTERPRETERS[version], "-m", "venv", tmp_path / "venv"], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    before = _installed(python)

    subprocess.run([python, "-m", "pip", "install", "--quiet", "--quiet", source], check=True)

    assert _installed(python) - before == {"c4a"}
    script = "import c4a, importlib.resources as r; print(any(p.name.endswith('.sql') for p in (r.files('c4a.record') / 'sql').iterdir()))"
    done = subprocess.run([python, "-c", script], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.strip() == "True", done.stderr


def _installed(python: Path) -> set[str]:
    done = subprocess.run([python, "-m", "pip", "list", "--format", "freeze"], capture_output=True, text=True, check=True)
    return {line.partition("==")[0] for line in done.stdout.split()}
