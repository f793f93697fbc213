from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Iterable, Iterator


@dataclass(frozen=True)
class Event:
    """What happened to an execution."""

    id: str
    """It grows; give the last one to `follow` to go on after it."""
    name: str
    data: Any
    """An ExecutionDetail where `name` is execution.snapshot, else an ExecutionEvent."""


def lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Splits bytes into lines at \\n alone: JSON may hold the other ends of lines that str.splitlines knows."""
    rest = bytearray()
    for chunk in chunks:
        *whole, last = chunk.split(b"\n")
        for line in whole:
            rest += line
            yield bytes(rest)
            rest.clear()
        rest += last
    if rest:
        yield bytes(rest)


def events(chunks: Iterable[bytes], alive: Callable[[], None]) -> Iterator[tuple[str, str, str]]:
    """Reads server-sent events as id, name and data; those without data are passed over. Calls alive for each comment."""
    id, name, data = "", "", list[str]()
    for line in lines(chunks):
        if line.startswith(b":"):
            alive()  # the service says something every 15 seconds
            continue
        field, _, value = line.decode().rstrip("\r").partition(":")
        value = value.removeprefix(" ")
        if field == "id":
            id = value
        elif field == "event":
            name = value
        elif field == "data":
            data.append(value)
        elif field == "" and value == "":
            if data:
                yield id, name, "\n".join(data)
            name, data = "", []
