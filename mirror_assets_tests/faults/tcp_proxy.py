"""A TCP proxy that cuts connections at a chosen moment of what the client sends.

`cut(b"COMMIT", When.BEFORE)` ends the connection instead of passing the words on; `AFTER` passes
them on, waits for the server's answer and keeps it from the client; `AT_ONCE` passes them on and
does not wait, so that the server may act on them later than the client knows of the cut.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType

ANSWER_SECONDS = 10


class When(Enum):
    BEFORE = "before"
    AFTER = "after"
    AT_ONCE = "at once"


@dataclass(slots=True)
class Cut:
    words: bytes
    when: When
    #: for how many connections it still holds; None for every one
    times: int | None = 1


@dataclass
class _Pair:
    """The two ends of one connection."""

    client: socket.socket
    server: socket.socket
    muted: threading.Event = field(default_factory=threading.Event)
    answered: threading.Event = field(default_factory=threading.Event)

    def close(self) -> None:
        for end in (self.client, self.server):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


class TcpProxy:
    """Passes connections on to a server until told otherwise; a context manager."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._cuts: list[Cut] = []
        self._pairs: list[_Pair] = []
        self._threads: list[threading.Thread] = []
        #: how many connections were cut
        self.count = 0
        self.refuses = False

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.drop_all()
        for thread in self._threads:
            thread.join(ANSWER_SECONDS + 5)
        for pair in self._pairs:
            pair.client.close()
            pair.server.close()

    def cut(self, words: bytes, when: When, times: int | None = 1) -> None:
        """Cut the next connections whose client says these words."""
        with self._lock:
            self._cuts.append(Cut(words, when, times))

    def drop_all(self) -> None:
        """Cut every connection now."""
        for pair in list(self._pairs):
            pair.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self.refuses:
                client.close()
                continue
            pair = _Pair(client, socket.create_connection(self._target))
            self._pairs.append(pair)
            self._start(self._to_server, pair)
            self._start(self._to_client, pair)

    def _to_server(self, pair: _Pair) -> None:
        tail = b""
        with contextlib.suppress(OSError):
            while data := pair.client.recv(65_536):
                found = self._take_cut(tail + data)
                if found is None:
                    pair.server.sendall(data)
                    tail = data[-32:]
                    continue
                if found.when is not When.BEFORE:
                    pair.muted.set()
                    pair.server.sendall(data)
                if found.when is When.AFTER:
                    pair.answered.wait(ANSWER_SECONDS)
                self.refuses = self.refuses or found.times is None
                break
        pair.close()

    def _to_client(self, pair: _Pair) -> None:
        with contextlib.suppress(OSError):
            while data := pair.server.recv(65_536):
                if pair.muted.is_set():
                    pair.answered.set()
                else:
                    pair.client.sendall(data)
        pair.close()

    def _take_cut(self, said: bytes) -> Cut | None:
        with self._lock:
            for cut in self._cuts:
                if cut.words in said and cut.times != 0:
                    cut.times = None if cut.times is None else cut.times - 1
                    self.count += 1
                    return cut
        return None

    def _start(self, target: object, *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()
