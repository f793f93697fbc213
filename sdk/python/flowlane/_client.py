from __future__ import annotations

import json
import time
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import islice
from types import TracebackType
from typing import Any, Callable, Iterator

import httpx

from . import models
from ._errors import FlowlaneError, NetworkError
from ._operations import Operations
from ._records import Format, Source, texts
from ._stream import Event, events, lines
from ._transport import segment


class Client(Operations):
    """A service, as one caller sees it: a method for each operation, and what most programs need beside them.

    It holds connections: use it in a `with`, or close it.
    """

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        if self._owned:
            self._http.close()

    def upload(
        self,
        source: Source,
        *,
        format: Format | None = None,
        chunk_size: int = 1000,
        concurrency: int = 4,
        metadata: dict[str, Any] | None = None,
        on_progress: Callable[[int], None] | None = None,
    ) -> models.RecordSet:
        """Uploads records and seals their set, which a trigger can then use. A set whose upload fails is deleted.

        source: dicts, or a file or the path of one, of NDJSON or CSV. Lines of NDJSON are sent as they are.
        format: how a file is to be read; by the end of its name unless given, and NDJSON where that says nothing.
        chunk_size: records in each request, which may have 16777216 bytes.
        concurrency: requests at a time.
        metadata: notes of yours, kept with the set.
        on_progress: called after each request with the number of records that are stored by then.

        Raises ValueError where a line is no record.
        """
        create: models.RecordSetCreate = {"chunk_size": chunk_size}
        if metadata is not None:
            create["metadata"] = metadata
        set_id = self.create_record_set(create)["id"]
        try:
            total = self._append(set_id, texts(source, format), chunk_size, concurrency, on_progress)
            return self.seal_record_set(set_id, {"expected_count": total})
        except BaseException:
            try:
                self.delete_record_set(set_id)
            except FlowlaneError:
                pass  # it would expire
            raise

    def _append(
        self,
        set_id: str,
        records: Iterator[str],
        chunk_size: int,
        concurrency: int,
        on_progress: Callable[[int], None] | None,
    ) -> int:
        """Sends the chunks, some of them side by side, and returns the number of records."""
        path = f"/data/record-sets/{segment(set_id)}/records"
        stored = 0
        running: dict[Future[httpx.Response], int] = {}

        def settle(most: int) -> None:
            nonlocal stored
            while len(running) > most:
                for done in wait(running, return_when=FIRST_COMPLETED).done:
                    size = running.pop(done)
                    done.result()
                    stored += size
                    if on_progress:
                        on_progress(stored)

        pool = ThreadPoolExecutor(concurrency)
        try:
            index = 0
            while chunk := list(islice(records, chunk_size)):
                content = f'{{"chunk_index":{index},"records":[{",".join(chunk)}]}}'.encode()
                running[pool.submit(self._send, "append_records", "POST", path, content=content)] = len(chunk)
                index += 1
                settle(concurrency - 1)
            settle(0)
            return stored
        finally:
            pool.shutdown(cancel_futures=True)

    def wait(
        self,
        batch_id: str,
        *,
        on_progress: Callable[[models.Batch], None] | None = None,
        interval: float = 5,
        timeout: float | None = None,
    ) -> models.Batch:
        """Reads a batch until it is over, however it ends, and returns it as it is then. A paused batch is waited for.

        on_progress: called with the batch each time that it is read.
        interval: the most seconds between two reads.
        timeout: seconds after which TimeoutError is raised; the batch goes on.
        """
        end = None if timeout is None else time.monotonic() + timeout
        pause = 0.1
        while True:
            batch = self.get_batch(batch_id)
            if on_progress:
                on_progress(batch)
            if batch["completed_at"] is not None:
                return batch
            if end is not None and time.monotonic() >= end:
                raise TimeoutError(f"batch {batch_id} is {batch['status']} after {timeout} s")
            time.sleep(pause if end is None else min(pause, max(0, end - time.monotonic())))
            pause = min(interval, pause * 1.5)

    def results(self, batch_id: str, *, status: models.JobStatus | None = None) -> Iterator[models.Result]:
        """Streams the results of a batch in the order of its records, those of one status if one is given.

        When the stream is cut it goes on where it was. Read a batch that is over: the places of results with a status
        shift while others are added.
        """
        path = f"/flows/batches/{segment(batch_id)}/results"
        skip = failures = 0
        while True:
            query = {"format": "ndjson", "skip": skip, "status": status}
            response = self._send("list_batch_results", "GET", path, query=query, stream=True)
            try:
                for line in lines(response.iter_bytes()):
                    result = self._loads(line)
                    skip, failures = skip + 1, 0
                    yield result
                return
            except httpx.TransportError as error:
                failures = self._cut("results", failures, error)
            finally:
                response.close()

    def follow(self, execution_id: str, *, last_event_id: str | None = None) -> Iterator[Event]:
        """Streams what happens to an execution until it is over, from the event after last_event_id if one is given.

        When the stream is cut it connects again and goes on after the last event, without a gap and without a repeat. It
        gives up when that has failed for `retries` times in a row, or once the service refuses it.
        """
        path = f"/flows/executions/{segment(execution_id)}/stream"
        failures = 0

        def alive() -> None:
            nonlocal failures
            failures = 0

        while True:
            token = self.create_stream_token({"execution_id": execution_id})["token"]
            headers = {"Last-Event-ID": last_event_id} if last_event_id else {}
            response = self._send("stream_execution", "GET", path, query={"token": token}, headers=headers, stream=True)
            error: Exception | None = None
            try:
                if response.status_code == 204:
                    return
                for last_event_id, name, data in events(response.iter_bytes(), alive):
                    alive()
                    yield Event(last_event_id, name, json.loads(data, parse_float=self._parse_float))
                    if name == "execution.closed":
                        return
            except httpx.TransportError as cut:
                error = cut
            finally:
                response.close()
            failures = self._cut("follow", failures, error)

    def _cut(self, what: str, failures: int, error: Exception | None) -> int:
        """Waits after a stream was cut, or gives up; returns the number of failures."""
        if failures >= self._retries:
            raise NetworkError(f"{what}: cut off") from error
        time.sleep(self._delay(failures))
        return failures + 1
