from __future__ import annotations

import json
import random
import time
import uuid
from typing import Any, Callable, Iterator, Mapping
from urllib.parse import quote

import httpx

from ._errors import ApiError, NetworkError, error_class
from ._redirect import refused, send

_LONGEST_WAIT = 10.0

# The operations that may be carried out twice although they are a POST without a key.
_HARMLESS = {
    "append_records",
    "seal_record_set",
    "validate_definition",
    "dry_run_definition",
    "estimate_upload",
    "test_credential",
    "create_stream_token",
}


def segment(value: str) -> str:
    """A value as a part of a path."""
    return quote(value, safe="")


class Transport:
    """Sends requests, again where that can do no harm. It may be used by several threads at a time."""

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        token: Callable[[], str] | None = None,
        retries: int = 5,
        backoff: float = 0.25,
        parse_float: Callable[[str], Any] = float,
        http: httpx.Client | None = None,
    ) -> None:
        """Takes the root of the service, for example https://flows.example.com; /v1 is added.

        api_key: a key of the organization. Without one, token is asked for a bearer token before each request.
        retries: how often a request that failed and may pass is sent again; 0 for never.
        backoff: seconds before the first retry. Each further wait is twice as long, up to 10 s; Retry-After counts
            for more.
        parse_float: what makes a number of the text of a fraction; decimal.Decimal keeps every digit.
        http: what sends the requests, for proxies, certificates or other timeouts; it is not closed with this.
        """
        self._root = url.rstrip("/").removesuffix("/v1") + "/v1"
        self._api_key = api_key
        self._token = token
        self._retries = retries
        self._backoff = backoff
        self._parse_float = parse_float
        self._owned = http is None
        self._http = http or httpx.Client(timeout=60)

    def _loads(self, text: bytes) -> Any:
        return json.loads(text, parse_float=self._parse_float)

    @staticmethod
    def _new_key() -> str:
        return str(uuid.uuid4())

    def _call(
        self,
        operation: str,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        key: str | None = None,
    ) -> Any:
        """Returns the JSON of the answer, or None where there is none."""
        content = None if body is None else json.dumps(body, allow_nan=False).encode()
        response = self._send(operation, method, path, query=query, content=content, key=key)
        return self._loads(response.content) if response.content else None

    def _send(
        self,
        operation: str,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        content: bytes | None = None,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        stream: bool = False,
    ) -> httpx.Response:
        """Returns the first answer below 300; that of a stream is to be read and closed."""
        sent = dict(headers or {})
        if key is not None:
            sent["Idempotency-Key"] = key
        if content is not None:
            sent["Content-Type"] = "application/json"
        params = {name: value for name, value in (query or {}).items() if value is not None}
        repeatable = method not in ("POST", "PATCH") or key is not None or operation in _HARMLESS
        failures = 0
        while True:
            self._authorize(sent)
            request = self._http.build_request(method, self._root + path, params=params, content=content, headers=sent)
            try:
                return self._once(request, stream)
            except httpx.TransportError as error:
                if failures >= self._retries or not repeatable:
                    # The address is not told: it may hold a stream token.
                    raise NetworkError(f"{operation}: no answer: {error}") from error
                after = 0
            except ApiError as error:
                if failures >= self._retries or not _passing(error, repeatable):
                    raise
                after = error.retry_after or 0
            time.sleep(max(after, self._delay(failures)))
            failures += 1

    def _once(self, request: httpx.Request, stream: bool) -> httpx.Response:
        response = send(self._http, request)
        try:
            if response.status_code < 300 and stream:
                return response
            response.read()
        except BaseException:
            response.close()
            raise
        if response.status_code < 300:
            return response
        try:
            body = json.loads(response.content)
        except ValueError:
            body = None
        if response.status_code < 400:
            known = body if isinstance(body, dict) else {}
            body = known | {"detail": refused(response, request.url.raw_path.decode().partition("?")[0])}
        raise error_class(response.status_code)(response.status_code, body, response.headers)

    def _authorize(self, headers: dict[str, str]) -> None:
        if self._api_key is not None:
            headers["X-API-Key"] = self._api_key
        elif self._token is not None:
            headers["Authorization"] = f"Bearer {self._token()}"

    def _delay(self, failures: int) -> float:
        """Seconds to wait after some failures: half of it by chance, so that many clients do not come at once."""
        most = min(_LONGEST_WAIT, self._backoff * 2.0 ** min(failures, 32))
        return most / 2 + random.random() * most / 2

    def _pages(self, operation: str, path: str, query: Mapping[str, Any]) -> Iterator[Any]:
        """Goes through the items of all pages of a list."""
        query = dict(query)
        while True:
            page = self._call(operation, "GET", path, query=query)
            yield from page["items"]
            if page.get("next_cursor") is None:
                return
            query |= {"cursor": page["next_cursor"], "skip": None}


def _passing(error: ApiError, repeatable: bool) -> bool:
    """Whether a later request may succeed, and this one did nothing or may be carried out twice."""
    if error.status == 429:
        return True
    if error.status == 503:
        return repeatable or bool(error.retry_after) and error.code != "outcome_unknown"
    return error.status in (502, 504) and repeatable
