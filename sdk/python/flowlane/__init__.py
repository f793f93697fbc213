"""The client of Flowlane, the Flow Orchestration Service."""

from . import models
from ._client import Client
from ._stream import Event
from ._errors import (
    ApiError,
    AuthenticationError,
    ConflictError,
    FlowlaneError,
    NetworkError,
    NotFoundError,
    PermissionDeniedError,
    RateLimitError,
    ServerError,
    SignatureError,
    ValidationError,
)
from ._webhook import sign_webhook, verify_webhook

__all__ = [
    "ApiError",
    "AuthenticationError",
    "Client",
    "ConflictError",
    "Event",
    "FlowlaneError",
    "NetworkError",
    "NotFoundError",
    "PermissionDeniedError",
    "RateLimitError",
    "ServerError",
    "SignatureError",
    "ValidationError",
    "models",
    "sign_webhook",
    "verify_webhook",
]
