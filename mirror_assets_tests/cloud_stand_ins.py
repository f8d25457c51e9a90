"""Stand-ins for Azure Blob Storage and Google Cloud Storage: what a log needs of their protocols.

No server of either comes from a package index. These two keep objects in memory and answer as the
services' own pages say: conditions and conflicts, ranges, listings by pages, Azure's batches of
deletes. They check no signatures.
"""

from __future__ import annotations

import contextlib
import json
import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from urllib.parse import parse_qsl, unquote, urlsplit
from xml.sax.saxutils import escape

from mirror_assets.storage.options import Secret, StoreOptions

#: few, so that listings have several pages
_PAGE = 100


@dataclass(frozen=True)
class Blob:
    """An object, and the number of the write that made it."""

    data: bytes
    generation: int
    written: datetime

    @property
    def headers(self) -> dict[str, str]:
        return {
            "ETag": f'"{self.generation}"',
            "x-goog-generation": str(self.generation),
            "x-ms-blob-type": "BlockBlob",
            "Last-Modified": format_datetime(self.written, usegmt=True),
        }


@dataclass(frozen=True)
class Reply:
    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


class Cloud(ThreadingHTTPServer, ABC):
    """What both services have in common; one lock makes every condition atomic."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.blobs: dict[str, Blob] = {}
        self._writes = 0
        self.lock = threading.Lock()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    @abstractmethod
    def place(self, name: str) -> tuple[str, StoreOptions]:
        """The location of a table of that name, and how it is reached."""

    @abstractmethod
    def refusal(self, headers: Mapping[str, str], there: Blob | None) -> Reply | None:
        """Why a write does not meet its condition."""

    @abstractmethod
    def listing(self, query: Mapping[str, str]) -> bytes:
        """A page of what is there, in the service's own XML."""

    def put(self, key: str, headers: Mapping[str, str], data: bytes) -> Reply:
        refused = self.refusal(headers, self.blobs.get(key))
        if refused is not None:
            return refused
        self._writes += 1
        self.blobs[key] = Blob(data, self._writes, datetime.now(UTC))
        return Reply(201, headers=self.blobs[key].headers)

    def page(self, prefix: str, after: str, token: str) -> tuple[list[tuple[str, Blob]], str]:
        """Keys in order, and the token of the next page; empty at the end."""
        keys = [k for k in sorted(self.blobs) if k.startswith(prefix) and k > max(after, token)]
        rest = keys[_PAGE - 1] if len(keys) > _PAGE else ""
        return [(key, self.blobs[key]) for key in keys[:_PAGE]], rest

    def batch(self, boundary: str, body: bytes) -> Reply:
        """Several requests in one, where the service knows that."""
        del boundary, body
        return Reply(501)


class Gcs(Cloud):
    """Google Cloud Storage by its XML interface."""

    def place(self, name: str) -> tuple[str, StoreOptions]:
        key = {
            "gcs_base_url": self.endpoint,
            "disable_oauth": True,
            **dict.fromkeys(("client_email", "private_key", "private_key_id"), ""),
        }
        credentials = (("service_account_key", Secret(json.dumps(key))),)
        return f"gs://bucket/{name}", StoreOptions(endpoint=self.endpoint, credentials=credentials)

    def refusal(self, headers: Mapping[str, str], there: Blob | None) -> Reply | None:
        wanted = headers.get("x-goog-if-generation-match")
        if wanted is None or int(wanted) == (there.generation if there else 0):
            return None
        return Reply(412, b"<Error><Code>PreconditionFailed</Code></Error>")

    def listing(self, query: Mapping[str, str]) -> bytes:
        found, rest = self.page(
            query.get("prefix", ""),
            query.get("start-after", ""),
            query.get("continuation-token", ""),
        )
        entries = "".join(
            f"<Contents><Key>{escape(key)}</Key><Size>{len(blob.data)}</Size>"
            f"<LastModified>{blob.written:%Y-%m-%dT%H:%M:%SZ}</LastModified>"
            f'<ETag>"{blob.generation}"</ETag>'
            "</Contents>"
            for key, blob in found
        )
        token = f"<NextContinuationToken>{escape(rest)}</NextContinuationToken>" if rest else ""
        return f"<ListBucketResult>{entries}{token}</ListBucketResult>".encode()


class Azure(Cloud):
    """Azure Blob Storage; what a create meets is a 409 there."""

    def place(self, name: str) -> tuple[str, StoreOptions]:
        credentials = (("account_name", Secret("ourblobs")), ("account_key", Secret("c2VjcmV0")))
        options = StoreOptions(endpoint=self.endpoint, credentials=credentials)
        return f"az://container/{name}", options

    def refusal(self, headers: Mapping[str, str], there: Blob | None) -> Reply | None:
        if headers.get("If-None-Match") == "*" and there is not None:
            return Reply(409, b"<Error><Code>BlobAlreadyExists</Code></Error>")
        wanted = headers.get("If-Match")
        if wanted is not None and (there is None or there.headers["ETag"] != wanted):
            return Reply(412, b"<Error><Code>ConditionNotMet</Code></Error>")
        return None

    def listing(self, query: Mapping[str, str]) -> bytes:
        # This version of the interface knows no `startFrom`, and takes no notice of it.
        found, rest = self.page(query.get("prefix", ""), "", query.get("marker", ""))
        entries = "".join(
            f"<Blob><Name>{escape(key)}</Name><Properties>"
            f"<Last-Modified>{blob.headers['Last-Modified']}</Last-Modified>"
            f"<Content-Length>{len(blob.data)}</Content-Length><Content-Type/>"
            f"<Etag>{blob.generation}</Etag></Properties></Blob>"
            for key, blob in found
        )
        marker = f"<NextMarker>{escape(rest)}</NextMarker>"
        return f"<EnumerationResults><Blobs>{entries}</Blobs>{marker}</EnumerationResults>".encode()

    def batch(self, boundary: str, body: bytes) -> Reply:
        """Deletes, each with an answer of its own."""
        parts = []
        for number, path in enumerate(re.findall(rb"DELETE /container/(\S+) HTTP", body)):
            gone = self.blobs.pop(unquote(path.decode()), None)
            status = "202 Accepted" if gone else "404 The specified blob does not exist."
            code = "" if gone else "x-ms-error-code: BlobNotFound\r\n"
            parts.append(
                f"--{boundary}\r\nContent-Type: application/http\r\nContent-ID: {number}\r\n\r\n"
                f"HTTP/1.1 {status}\r\n{code}x-ms-request-id: {number}\r\n"
                "x-ms-version: 2023-11-03\r\nServer: Windows-Azure-Blob/1.0\r\n\r\n"
            )
        answer = "".join(parts) + f"--{boundary}--"
        return Reply(
            202, answer.encode(), {"Content-Type": f"multipart/mixed; boundary={boundary}"}
        )


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Any
    _RANGE: ClassVar = re.compile(r"bytes=(\d+)-(\d*)")

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        cloud: Cloud = self.server
        with cloud.lock:
            reply = self._reply(cloud, body)
        self.send_response(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        if "Content-Length" not in reply.headers:
            self.send_header("Content-Length", str(len(reply.body)))
        self.end_headers()
        self.wfile.write(reply.body)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _answer  # noqa: N815 - http.server's names

    def _reply(self, cloud: Cloud, body: bytes) -> Reply:
        parts = urlsplit(self.path)
        query = dict(parse_qsl(parts.query))
        key = unquote(parts.path).lstrip("/").partition("/")[2]
        match self.command:
            case "PUT":
                return cloud.put(key, self.headers, body)
            case "POST" if query.get("comp") == "batch":
                boundary = self.headers["Content-Type"].rpartition("boundary=")[2]
                return cloud.batch(boundary, body)
            case "DELETE":
                return Reply(204 if cloud.blobs.pop(key, None) else 404)
            case "GET" if not key:
                return Reply(200, cloud.listing(query), {"Content-Type": "application/xml"})
            case _:
                return self._blob(cloud.blobs.get(key))

    def _blob(self, blob: Blob | None) -> Reply:
        if blob is None:
            return Reply(404)
        if self.command == "HEAD":
            return Reply(200, headers={**blob.headers, "Content-Length": str(len(blob.data))})
        wanted = self._RANGE.fullmatch(self.headers.get("Range", ""))
        if wanted is None:
            return Reply(200, blob.data, blob.headers)
        first, last = int(wanted[1]), int(wanted[2] or len(blob.data) - 1)
        part = blob.data[first : last + 1]
        spread = f"bytes {first}-{first + len(part) - 1}/{len(blob.data)}"
        return Reply(206, part, {**blob.headers, "Content-Range": spread})

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextlib.contextmanager
def running(cloud: Cloud) -> Iterator[Cloud]:
    """Serve until the block ends."""
    thread = threading.Thread(target=cloud.serve_forever, daemon=True)
    thread.start()
    try:
        yield cloud
    finally:
        cloud.shutdown()
        thread.join()
        cloud.server_close()
