"""What only the API refuses, as a tree under the library's errors.

C4AError
├── NoSuchAddress            there is nothing at this address
├── AgentUnknown             no such agent in this organization
└── RequestRefused           the request itself is wrong
    ├── MethodRefused        the address has no such method
    ├── MediaTypeRefused     the body is not JSON in UTF-8
    └── HttpsRequired        a key came in the clear
"""

from __future__ import annotations

from c4a.errors import C4AError, RequestRefused


class NoSuchAddress(C4AError):
    """There is nothing at this address of the API."""

    code = "no-such-address"
    status = 404


class AgentUnknown(C4AError):
    """No such agent in this organization."""

    code = "agent-unknown"
    status = 404


class MethodRefused(RequestRefused):
    """The address is right, the method is not. Field: `allowed`."""

    code = "method-refused"
    status = 405


class MediaTypeRefused(RequestRefused):
    """The body is not `application/json` in UTF-8, or it is compressed."""

    code = "media-type-refused"
    status = 415


class HttpsRequired(RequestRefused):
    """A key came over plain HTTP; it is not redirected, since it has been shown already."""

    code = "https-required"
    status = 403
