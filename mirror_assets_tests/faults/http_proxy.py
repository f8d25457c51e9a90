"""A proxy in front of an S3 server that breaks what it is told to, request by request.

    with fault_proxy(server.endpoint) as proxy:
        proxy.script("PUT", StoredThenReset())
        ...

Each request of a method takes the next fault from the method's script, and passes untouched when
there is none. The `Host` header is passed on as it came, because the client signed it.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import socket
import struct
import threading
import time
from collections import defaultdict, deque
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from mirror_assets_tests.faults.store_history import POINTER, Operation

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

CODES = {403: "AccessDenied", 409: "ConditionalRequestConflict", 500: "InternalError"}


@dataclass(frozen=True, kw_only=True)
class Answer:
    """An error of the store's own; with `stored`, the request had its effect all the same."""

    status: int
    code: str = ""
    stored: bool = False
    detail: str = ""


@dataclass(frozen=True, kw_only=True)
class Reset:
    """The connection is cut; with `stored`, after the request had its effect."""

    stored: bool = False


@dataclass(frozen=True, kw_only=True)
class Hang:
    """No answer until the client has lost patience; with `stored`, the effect is there at once."""

    seconds: float
    stored: bool = False


@dataclass(frozen=True)
class LandsLate:
    """The connection is cut, and the request has its effect when `landing` is set."""

    landing: threading.Event = field(default_factory=threading.Event)
    landed: threading.Event = field(default_factory=threading.Event)


Fault = Answer | Reset | Hang | LandsLate


@dataclass(frozen=True)
class Seen:
    """A request as it came."""

    method: str
    path: str
    headers: Mapping[str, str]


@dataclass
class FaultProxy:
    """The proxy: what it has seen, and what it will do."""

    upstream: str
    endpoint: str = ""
    seen: list[Seen] = field(default_factory=list)
    #: what the server was asked to write, and whether it did
    history: list[Operation] = field(default_factory=list)
    #: what happens to every request that has no fault of its own
    always: Fault | None = None
    _scripts: defaultdict[str, deque[Fault | None]] = field(
        default_factory=lambda: defaultdict(deque)
    )
    _stopping: threading.Event = field(default_factory=threading.Event)

    def script(self, method: str, *faults: Fault | None) -> None:
        """What happens to the next requests of the method; None lets one pass."""
        self._scripts[method].extend(faults)

    def count(self, method: str) -> int:
        return sum(request.method == method for request in self.seen)

    def next_fault(self, method: str) -> Fault | None:
        script = self._scripts[method]
        return script.popleft() if script else self.always

    def forward(self, request: Seen, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        """Do it for real."""
        connection = http.client.HTTPConnection(urlsplit(self.upstream).netloc, timeout=30)
        with contextlib.closing(connection):
            connection.putrequest(
                request.method, request.path, skip_host=True, skip_accept_encoding=True
            )
            for name, value in request.headers.items():
                connection.putheader(name, value)
            began = time.monotonic()
            connection.endheaders(body)
            answer = connection.getresponse()
            content = answer.read()
            if request.method in ("PUT", "POST", "DELETE"):
                self.history.append(_operation(request, body, answer.status, began))
            return answer.status, answer.getheaders(), content


def _operation(request: Seen, body: bytes, status: int, began: float) -> Operation:
    key = unquote(urlsplit(request.path).path)
    table, _, name = key.partition("/_delta_log/")
    has_condition = any(header.lower() == "if-none-match" for header in request.headers)
    kind = "delete" if request.method == "DELETE" else "create" if has_condition else "replace"
    return Operation(
        began=began,
        ended=time.monotonic(),
        kind=kind,
        table=table.rpartition("/")[2],
        name=name or key,
        sha256=hashlib.sha256(body).hexdigest(),
        done=status < 300,
        body=body if name == POINTER else b"",
    )


@contextlib.contextmanager
def fault_proxy(upstream: str) -> Iterator[FaultProxy]:
    proxy = FaultProxy(upstream)

    class Handler(_Handler):
        owner = proxy

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    proxy.endpoint = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield proxy
    finally:
        proxy._stopping.set()
        server.shutdown()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    owner: FaultProxy

    def handle_one(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        request = Seen(self.command, self.path, dict(self.headers.items()))
        self.owner.seen.append(request)
        match self.owner.next_fault(self.command):
            case None:
                self._answer(*self.owner.forward(request, body))
            case Answer(status=status, code=code, stored=stored, detail=detail):
                if stored:
                    self.owner.forward(request, body)
                code = code or CODES.get(status, "Error")
                text = f"<Error><Code>{code}</Code><Message>{detail}</Message></Error>".encode()
                self._answer(status, [("content-type", "application/xml")], text)
            case Reset(stored=stored):
                if stored:
                    self.owner.forward(request, body)
                self._reset()
            case Hang(seconds=seconds, stored=stored):
                if stored:
                    self.owner.forward(request, body)
                self.owner._stopping.wait(seconds)
                self._reset()
            case LandsLate(landing=landing, landed=landed):
                self._reset()
                landing.wait(30)
                self.owner.forward(request, body)
                landed.set()

    def __getattr__(self, name: str) -> object:
        """The server looks for `do_GET` and so on; all methods are one to us."""
        if name.startswith("do_"):
            return self.handle_one
        raise AttributeError(name)

    def _answer(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        self.send_response_only(status)
        sent = [pair for pair in headers if pair[0].lower() not in ("connection", "server")]
        for name, value in sent:
            if name.lower() not in ("content-length", "transfer-encoding"):
                self.send_header(name, value)
        length = {name.lower(): value for name, value in sent}.get("content-length")
        # The answer to a HEAD tells the length of a body that is not there.
        self.send_header(
            "content-length", length or "0" if self.command == "HEAD" else str(len(body))
        )
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _reset(self) -> None:
        """Close with RST, as a balancer that lost its backend does."""
        linger = struct.pack("ii", 1, 0)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.close_connection = True
        # The file objects hold the socket open.
        self.rfile.close()
        self.wfile.close()
        self.connection.close()

    def finish(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            super().finish()

    def handle(self) -> None:
        with contextlib.suppress(OSError, ValueError):  # the client left, or we cut it off
            super().handle()

    def log_message(self, *_: object) -> None:
        pass
