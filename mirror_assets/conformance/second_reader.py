"""Second opinions: readers in environments of their own, each a process behind the reader's port.

`make readers` makes the environments, `second_opinion.py` is what runs in them. A process is
started for the first question and asked again until `close`; it ends with this process, too.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Timer
from typing import IO, Any, Final

import pyarrow as pa

from mirror_assets.conformance import second_opinion
from mirror_assets.conformance.digests import digest_of
from mirror_assets.conformance.readers import Refused, Seen, names_below
from mirror_assets.delta.locations import Location
from mirror_assets.errors import ReaderMissingError
from mirror_assets.storage.options import StoreOptions

#: their names, in `--readers` and as folders below the environments' folder
SECOND_OPINIONS: Final = tuple(second_opinion.READERS)
_PATIENCE_S: Final = 300.0
_FAREWELL_S: Final = 10.0


@dataclass(slots=True)
class SecondReader:
    """See Reader; `home` is the folder of the environments.

    Raises ReaderMissingError if there is no environment for it.
    """

    name: str
    home: Path
    #: how long it may take for one answer
    patience_s: float = _PATIENCE_S
    _running: _Running | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        if not self._python.exists():
            raise ReaderMissingError(f"the reader {self.name} is not in {self.home}")

    def read(self, place: Location, version: int, options: StoreOptions) -> Seen | Refused:
        """See Reader."""
        if place.scheme not in ("file", "s3"):
            return Refused(f"it is asked about local files and S3 only, not {place.scheme}")
        store = _store(options)
        if self._running is not None and self._running.store != store:
            # Some read their settings once.
            self.close()
        if self._running is None:
            self._running = _Running.start(self._python, self.name, store)
        with tempfile.TemporaryDirectory(prefix="mirror-assets-reader-") as folder:
            rows = Path(folder) / "rows.arrow"
            where = place.path if place.scheme == "file" else place.uri
            request = {"place": where, "version": version, "rows": str(rows), "store": store}
            answer = self._running.ask(request, self.patience_s)
            if "refused" in answer:
                if self._running.ended:
                    self.close()
                return Refused(answer["refused"])
            if answer["version"] != version:
                return Refused(f"it opened version {answer['version']}")
            with pa.memory_map(str(rows)) as source, pa.ipc.open_stream(source) as stream:
                count, digest = digest_of(stream)
        if answer["files"] is None:
            return Seen(rows=count, digest=digest)
        paths = names_below(place, answer["files"], encoded=False)
        return Seen(rows=count, digest=digest, files=len(paths), paths=paths)

    def close(self) -> None:
        """See Reader: end its process."""
        if self._running is not None:
            self._running.end()
            self._running = None

    @property
    def _python(self) -> Path:
        return self.home.absolute() / self.name / "bin" / "python"


@dataclass(slots=True)
class _Running:
    """A process that answers."""

    process: subprocess.Popen[str]
    store: dict[str, Any]
    complaints: IO[str]
    ended: bool = False

    @classmethod
    def start(cls, python: Path, name: str, store: dict[str, Any]) -> _Running:
        complaints = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115 - lives as long
        process = subprocess.Popen(  # noqa: S603 - our own program
            [str(python), "-I", second_opinion.__file__, name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=complaints,
            text=True,
            encoding="utf-8",
        )
        return cls(process, store, complaints)

    def ask(self, request: dict[str, Any], patience_s: float) -> dict[str, Any]:
        """Its answer; that it ended or took too long is a refusal, and the end of it."""
        stdin, stdout = self.process.stdin, self.process.stdout
        assert stdin is not None  # noqa: S101 - both are pipes
        assert stdout is not None  # noqa: S101 - the same
        with _deadline(self.process, patience_s) as is_over:
            line = ""
            with suppress(BrokenPipeError):
                stdin.write(json.dumps(request) + "\n")
                stdin.flush()
                line = stdout.readline()
        if line:
            answer: dict[str, Any] = json.loads(line)
            return answer
        self.ended = True
        if is_over:
            return {"refused": f"no answer within {patience_s:g} s"}
        return {"refused": f"it ended with code {self.process.wait()}: {self._last_complaint()}"}

    def end(self) -> None:
        assert self.process.stdin is not None  # noqa: S101 - a pipe
        assert self.process.stdout is not None  # noqa: S101 - the same
        with suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            self.process.wait(_FAREWELL_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        self.complaints.close()

    def _last_complaint(self) -> str:
        self.complaints.seek(0)
        lines = self.complaints.read().strip().splitlines()
        return lines[-1] if lines else "it says nothing"


@contextmanager
def _deadline(process: subprocess.Popen[str], seconds: float) -> Iterator[list[bool]]:
    """Kill the process when the time is over; then the list is not empty."""
    is_over: list[bool] = []

    def kill() -> None:
        is_over.append(True)
        process.kill()

    timer = Timer(seconds, kill)
    timer.start()
    try:
        yield is_over
    finally:
        timer.cancel()


def _store(options: StoreOptions) -> dict[str, Any]:
    """How to reach S3: it goes through a pipe, and is in no list of processes."""
    return {
        "endpoint": options.endpoint,
        "region": options.region,
        "path_style": options.path_style,
        "anonymous": options.anonymous,
        **{name: secret.reveal() for name, secret in options.credentials},
    }
