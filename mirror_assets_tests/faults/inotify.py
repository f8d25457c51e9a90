"""Every change below directories, as the kernel reports it."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import select
import struct
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from mirror_assets_tests.faults.store_history import POINTER, Operation

if TYPE_CHECKING:
    from collections.abc import Iterator

_MODIFY, _MOVED_TO, _CREATE, _DELETE, _OVERFLOW = 0x2, 0x80, 0x100, 0x200, 0x4000
_HEADER = struct.Struct("iIII")


@dataclass
class Watched:
    """The history of the log directories of tables; `lost` if the kernel could not keep up."""

    history: list[Operation] = field(default_factory=list)
    lost: bool = False


@contextlib.contextmanager
def watched(logs: dict[str, Path]) -> Iterator[Watched]:
    """Record what happens in the directories, which are made; by the tables' names."""
    libc = ctypes.CDLL(None, use_errno=True)
    fd = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    if fd < 0:
        raise OSError(ctypes.get_errno(), "inotify_init1")
    tables = {}
    for table, log in logs.items():
        log.mkdir(parents=True, exist_ok=True)
        mask = _MODIFY | _MOVED_TO | _CREATE | _DELETE
        number = libc.inotify_add_watch(fd, os.fsencode(log), mask)
        if number < 0:
            raise OSError(ctypes.get_errno(), "inotify_add_watch", str(log))
        tables[number] = (table, log)
    seen, stop = Watched(), threading.Event()
    thread = threading.Thread(target=_watch, args=(fd, tables, seen, stop))
    thread.start()
    try:
        yield seen
    finally:
        stop.set()
        thread.join()
        os.close(fd)


def _watch(
    fd: int, tables: dict[int, tuple[str, Path]], seen: Watched, stop: threading.Event
) -> None:
    while True:
        if not select.select([fd], [], [], 0.1)[0]:
            if stop.is_set():
                return
            continue
        data, start = os.read(fd, 1 << 20), 0
        while start < len(data):
            number, mask, _, length = _HEADER.unpack_from(data, start)
            start += _HEADER.size
            name = os.fsdecode(data[start : start + length].rstrip(b"\0"))
            start += length
            if mask & _OVERFLOW:
                seen.lost = True
            elif not name.startswith("."):  # what is still being written
                seen.history.append(_operation(*tables[number], mask, name))


def _operation(table: str, log: Path, mask: int, name: str) -> Operation:
    now = time.monotonic()
    kind = "delete" if mask & _DELETE else "create" if mask & _CREATE else "replace"
    content = b""
    if kind != "delete":
        with contextlib.suppress(FileNotFoundError):
            content = (log / name).read_bytes()
    return Operation(
        began=now,
        ended=now,
        kind=kind,
        table=table,
        name=name,
        sha256=hashlib.sha256(content).hexdigest(),
        body=content if name == POINTER else b"",
    )
