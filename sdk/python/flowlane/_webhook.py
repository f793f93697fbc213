from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import time
import uuid
from typing import Mapping

from ._errors import SignatureError


def sign_webhook(secret: str, body: bytes, *, id: str | None = None, at: float | None = None) -> dict[str, str]:
    """Returns the headers with which a webhook takes a message, as Standard Webhooks says.

    Send exactly this body. A message that is sent again keeps its id, which is made unless given. `at` is the time of
    signing in seconds since 1970, now unless given.
    """
    id = id or f"msg_{uuid.uuid4()}"
    timestamp = str(int(time.time() if at is None else at))
    signature = base64.b64encode(_mac(secret, id, timestamp, body)).decode()
    return {"webhook-id": id, "webhook-timestamp": timestamp, "webhook-signature": f"v1,{signature}"}


def verify_webhook(
    secret: str, body: bytes, headers: Mapping[str, str], *, tolerance: float = 300, now: float | None = None
) -> None:
    """Raises SignatureError unless one of the signatures is of this body, as it came.

    Nor may the message be more than `tolerance` seconds old or ahead of `now`, seconds since 1970.
    """
    read = {name.lower(): value for name, value in headers.items()}
    id, timestamp, signatures = (read.get(f"webhook-{name}", "") for name in ("id", "timestamp", "signature"))
    if not id or not signatures or not (timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= 12):
        raise SignatureError("A header of the signature is missing")
    if abs((time.time() if now is None else now) - int(timestamp)) > tolerance:
        raise SignatureError("The message is too old, or ahead")
    want = _mac(secret, id, timestamp, body)
    for one in signatures.split():
        version, _, text = one.partition(",")
        if version == "v1" and hmac.compare_digest(_decode(text), want):
            return
    raise SignatureError("No signature fits")


def _mac(secret: str, id: str, timestamp: str, body: bytes) -> bytes:
    key = _decode(secret.removeprefix("whsec_"))
    if not key:
        raise SignatureError("The secret is not whsec_ and base64")
    return hmac.new(key, f"{id}.{timestamp}.".encode() + body, hashlib.sha256).digest()


def _decode(text: str) -> bytes:
    """The bytes of base64, none where it is not valid."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""
