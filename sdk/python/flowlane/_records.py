from __future__ import annotations

import csv
import io
import json
import os
from pathlib import Path
from typing import IO, Any, Iterable, Iterator, Literal, Mapping, TypeAlias

Format: TypeAlias = Literal["ndjson", "csv"]
Source: TypeAlias = "str | os.PathLike[str] | IO[str] | IO[bytes] | Iterable[Mapping[str, Any]]"


def texts(source: Source, format: Format | None) -> Iterator[str]:
    """The JSON of each record."""
    if isinstance(source, (str, os.PathLike)):
        path = Path(source)
        with path.open("rb") as file:
            yield from _file(file, format or ("csv" if path.suffix.lower() == ".csv" else "ndjson"))
    elif hasattr(source, "read"):
        yield from _file(source, format or "ndjson")
    else:
        for record in source:
            yield json.dumps(record, allow_nan=False)


def _file(file: Any, format: Format) -> Iterator[str]:
    text = file if isinstance(file, io.TextIOBase) else io.TextIOWrapper(file, encoding="utf-8-sig", newline="")
    try:
        yield from _csv(text) if format == "csv" else _ndjson(text)
    finally:
        if text is not file:
            text.detach()  # the file is closed by who opened it


def _ndjson(file: Iterable[str]) -> Iterator[str]:
    """Lines as they are, so that numbers keep every digit."""
    for number, line in enumerate(file, 1):
        line = line.strip()
        if not line:
            continue
        try:
            valid = isinstance(json.loads(line), dict)
        except ValueError:
            valid = False
        if not valid:
            raise ValueError(f"line {number} is no JSON object: {line[:200]}")
        yield line


def _csv(file: Iterable[str]) -> Iterator[str]:
    """Rows under a row of column names; every value is a string."""
    rows = csv.reader(file, strict=True)
    names: list[str] = next(rows, [])
    if len(set(names)) < len(names):
        raise ValueError(f"two columns have one name: {', '.join(names)[:200]}")
    for row in rows:
        if not row:
            continue
        if len(row) != len(names):
            raise ValueError(f"line {rows.line_num}: {len(row)} values for {len(names)} columns")
        yield json.dumps(dict(zip(names, row)))
