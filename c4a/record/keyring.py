"""The secret that signs approvals, and the older ones that still read them."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence

from c4a.errors import LedgerError

MIN_SECRET_BYTES = 16


class Keyring:
    """Signs with the newest secret, verifies with any. The secrets themselves never leave this object.

    A signature is HMAC-SHA256 (RFC 2104) over a domain line and length-prefixed fields; the key id says which secret made it.
    """

    def __init__(self, secret: bytes, old_secrets: Sequence[bytes] = ()) -> None:
        for one in (secret, *old_secrets):
            if len(one) < MIN_SECRET_BYTES:
                raise LedgerError(
                    f"the secret must have at least {MIN_SECRET_BYTES} bytes, got {len(one)}: "
                    "make one with `python -c 'import secrets; print(secrets.token_hex(32))'`"
                )
        self._keys = {key_id(one): _signing_key(one) for one in (*old_secrets, secret)}
        self.current_id = key_id(secret)

    def __repr__(self) -> str:
        return f"Keyring({sorted(self._keys)})"

    def sign(self, domain: str, fields: Sequence[str]) -> str:
        """Sign fields under the current secret; 64 hex characters."""
        return _mac(self._keys[self.current_id], domain, fields)

    def verifies(self, mac: str, key_id: str, domain: str, fields: Sequence[str]) -> bool:
        """True if `mac` was made over exactly these fields by the secret with this key id."""
        key = self._keys.get(key_id)
        return key is not None and hmac.compare_digest(_mac(key, domain, fields).encode(), mac.encode())

    def knows(self, key_id: str) -> bool:
        """True if the secret with this id is at hand."""
        return key_id in self._keys


def key_id(secret: bytes) -> str:
    """A public name for a secret: 16 hex characters that say nothing about it."""
    return hashlib.sha256(b"c4a/key-id/v1\n" + secret).hexdigest()[:16]


def _signing_key(secret: bytes) -> bytes:
    return hmac.new(secret, b"c4a/approval-key/v1", hashlib.sha256).digest()


def _mac(key: bytes, domain: str, fields: Sequence[str]) -> str:
    text = domain.encode() + b"\n"
    for one in fields:
        raw = one.encode("utf-8")
        text += b"%d:%s" % (len(raw), raw)
    return hmac.new(key, text, hashlib.sha256).hexdigest()
