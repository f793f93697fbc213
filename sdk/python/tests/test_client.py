"""What the example does not come by. Run it with `python3 -m unittest discover tests`."""

import decimal
import io
import json
import tempfile
import threading
import unittest
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Callable, Iterable

import httpx

import flowlane
from flowlane._records import texts
from flowlane._stream import events, lines

Answer = tuple[int, dict[str, str], str]


class Service:
    """A service over HTTP that gives the answers of a function of method, path with query, and body."""

    def __init__(self, test: unittest.TestCase, answer: Callable[[str, str, str], Answer]) -> None:
        self.requests: list[tuple[str, str, str, str | None]] = []
        self.api_keys: list[str | None] = []
        service = self

        class Handler(BaseHTTPRequestHandler):
            def handle_one(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
                service.api_keys.append(self.headers.get("X-API-Key"))
                service.requests.append((self.command, self.path, body, self.headers.get("Idempotency-Key")))
                status, headers, text = answer(self.command, self.path, body)
                self.send_response(status)
                for name, value in {"Content-Length": str(len(text.encode())), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(text.encode())

            do_GET = do_POST = do_DELETE = handle_one

            def log_message(self, format: str, *args: Any) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        self.url = f"http://127.0.0.1:{server.server_port}"

        def stop() -> None:
            server.shutdown()
            server.server_close()

        test.addCleanup(stop)

    def client(self, test: unittest.TestCase, **options: Any) -> flowlane.Client:
        client = flowlane.Client(self.url, api_key="k", backoff=0.001, **options)
        test.addCleanup(client.close)
        return client


class Webhooks(unittest.TestCase):
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    at = 1614265330
    body = b'{"test": 2432232314}'

    def test_sign_and_verify(self) -> None:
        headers = flowlane.sign_webhook(self.secret, self.body, id="msg_p5jXN8AQM9LWM0D4loKWxJek", at=self.at)
        # The example of the Standard Webhooks libraries.
        self.assertEqual(headers["webhook-signature"], "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=")
        both = {name.title(): value for name, value in headers.items()}
        both["Webhook-Signature"] = "v1,AAAA v2,x " + headers["webhook-signature"]
        flowlane.verify_webhook(self.secret, self.body, both, now=self.at + 300)
        flowlane.verify_webhook(self.secret, self.body, flowlane.sign_webhook(self.secret, self.body))
        cases: list[tuple[str, str, bytes, dict[str, str], int]] = [
            ("old", self.secret, self.body, headers, self.at + 301),
            ("ahead", self.secret, self.body, headers, self.at - 301),
            ("tampered", self.secret, b"{}", headers, self.at),
            ("other id", self.secret, self.body, headers | {"webhook-id": "x"}, self.at),
            ("other secret", "whsec_AAAA", self.body, headers, self.at),
            ("no secret", "", self.body, headers, self.at),
            ("no headers", self.secret, self.body, {}, self.at),
            ("no time", self.secret, self.body, headers | {"webhook-timestamp": "²"}, self.at),
        ]
        for name, secret, body, sent, now in cases:
            with self.subTest(name), self.assertRaises(flowlane.SignatureError):
                flowlane.verify_webhook(secret, body, sent, now=now)
        for secret in ["", "whsec_", "whsec_?"]:
            with self.subTest(secret), self.assertRaises(flowlane.SignatureError):
                flowlane.sign_webhook(secret, self.body)


class Readers(unittest.TestCase):
    def test_files(self) -> None:
        for name, text, want in [
            ("a.ndjson", '{"n":12345678901234567890.10}\n\n{"b":1}', ['{"n":12345678901234567890.10}', '{"b":1}']),
            ("a.ndjson", '{"a":"x\u2028y"}\r\n', ['{"a":"x\u2028y"}']),
            ("a.CSV", '\ufeffa,b\r\n1,"x,\ny"\r\n', ['{"a": "1", "b": "x,\\ny"}']),
            ("a.csv", "", []),
        ]:
            with self.subTest(text), tempfile.TemporaryDirectory() as folder:
                path = Path(folder, name)
                path.write_bytes(text.encode())
                self.assertEqual(list(texts(path, None)), want)
                with path.open("rb") as file:
                    self.assertEqual(list(texts(file, "csv" if "csv" in name.lower() else None)), want)
                    self.assertFalse(file.closed)

    def test_mistakes(self) -> None:
        for format, text, want in [
            ("ndjson", "{}\n[1]\n", "line 2 is no JSON object"),
            ("ndjson", "{", "line 1 is no JSON object"),
            ("csv", "a\n1\n1,2\n", "line 3: 2 values for 1 columns"),
            ("csv", "a,b,a\n1,2,3\n", "two columns have one name: a, b, a"),
        ]:
            with self.subTest(text), self.assertRaisesRegex(ValueError, want):
                list(texts(io.StringIO(text), format))  # type: ignore[arg-type]

    def test_streams(self) -> None:
        self.assertEqual(list(lines([b"a", b"b\nc\xe2\x80", b"\xa8\n\n", b"d"])), [b"ab", "c\u2028".encode(), b"", b"d"])
        stream = b": hello\n\nid: 1\nevent: a\ndata: x\ndata: y\n\nid: 2\ndata: z\r\n\r\nid: 3\ndata: cut"
        alive: list[int] = []
        self.assertEqual(list(events([stream], lambda: alive.append(1))), [("1", "a", "x\ny"), ("2", "", "z")])
        self.assertEqual(alive, [1])


class Requests(unittest.TestCase):
    def test_upload_deletes_the_set_of_a_bad_file(self) -> None:
        service = Service(self, lambda method, path, body: (200, {}, '{"id":"s/1"}'))
        with self.assertRaises(ValueError):
            service.client(self).upload(io.StringIO('{"a":1}\n{"a":2}\nnone'), chunk_size=1)
        sent = [(method, path) for method, path, _, _ in service.requests]
        self.assertEqual(sent[-1], ("DELETE", "/v1/data/record-sets/s%2F1"))
        self.assertNotIn(("POST", "/v1/data/record-sets/s%2F1/seal"), sent)

    def test_upload_side_by_side(self) -> None:
        service = Service(self, lambda method, path, body: (200, {}, '{"id":"s"}'))
        progress: list[int] = []
        numbers: Iterable[dict[str, Any]] = ({"n": n} for n in range(95))
        service.client(self).upload(numbers, chunk_size=10, on_progress=progress.append)
        chunks = [json.loads(body) for _, path, body, _ in service.requests if path.endswith("/records")]
        chunks.sort(key=lambda chunk: int(chunk["chunk_index"]))
        self.assertEqual([r["n"] for chunk in chunks for r in chunk["records"]], list(range(95)))
        self.assertEqual((len(progress), sorted(progress), progress[-1]), (10, progress, 95))
        self.assertEqual(json.loads(service.requests[-1][2]), {"expected_count": 95})

    def test_pages_and_errors(self) -> None:
        def answer(method: str, path: str, body: str) -> Answer:
            if "cursor=bad" in path:
                detail = '[{"loc":["query","cursor"],"msg":"is bad","type":"t"}]'
                return 422, {}, f'{{"detail":{detail},"code":"validation_failed","request_id":"r","hint":"h"}}'
            following = '"bad"' if "cursor=x" in path else '"x"'
            return 200, {}, f'{{"items":[{{"id":"{path}"}}],"next_cursor":{following}}}'

        seen = []
        with self.assertRaises(flowlane.ValidationError) as raised:
            for batch in Service(self, answer).client(self).all_batches(status="failed", skip=3):
                seen.append(batch["id"])
        self.assertEqual(
            seen, ["/v1/flows/batches?skip=3&status=failed", "/v1/flows/batches?status=failed&cursor=x"]
        )
        error = raised.exception
        self.assertEqual((error.code, error.request_id, error.hint), ("validation_failed", "r", "h"))
        self.assertEqual(error.fields[0]["loc"], ["query", "cursor"])
        self.assertEqual(str(error), "422: query.cursor: is bad")

    def test_retries(self) -> None:
        cases: list[tuple[str, int, Callable[[flowlane.Client], object], int]] = [
            ("read", 502, lambda flow: flow.get_me(), 3),
            ("keyed", 503, lambda flow: flow.retry_batch("b"), 3),
            ("not repeatable", 502, lambda flow: flow.create_api_key({"name": "n"}), 1),
            ("limited", 429, lambda flow: flow.create_api_key({"name": "n"}), 3),
            ("refused", 500, lambda flow: flow.get_me(), 1),
        ]
        for name, status, call, times in cases:
            with self.subTest(name):
                service = Service(self, lambda method, path, body: (status, {}, "down"))
                with self.assertRaises(flowlane.ApiError) as raised:
                    call(service.client(self, retries=2))
                self.assertEqual(len(service.requests), times)
                self.assertEqual(len({key for _, _, _, key in service.requests}), 1)
                self.assertEqual((raised.exception.status, raised.exception.code), (status, ""))

    def test_redirections(self) -> None:
        """A request is sent on as it is, with its key, within a host and to where an organization has moved."""
        moved = '{"detail":"The organization is elsewhere","code":"moved"}'
        cases: list[tuple[str, int, str, str, str, bool]] = [
            ("301", 301, "127.0.0.1", "", "", False),
            ("302", 302, "127.0.0.1", "", "", False),
            ("303", 303, "127.0.0.1", "", "", False),
            ("307", 307, "127.0.0.1", "", "", True),
            ("308", 308, "127.0.0.1", "/in", "", True),
            ("moved", 307, "localhost", "", moved, True),
            ("307 of another host", 307, "localhost", "", "", False),
            ("308 of another host", 308, "localhost", "", moved, False),
            ("moved to another path", 307, "localhost", "/login", moved, False),
        ]
        for name, status, host, folder, said, follows in cases:
            for http in (None, httpx.Client(follow_redirects=True)):
                with self.subTest(name, http=http):
                    there = Service(self, lambda method, path, body: (200, {}, '{"id":"made"}'))
                    root = there.url.replace("127.0.0.1", host) + folder
                    here = Service(self, lambda method, path, body: (status, {"Location": root + path}, said))
                    flow = here.client(self, http=http)
                    if follows:
                        self.assertEqual(flow.create_record_set({"chunk_size": 7})["id"], "made")
                        ((method, path, body, key),) = there.requests
                        self.assertEqual((method, path), ("POST", f"{folder}/v1/data/record-sets"))
                        self.assertEqual((json.loads(body), key), ({"chunk_size": 7}, here.requests[0][3]))
                        self.assertEqual(there.api_keys, ["k"])
                        continue
                    with self.assertRaises(flowlane.ApiError) as raised:
                        flow.create_record_set({})
                    self.assertEqual((raised.exception.status, there.requests), (status, []))
                    self.assertIn(f"leads to {root}, which", str(raised.exception))
                if http:
                    http.close()

    def test_redirections_end(self) -> None:
        service = Service(self, lambda method, path, body: (308, {"Location": path}, ""))
        with self.assertRaisesRegex(flowlane.ApiError, f"leads to {service.url}, which"):
            service.client(self).get_me()
        self.assertEqual(len(service.requests), 6)
        service = Service(self, lambda method, path, body: (307, {}, ""))
        with self.assertRaisesRegex(flowlane.ApiError, "does not say where"):
            service.client(self).get_me()

    def test_redirections_of_streams(self) -> None:
        there = Service(self, lambda method, path, body: (200, {}, '{"position":0}\n'))
        here = Service(self, lambda method, path, body: (307, {"Location": there.url + path}, ""))
        self.assertEqual(list(here.client(self).results("b")), [{"position": 0}])

    def test_no_answer_does_not_tell_the_address(self) -> None:
        with flowlane.Client("http://127.0.0.1:1", retries=1, backoff=0.001) as flow:
            with self.assertRaises(flowlane.NetworkError) as raised:
                flow.list_batches(definition_id="secret")
        self.assertNotIn("secret", str(raised.exception))

    def test_follow(self) -> None:
        first = "id: 1\nevent: execution.snapshot\ndata: {}\n\n"
        last = "id: 2\nevent: execution.closed\ndata: {}\n\n"
        cases: list[tuple[str, Callable[[int], tuple[int, str]], int, list[str], type[Exception] | None]] = [
            ("cut for good", lambda n: (200, first if n == 0 else "retry: 1\n\n"), 3, ["1"], flowlane.NetworkError),
            ("cut while nothing happens", lambda n: (200, ":\n\n" if n < 9 else last), 10, ["2"], None),
            ("refused later", lambda n: (200 if n == 0 else 404, first), 2, ["1"], flowlane.NotFoundError),
        ]
        for name, stream, opened, ids, error in cases:
            with self.subTest(name):
                streams: list[str] = []

                def answer(method: str, path: str, body: str) -> Answer:
                    if method == "POST":
                        return 200, {}, '{"token":"t"}'
                    status, text = stream(len(streams))
                    streams.append(path)
                    return status, {"Content-Length": "1000", "Connection": "close"} if status == 200 else {}, text

                seen: list[str] = []
                raised: Exception | None = None
                try:
                    for event in Service(self, answer).client(self, retries=2).follow("e"):
                        seen.append(event.id)
                except flowlane.FlowlaneError as failed:
                    raised = failed
                self.assertEqual((seen, len(streams)), (ids, opened))
                self.assertIs(type(raised), error or type(None))

    def test_numbers(self) -> None:
        service = Service(self, lambda method, path, body: (200, {}, '{"position":0,"output":1.10000000000000000001}\n'))
        (result,) = service.client(self, parse_float=decimal.Decimal).results("b")
        self.assertEqual(str(result["output"]), "1.10000000000000000001")


if __name__ == "__main__":
    unittest.main()
