"""moto's S3 server, one request at a time.

    python moto_locked.py PORT

moto looks whether a key exists and then writes it, without a lock: about one race in seventy has
two winners. With a lock around the whole application its conditional writes are atomic.
"""

from __future__ import annotations

import logging
import sys
import threading
from typing import TYPE_CHECKING

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import run_simple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from _typeshed.wsgi import StartResponse, WSGIEnvironment


class OneAtATime:
    """A WSGI application behind a lock."""

    def __init__(self) -> None:
        self._application = DomainDispatcherApplication(create_backend_app)
        self._lock = threading.Lock()

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        with self._lock:
            return self._application(environ, start_response)


if __name__ == "__main__":
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    run_simple("127.0.0.1", int(sys.argv[1]), OneAtATime(), threaded=True)
