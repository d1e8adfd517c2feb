"""Values that decide what an action is but must never be written down: passwords, tokens, card numbers."""

from __future__ import annotations

import hashlib
import hmac
from typing import Any, NoReturn

MASK = "**********"
_DOMAIN = b"c4a/secret/v1\n"


class Secret:
    """A text or bytes value that takes part in keys by HMAC only and is shown as asterisks everywhere.

    `Secret("hunter2").reveal()` gives the plain value back; nothing else does: not `repr`, `str`, an f-string, a
    traceback, `vars` or `pickle` (which is refused).

    Raises:
        TypeError: the value is neither text nor bytes.
    """

    __slots__ = ("__plain",)
    __plain: str | bytes

    def __init__(self, value: str | bytes) -> None:
        if type(value) not in (str, bytes):
            raise TypeError(f"a Secret holds str or bytes, got {type(value).__qualname__}")
        object.__setattr__(self, "_Secret__plain", value)

    def reveal(self) -> str | bytes:
        """The plain value."""
        return self.__plain

    def keyed_digest(self, digest_key: bytes) -> str:
        """What stands for the value in records and keys: HMAC-SHA256 under the organization's digest key, 64 hex."""
        return secret_digest(self.reveal(), digest_key)

    def __repr__(self) -> str:
        return f"{type(self).__name__}('{MASK}')"

    def __str__(self) -> str:
        return MASK

    def __format__(self, spec: str) -> str:
        return format(MASK, spec)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret) or type(other) is not type(self):
            return NotImplemented
        mine, theirs = self._identity(), other._identity()
        return mine[0] == theirs[0] and hmac.compare_digest(mine[1], theirs[1])

    def __hash__(self) -> int:
        return hash((Secret, self._identity()))

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError("a Secret cannot be changed; make a new one")

    def __copy__(self) -> Secret:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Secret:
        return self

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("a Secret is never pickled, since the pickle would hold the plain value; pass reveal() yourself if it must travel")

    def _identity(self) -> tuple[str, bytes]:
        return _kind_and_bytes(self.reveal())


class RecordedSecret(Secret):
    """What a record gives back where a secret stood: it has the secret's digest, never its plain value."""

    __slots__ = ("digest", "kind")
    digest: str
    kind: str

    def __init__(self, digest: str, kind: str = "Secret") -> None:
        object.__setattr__(self, "_Secret__plain", "")
        object.__setattr__(self, "digest", digest)
        object.__setattr__(self, "kind", kind)

    def reveal(self) -> NoReturn:
        """Always refused.

        Raises:
            LookupError: the plain value was never recorded.
        """
        raise LookupError("the record keeps a digest of this secret, never the secret; read it from where your code keeps it")

    get_secret_value = reveal

    def keyed_digest(self, digest_key: bytes) -> str:
        """The recorded digest, whatever the key."""
        return self.digest

    def _identity(self) -> tuple[str, bytes]:
        return ("digest", self.digest.encode())


def secret_digest(plain: str | bytes, digest_key: bytes) -> str:
    """HMAC-SHA256 over `c4a/secret/v1`, the kind (`str` or `bytes`) and the value: 64 hex."""
    kind, data = _kind_and_bytes(plain)
    return hmac.new(digest_key, _DOMAIN + kind.encode() + b"\n" + data, hashlib.sha256).hexdigest()


def _kind_and_bytes(plain: str | bytes) -> tuple[str, bytes]:
    # Lone surrogates are let through here: the digest is one-way, so nothing unstorable leaves.
    return ("bytes", plain) if isinstance(plain, bytes) else ("str", plain.encode("utf-8", "surrogatepass"))
