"""Make `.venv` and bring it to the locked requirements: `python .ci/environment.py run|test`.

Run by the interpreter that `.ci/find-python` chose, with nothing but the standard library. It installs only when the
requirements changed, and prints one line a stage. `run` is the server; `test` adds what tests, checks and benchmarks need.
"""

import fcntl
import hashlib
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
REQUIREMENTS = {"run": ROOT / "requirements.txt", "test": ROOT / "requirements-dev.txt"}


def main() -> int:
    kind = sys.argv[1]
    with (ROOT / ".venv.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # `make run` and `make test` may be started together in a fresh clone
        venv_ensure()
        return requirements_ensure(kind)


def venv_ensure() -> None:
    """Keep a `.venv` that works and has a fitting version; make anew one that does not (its Python went away)."""
    if PYTHON.exists() and venv_version() in ((3, 12), (3, 13)):
        return
    shutil.rmtree(VENV, ignore_errors=True)
    with Stage(f"Python {sys.version.split()[0]}: making .venv"):
        subprocess.run([sys.executable, "-m", "venv", VENV], check=True, stdin=subprocess.DEVNULL)


def venv_version() -> tuple[int, int] | None:
    code = "import sys, pip; print(*sys.version_info[:2])"
    answer = subprocess.run([PYTHON, "-c", code], check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if answer.returncode != 0:
        return None
    major, minor = answer.stdout.split()
    return int(major), int(minor)


def requirements_ensure(kind: str) -> int:
    wanted = wanted_marks()
    if mark_read(kind) == wanted[kind]:
        return 0
    count = REQUIREMENTS[kind].read_text().count("==")
    with Stage(f"Installing {REQUIREMENTS[kind].name} ({count} packages)"):
        # Two --quiet: warnings about a machine's own index settings are not ours to repeat; errors still show.
        pip = [PYTHON, "-m", "pip", "install", "--quiet", "--quiet", "--disable-pip-version-check", "--no-input"]
        steps = (["--require-hashes", "-r", REQUIREMENTS[kind]], ["--no-deps", "--no-build-isolation", "--editable", ROOT])
        for step in steps:
            if subprocess.run([*pip, *step], check=False, stdin=subprocess.DEVNULL, cwd=ROOT).returncode != 0:
                print(f"pip could not install {REQUIREMENTS[kind].name}; its message is above.", file=sys.stderr)
                return 1
    # The tests' requirements hold the server's at the same versions.
    for done in ("run", "test") if kind == "test" else ("run",):
        (VENV / f"{done}.installed").write_text(wanted[done])
    return 0


def wanted_marks() -> dict[str, str]:
    project = (ROOT / "pyproject.toml").read_bytes()
    return {kind: hashlib.sha256(path.read_bytes() + project + str(ROOT).encode()).hexdigest() for kind, path in REQUIREMENTS.items()}


def mark_read(kind: str) -> str:
    path = VENV / f"{kind}.installed"
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
