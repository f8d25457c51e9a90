"""V2 checkpoints: sidecars side by side, then the top-level file that names them.

The sidecars of the checkpoint that `_last_checkpoint` names are looked at first: those in which
nothing has changed are named again, as long as they are still there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from queue import SimpleQueue
from typing import Final
from uuid import uuid4

from mirror_assets.delta.actions import CheckpointMetadata, Sidecar
from mirror_assets.delta.checkpoint_content import CheckpointContent, count_content
from mirror_assets.delta.checkpoint_writer import FileActions
from mirror_assets.delta.log_paths import SidecarName, V2Checkpoint, parse_log_path, sidecar_name
from mirror_assets.delta.sidecar_plan import FileKind, KnownSidecar, Part, sidecar_tags
from mirror_assets.errors import CheckpointMismatchError, MalformedActionError
from mirror_assets.metastore.arrow_reader import ArrowReader
from mirror_assets.metastore.checkpoint_builder import (
    columns_of,
    plan_sidecars,
    write_sidecar,
    write_top_level,
)
from mirror_assets.metastore.checkpoint_source import CheckpointSource
from mirror_assets.mirror.checkpoint_audit import read_sidecars
from mirror_assets.mirror.checkpoint_pointer import read_pointer
from mirror_assets.storage.log_store import Different, LogKey, LogStore

_THREADS: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class V2Files:
    """A V2 checkpoint in the store that nothing points at yet."""

    name: V2Checkpoint
    #: of the top-level file alone
    top_bytes: int
    content: CheckpointContent
    #: of all files
    size_bytes: int
    sidecars_written: int
    sidecars_kept: int


@dataclass(frozen=True, slots=True)
class _Known:
    """Sidecars that can be named again, and the version of the checkpoint that has them."""

    sidecars: Sequence[KnownSidecar]
    version: int


_NONE: Final = _Known((), -1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A sidecar in the store, and what it holds."""

    action: Sidecar
    content: CheckpointContent
    is_kept: bool


#: sees to it that the sidecars of parts are in the store; None for a part that is empty
PlaceParts = Callable[[CheckpointSource, Sequence[Part]], Sequence[Placed | None]]


def write_v2(
    store: LogStore,
    source: CheckpointSource,
    directory: Path,
    place_parts: PlaceParts | None = None,
) -> V2Files:
    """Write what has changed since the last checkpoint, and a top-level file over all.

    `place_parts` writes the sidecars elsewhere; by default threads of this process do. Raises
    CheckpointMismatchError, before the top-level file is visible, if the parts do not add up to
    what SQL counts.
    """
    with ExitStack() as stack:
        readers = SimpleQueue[ArrowReader]()
        for _ in range(_THREADS):
            readers.put(stack.enter_context(ArrowReader(source.metastore)))
        pool = stack.enter_context(ThreadPoolExecutor(_THREADS, thread_name_prefix="sidecar"))
        work = _SidecarWork(store, source, directory, readers, place_parts)
        known = _known_sidecars(store, source, pool)
        try:
            return _write_top(work, work.place_all(pool, known))
        except CheckpointMismatchError:
            if not known.sidecars:
                raise
            # a retention that grew, or a clock that went back: nothing known holds
            return _write_top(work, work.place_all(pool, _NONE))


def write_part(
    store: LogStore, source: CheckpointSource, part: Part, directory: Path, reader: ArrowReader
) -> Placed | None:
    """Write one new sidecar, verify it, and upload it; None if the part is empty."""
    name = f"{source.version:020d}.checkpoint.{uuid4()}.parquet"
    file, columns = directory / name, columns_of(source)
    with file.open("w+b") as out:
        written: FileActions = write_sidecar(source, part, out, reader)
        size = out.tell()
        out.seek(0)
        content = count_content(out, schema=columns.sidecar_schema)
    if not written.count:
        file.unlink()
        return None
    content.require(written.content)
    create(store, SidecarName(name), file)
    file.unlink()
    tags = sidecar_tags(
        part, files=written.count, size_bytes=written.size_bytes, layout=columns.layout
    )
    action = Sidecar(path=name, size_in_bytes=size, modification_time=source.now_ms, tags=tags)
    return Placed(action=action, content=content, is_kept=False)


def _known_sidecars(store: LogStore, source: CheckpointSource, pool: ThreadPoolExecutor) -> _Known:
    """The last checkpoint's sidecars, if all of them are ours, of today's layout, and there."""
    hint = read_pointer(store)
    path = (hint.v2_checkpoint or {}).get("path") if hint else None
    top = parse_log_path(path) if isinstance(path, str) else None
    floor = source.table.floor_version
    if not isinstance(top, V2Checkpoint) or not floor <= top.version < source.version:
        return _NONE
    try:
        actions = read_sidecars(store, top)
    except (CheckpointMismatchError, MalformedActionError):
        return _NONE
    layout = columns_of(source).layout
    known = [KnownSidecar.read(action) for action in actions]
    usable = [sidecar for sidecar in known if sidecar and sidecar.layout == layout]
    if len(usable) < len(actions):
        return _NONE
    sizes = pool.map(store.size, (sidecar_name(s.action.path) for s in usable))
    present = all(size == s.action.size_in_bytes for size, s in zip(sizes, usable, strict=True))
    return _Known(usable, top.version) if present else _NONE


@dataclass(frozen=True, slots=True)
class _SidecarWork:
    store: LogStore
    source: CheckpointSource
    directory: Path
    #: one for each thread
    readers: SimpleQueue[ArrowReader]

    place_parts: PlaceParts | None

    def place_all(self, pool: ThreadPoolExecutor, known: _Known) -> list[Placed]:
        """See to it that all sidecars are in the store."""
        parts = plan_sidecars(self.source, known.sidecars, known.version)
        kept = [_kept(part.kept) for part in parts if part.kept is not None]
        new = [part for part in parts if part.kept is None]
        if self.place_parts is None:
            placed: Iterable[Placed | None] = pool.map(self._place, new)
        else:
            placed = self.place_parts(self.source, new)
        return [*kept, *(sidecar for sidecar in placed if sidecar is not None)]

    def _place(self, part: Part) -> Placed | None:
        reader = self.readers.get()
        try:
            return write_part(self.store, self.source, part, self.directory, reader)
        finally:
            self.readers.put(reader)


def _kept(known: KnownSidecar) -> Placed:
    if known.kind is FileKind.ADD:
        content = CheckpointContent(adds=known.files, size_bytes=known.size_bytes)
    else:
        content = CheckpointContent(removes=known.files)
    return Placed(action=known.action, content=content, is_kept=True)


def _write_top(work: _SidecarWork, placed: Sequence[Placed]) -> V2Files:
    source = work.source
    name = V2Checkpoint(source.version, str(uuid4()), "parquet")
    files = sum((part.content for part in placed), CheckpointContent())
    sidecar_bytes = sum(part.action.size_in_bytes for part in placed)
    file = work.directory / name.name
    with file.open("w+b") as out:
        head = _head(source, files, sidecar_bytes)
        write_top_level(source, head, [part.action for part in placed], out)
        size = out.tell()
        out.seek(0)
        content = files + count_content(out, schema=columns_of(source).schema(v2=True))
    expected = replace(source.expected(), checkpoint_metadatas=1, sidecars=len(placed))
    content.require(expected)
    create(work.store, name, file)
    kept = sum(part.is_kept for part in placed)
    return V2Files(
        name=name,
        top_bytes=size,
        content=content,
        size_bytes=size + sidecar_bytes,
        sidecars_written=len(placed) - kept,
        sidecars_kept=kept,
    )


def _head(
    source: CheckpointSource, files: CheckpointContent, sidecar_bytes: int
) -> CheckpointMetadata:
    tags: dict[str, str | None] = {
        "sidecarNumActions": str(files.actions),
        "sidecarSizeInBytes": str(sidecar_bytes),
        "numOfAddFiles": str(files.adds),
    }
    return CheckpointMetadata(version=source.version, tags=tags)


def create(store: LogStore, path: LogKey, file: Path) -> None:
    """Upload a file whose name is new; other content there is no chance, but a fault."""
    if isinstance(store.put_file_if_absent(path, file), Different):
        raise CheckpointMismatchError(f"{path.name} is there already, with other content")
