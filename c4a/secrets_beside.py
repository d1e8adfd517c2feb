"""Secrets of a record: given, from the environment, or in a file (0600) beside a local record."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Final

from c4a.errors import LedgerError

SECRET_BYTES: Final = 32
LEAST_SECRET_BYTES: Final = 16


def given_secret(given: str | bytes | None, variable: str, what: str) -> bytes | None:
    """The secret passed in, else the one in the environment, else None.

    Raises:
        LedgerError: it is blank or shorter than `LEAST_SECRET_BYTES`.
    """
    value: str | bytes | None = given if given is not None else os.environ.get(variable)
    if value is None:
        return None
    return checked_secret(value, what)


def checked_secret(value: object, what: str) -> bytes:
    """A secret as bytes (text as UTF-8, so the text of a secret file may be passed as it is).

    Raises:
        LedgerError: neither text nor bytes, or shorter than `LEAST_SECRET_BYTES`.
    """
    if not isinstance(value, (str, bytes)):
        raise LedgerError(f"{what}: expected text or bytes, got {type(value).__qualname__}")
    data = value.strip().encode() if isinstance(value, str) else bytes(value)
    if len(data) < LEAST_SECRET_BYTES:
        raise LedgerError(
            f"{what}: expected at least {LEAST_SECRET_BYTES} bytes, got {len(data)}: make one with "
            "`python -c 'import secrets; print(secrets.token_hex(32))'`"
        )
    return data


def old_secrets(given: object) -> tuple[bytes, ...]:
    """Secrets rotated away from: a list passed in, else `C4A_OLD_SECRETS` (separated by commas).

    Raises:
        LedgerError: not a list, or one of them is too short.
    """
    if given is None:
        given = [one for one in os.environ.get("C4A_OLD_SECRETS", "").split(",") if one.strip()]
    if isinstance(given, (str, bytes)) or not isinstance(given, (list, tuple)):
        raise LedgerError(f"old_secrets: expected a list of secrets, got {type(given).__qualname__}")
    return tuple(checked_secret(one, "old_secrets") for one in given)


def secret_in_file(path: Path, *, record_exists: bool, what: str) -> bytes:
    """The secret in this file; made there if neither it nor the record exists. Several processes get the same one.

    Raises:
        LedgerError: the record exists but the file doesn't (a new secret would void every yes), or it can't be read or written.
    """
    try:
        return checked_secret(path.read_text(encoding="ascii"), f"{what} in {path}")
    except FileNotFoundError:
        pass
    except (OSError, UnicodeDecodeError) as error:
        raise LedgerError(f"{what} in {path} can't be read ({error}): it must be the ASCII text that C4A wrote there") from None
    if record_exists:
        raise LedgerError(
            f"expected {what} of this record in {path}, but the file is missing: restore it from a backup or pass it to c4a.init(). "
            "A new one would not fit the record."
        )
    _write_new(path, secrets.token_hex(SECRET_BYTES))
    return checked_secret(path.read_text(encoding="ascii"), f"{what} in {path}")


def kept_secrets(path: Path) -> tuple[bytes, ...]:
    """The former secrets in this file, one a line; none if there is no file.

    Raises:
        LedgerError: it can't be read, or a line is too short.
    """
    try:
        lines = path.read_text(encoding="ascii").splitlines()
    except FileNotFoundError:
        return ()
    except (OSError, UnicodeDecodeError) as error:
        raise LedgerError(f"the former secrets in {path} can't be read ({error}): it must be the ASCII text that C4A wrote there") from None
    return tuple(checked_secret(line, f"a former secret in {path}") for line in lines if line.strip())


def secret_replace(path: Path, former: Path) -> None:
    """Put a new secret into this file and keep its text among the former ones. Killed at any moment, no secret is lost.

    Raises:
        LedgerError: there is no secret to replace, or a file can't be read or written.
    """
    try:
        present = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise LedgerError(f"the secret in {path} can't be read ({error}): only one that is there can be replaced") from None
    checked_secret(present, f"the secret in {path}")
    kept = former.read_text(encoding="ascii").split() if former.exists() else []
    if present not in kept:  # a rotation that was killed here before has kept it already
        _write_over(former, "\n".join([*kept, present]))
    _write_over(path, secrets.token_hex(SECRET_BYTES))


def _write_over(path: Path, text: str) -> None:
    """Write a whole file at once in place of the one that is there."""
    draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}.draft")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(text + "\n")
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError as error:
        raise LedgerError(f"{path} can't be written ({error}): nothing was changed in it") from None
    finally:
        draft.unlink(missing_ok=True)


def _write_new(path: Path, text: str) -> None:
    """Write a whole file at once; if another process was first, its file stays."""
    draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}.draft")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(text + "\n")
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(draft, path)
        except FileExistsError:
            pass
    except OSError as error:
        raise LedgerError(f"{path} can't be written ({error}): c4a.init() needs a folder it may write to") from None
    finally:
        draft.unlink(missing_ok=True)
