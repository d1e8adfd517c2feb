"""Errors as problem documents (RFC 9457): one shape for every refusal, made from the library's own errors."""

from __future__ import annotations

import json
import logging
from typing import Any, Final

from django.http import HttpResponse

from c4a.errors import C4AError

logger = logging.getLogger(__name__)

MEDIA_TYPE: Final = "application/problem+json"
TYPE_PREFIX: Final = "urn:c4a:problem:"


def problem_document(error: C4AError) -> dict[str, Any]:
    """`{type, title, status, detail, code, fields}`; `code` never changes, `title` is the same for every error of a code."""
    return {
        "type": TYPE_PREFIX + error.code,
        "title": error.code.replace("-", " ").capitalize(),
        "status": error.status,
        "detail": error.message,
        "code": error.code,
        "fields": error.fields,
    }


def problem_body(error: C4AError) -> bytes:
    """The document as bytes; a field that JSON has no form for is shown as text."""
    return json.dumps(problem_document(error), default=str, allow_nan=False).encode()


def problem_response(error: C4AError) -> HttpResponse:
    """The answer for an error of ours."""
    response = HttpResponse(problem_body(error), status=error.status, content_type=MEDIA_TYPE)
    if error.status == 401:
        response.headers["WWW-Authenticate"] = 'Bearer realm="c4a"'
    if error.status == 503:
        response.headers["Retry-After"] = "1"
    return response


def unexpected_response(error: Exception) -> HttpResponse:
    """The answer for an error nobody foresaw: logged in full, told in one sentence."""
    logger.error("Unexpected %s in the API", type(error).__name__, exc_info=error)
    return problem_response(C4AError("Something unexpected went wrong; it was logged. A repeat with the same token is safe."))
