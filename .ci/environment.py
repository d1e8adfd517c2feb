"""Make a virtual environment and bring it to its locked requirements: `python .ci/environment.py run|test|library`.

`run` is the server and `test` adds what tests, checks and benchmarks need, both in `.venv`, made by the interpreter that
`.ci/find-python` chose. `library` holds what the library's tests need, in `.venv-library/X.Y` for the Python that runs this.
It installs only when the requirements changed, and prints one line a stage. Standard library only, Python 3.10 syntax.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
THIS_VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"


@dataclass(frozen=True)
class Kind:
    """One purpose: where its environment lies, what it installs, and which purposes are served by the same installation."""

    folder: Path
    requirements: Path
    versions: tuple[str, ...]
    serves: tuple[str, ...]

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"


SERVER_VERSIONS = ("3.12", "3.13")
KINDS = {
    "run": Kind(ROOT / ".venv", ROOT / "requirements.txt", SERVER_VERSIONS, ("run",)),
    # The tests' requirements hold the server's at the same versions.
    "test": Kind(ROOT / ".venv", ROOT / "requirements-dev.txt", SERVER_VERSIONS, ("run", "test")),
    "library": Kind(ROOT / ".venv-library" / THIS_VERSION, ROOT / "requirements-library.txt", (THIS_VERSION,), ("library",)),
}


def main() -> int:
    name = sys.argv[1]
    with (ROOT / ".venv.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # `make run` and `make test` may be started together in a fresh clone
        environment_ensure(KINDS[name])
        return requirements_ensure(name, KINDS[name])


def environment_ensure(kind: Kind) -> None:
    """Keep an environment that works and has a fitting version; make anew one that does not (its Python went away)."""
    if kind.python.exists() and version_of(kind.python) in kind.versions:
        return
    shutil.rmtree(kind.folder, ignore_errors=True)
    with Stage(f"Python {sys.version.split()[0]}: making {kind.folder.relative_to(ROOT)}"):
        subprocess.run([sys.executable, "-m", "venv", kind.folder], check=True, stdin=subprocess.DEVNULL)


def version_of(python: Path) -> str | None:
    """`3.12`, or None if this interpreter or its pip does not work."""
    code = "import sys, pip; print('%d.%d' % sys.version_info[:2])"
    try:
        answer = subprocess.run([python, "-c", code], check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    except OSError:
        return None
    return answer.stdout.strip() if answer.returncode == 0 else None


def requirements_ensure(name: str, kind: Kind) -> int:
    wanted = mark_wanted(kind)
    if mark_read(kind, name) == wanted:
        return 0
    count = kind.requirements.read_text().count("==")
    with Stage(f"Installing {kind.requirements.name} ({count} packages)"):
        # Two --quiet: warnings about a machine's own index settings are not ours to repeat; errors still show.
        pip = [kind.python, "-m", "pip", "install", "--quiet", "--quiet", "--disable-pip-version-check", "--no-input"]
        for step in (["--require-hashes", "-r", kind.requirements], ["--no-deps", "--no-build-isolation", "--editable", ROOT]):
            if subprocess.run([*pip, *step], check=False, stdin=subprocess.DEVNULL, cwd=ROOT).returncode != 0:
                print(f"pip could not install {kind.requirements.name}; its message is above.", file=sys.stderr)
                return 1
    for served in kind.serves:
        (kind.folder / f"{served}.installed").write_text(mark_wanted(KINDS[served]))
    return 0


def mark_wanted(kind: Kind) -> str:
    """Changes with the requirements, with the project's own metadata and when the tree was moved."""
    project = (ROOT / "pyproject.toml").read_text().partition("\n[tool.ruff]")[0]
    return hashlib.sha256(kind.requirements.read_bytes() + project.encode() + str(ROOT).encode()).hexdigest()


def mark_read(kind: Kind, name: str) -> str:
    path = kind.folder / f"{name}.installed"
    return path.read_text() if path.exists() else ""


class Stage:
    """One line: what is being done and, when done, its seconds."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __enter__(self) -> None:
        print(f"{self.text} …", end=" ", flush=True)
        self.began = time.monotonic()

    def __exit__(self, failure: object, *_: object) -> None:
        print(f"{'failed after ' if failure else ''}{time.monotonic() - self.began:.0f} s", flush=True)


if __name__ == "__main__":
    sys.exit(main())
