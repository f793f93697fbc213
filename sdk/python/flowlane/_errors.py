from __future__ import annotations

from typing import Any, Mapping

from . import models


class FlowlaneError(Exception):
    """What every error of this package is."""


class NetworkError(FlowlaneError):
    """No answer came, however often it was tried: the connection failed or was cut. `__cause__` says how."""


class SignatureError(FlowlaneError):
    """A message is not what its sender signed, is too old or ahead, or lacks a header."""


class ApiError(FlowlaneError):
    """The service answered with a status of 400 or more, or with a redirection that is not followed."""

    def __init__(self, status: int, body: Any, headers: Mapping[str, str]) -> None:
        known: dict[str, Any] = body if isinstance(body, dict) else {}
        detail = known.get("detail")
        self.status = status
        self.body = body
        self.code: str = known.get("code", "")
        """A stable word for what is wrong, such as record_set_consumed; empty where not the service has answered."""
        self.request_id: str = known.get("request_id", headers.get("X-Request-Id", ""))
        """Quote it when you report a problem."""
        self.hint: str = known.get("hint", "")
        """What to do next, in a sentence for people."""
        self.docs: str = known.get("docs", "")
        """Where the reference says more of this code."""
        self.fields: list[models.ValidationEntry] = detail if isinstance(detail, list) else []
        """Every bad field of a request that is not valid: its place, and what is wrong with it."""
        self.expression_errors: list[str] = detail.get("expression_errors", []) if isinstance(detail, dict) else []
        """Every bad expression of a definition, in a sentence."""
        self.retry_after = _seconds(headers.get("Retry-After", ""))
        """Seconds after which the service wants to be asked again; None where it said nothing."""
        reasons = [f"{'.'.join(map(str, f['loc']))}: {f['msg']}" for f in self.fields] + self.expression_errors
        self.detail: str = detail if isinstance(detail, str) else "; ".join(reasons) or "no reason was given"
        """A sentence for people, which names every bad field."""
        super().__init__(f"{status}: {self.detail}")


class AuthenticationError(ApiError):
    """401: the key or the token is missing, wrong, expired or revoked."""


class PermissionDeniedError(ApiError):
    """403: the caller is known and may not do this."""


class NotFoundError(ApiError):
    """404: there is no such thing in this organization."""


class ConflictError(ApiError):
    """409: it exists already, or its state does not allow this."""


class ValidationError(ApiError):
    """422: `fields` or `expression_errors` say what is not valid."""


class RateLimitError(ApiError):
    """429: too many requests, still after the retries."""


class ServerError(ApiError):
    """5xx: the service failed, still after the retries."""


_BY_STATUS: dict[int, type[ApiError]] = {
    401: AuthenticationError,
    403: PermissionDeniedError,
    404: NotFoundError,
    409: ConflictError,
    422: ValidationError,
    429: RateLimitError,
}


def error_class(status: int) -> type[ApiError]:
    return _BY_STATUS.get(status, ServerError if status >= 500 else ApiError)


def _seconds(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None
