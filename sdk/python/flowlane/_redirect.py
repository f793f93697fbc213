from __future__ import annotations

import json
from typing import Any

import httpx

# How many redirections are followed before they count as a circle.
_MOST = 5


def send(http: httpx.Client, request: httpx.Request) -> httpx.Response:
    """Sends a request, also to where an answer leads, and returns an answer whose body is still to be read.

    httpx does not follow by itself here, whatever it was told: it would make a GET of a POST.
    """
    for _ in range(_MOST):
        response = http.send(request, stream=True, follow_redirects=False)
        target = _target(request, response)
        if target is None:
            return response
        response.close()
        headers = {name: value for name, value in request.headers.items() if name.lower() != "host"}
        request = http.build_request(request.method, target, content=request.content, headers=headers)
    return http.send(request, stream=True, follow_redirects=False)


def location(response: httpx.Response) -> httpx.URL | None:
    """Where an answer leads."""
    text = response.headers.get("Location")
    if not text:
        return None
    try:
        return response.request.url.join(text)
    except httpx.InvalidURL:
        return None


def _target(request: httpx.Request, response: httpx.Response) -> httpx.URL | None:
    """Where the same request may be sent to with the same key; None for an answer that leads nowhere.

    301, 302 and 303 would make a GET of it, which creates nothing and looks like a success. Another host gets the key
    only where the service itself says, with the same path, that the organization has moved there; and nothing goes on
    in the clear that came encrypted.
    """
    if response.status_code not in (307, 308):
        return None
    here, there = request.url, location(response)
    if there is None or there.scheme not in ("https", here.scheme):
        return None
    if there.host == here.host:
        return there
    moved = response.status_code == 307 and _code(response) == "moved" and there.raw_path == here.raw_path
    return there if moved else None


def _code(response: httpx.Response) -> Any:
    try:
        body = json.loads(response.read())
    except ValueError:
        return None
    return body.get("code") if isinstance(body, dict) else None


def refused(response: httpx.Response, path: str) -> str:
    """What to do about an answer that was not followed. It has no query, which may hold a stream token."""
    there = location(response)
    if there is None:
        return "the answer leads elsewhere, and does not say where: check the url of the client"
    address = str(there.copy_with(query=None, fragment=None, username=None, password=None)).removesuffix(path)
    return f"the answer leads to {address}, which is not followed: if that is the service, give it as the client's url"
