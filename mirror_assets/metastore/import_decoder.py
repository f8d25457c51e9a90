"""Commit files and checkpoints to rows, by the fast lane where lines are plain.

Both lanes give the same rows. What one line says is decided here; what lines say together
(which file is live, whether a protocol is sound) is for others.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

import numpy as np

from mirror_assets.delta.actions import (
    Action,
    AddFile,
    MetaData,
    RemoveFile,
    TableProtocol,
)
from mirror_assets.delta.commit_file import Line, decode, decode_line, encode_action
from mirror_assets.errors import MalformedActionError
from mirror_assets.findings import Finding, Severity
from mirror_assets.metastore.import_parts import (
    BadFileError,
    CommitFacts,
    FileRefs,
    Part,
    file_key,
    size_of,
)
from mirror_assets.metastore.import_source import LogSource, checkpoint_actions, windows
from mirror_assets.metastore.plain_lines import PlainFiles, PlainMaps, Scratch, Window
from mirror_assets.metastore.plain_rows import (
    ADD,
    CopyText,
    FileShape,
    find_plain_files,
    fits_copy,
    rows_of,
)
from mirror_assets.metastore.rows import to_row

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Table

    from mirror_assets.delta.log_paths import Checkpoint, LogEntry
    from mirror_assets.metastore.columns import Row
    from mirror_assets.metastore.relocation import Relocation

#: a part of a version is handed on when it has this many rows
PART_ROWS: Final = 10_000
_NUL: Final = "\0"


class Decoder:
    """Decodes the files of one table's log."""

    def __init__(
        self,
        source: LogSource,
        table_id: int,
        *,
        copies_text: bool,
        relocation: Relocation | None = None,
    ) -> None:
        self._source = source
        self._table_id = table_id
        self._copy = CopyText() if copies_text else None
        self._relocation = relocation
        self._maps = PlainMaps()
        self.scratch = Scratch()

    def commit(
        self,
        entry: LogEntry,
        version: int,
        data: bytes | None,
        take: Callable[[Part], None],
        *,
        is_history: bool,
    ) -> CommitFacts:
        """Hand the rows of a commit file to `take`; return what the file says as a whole.

        Raises BadFileError for a file that cannot be understood; below the floor, where nobody
        needs to, its bytes are kept as they are.
        """
        lines = _Lines(self, entry, Part(version=version, is_history=is_history), take)
        try:
            rewritten = 0
            if self._relocation is not None:
                data, rewritten = self._relocation.rewrite(self._whole(entry, data))
            for window in windows(self._source, entry, data):
                lines.read(window)
        except MalformedActionError as exc:
            lines = self._by_other_means(lines, self._whole(entry, data), exc)
        return lines.finish(lambda: self._whole(entry, data), rewritten)

    def checkpoint(
        self, checkpoint: Checkpoint, take: Callable[[Part], None]
    ) -> list[TableProtocol | MetaData]:
        """Hand what a checkpoint tells of the state to `take`; return its protocol and metaData.

        Its rows count down from -1. Raises MalformedActionError or StorageError.
        """
        ordinal = 0
        found: list[TableProtocol | MetaData] = []
        for batch in checkpoint_actions(self._source, checkpoint):
            part = Part(version=checkpoint.version)
            for action in batch:
                ordinal -= 1
                self.put(part, self.relocated(action), ordinal)
                if isinstance(action, TableProtocol | MetaData):
                    found.append(action)
            take(part)
        return found

    def relocated(self, action: Action) -> Action:
        return action if self._relocation is None else self._relocation.apply(action)

    def put_plain(self, part: Part, window: Window, first_line: int, facts: CommitFacts) -> None:
        """Put the plain lines of a window into the part, as the engine takes them best."""
        for shape, files in find_plain_files(window, self._maps):
            self._put_files(part, shape, files, first_line)
            facts.note_plain(shape.table, len(files.lines))
            if not part.is_history:
                is_add = shape.table is ADD.table
                ordinals = files.lines + first_line
                part.files.append(
                    FileRefs(is_add=is_add, keys=files.paths, ordinals=ordinals, sizes=files.sizes)
                )

    def put(self, part: Part, action: Action, ordinal: int, raw: str | None = None) -> Table:
        """Put one action into the part; return the table that it goes to."""
        table, row = to_row(action, (self._table_id, part.version, ordinal), raw)
        if any(_NUL in value for value in row if isinstance(value, str)):
            message = "a text with a NUL, which SQL cannot hold"
            raise MalformedActionError(message, rule="DL-CMT-02")
        if not isinstance(action, AddFile | RemoveFile):
            part.add_rows(table, [row])
            return table
        part.add_rows(table, [_ended(row)] if part.is_history else [row])
        part.refer(isinstance(action, AddFile), file_key(action), ordinal, size_of(action))
        return table

    def _put_files(self, part: Part, shape: FileShape, files: PlainFiles, first_line: int) -> None:
        place = (self._table_id, part.version, first_line)
        if self._copy is not None and not part.is_history and fits_copy(place):
            part.add_text(shape, self._copy.render(shape, files, place), len(files.lines))
            return
        rows = rows_of(shape, files, place)
        part.add_rows(shape.table, [_ended(row) for row in rows] if part.is_history else rows)

    def _by_other_means(self, lines: _Lines, data: bytes, exc: MalformedActionError) -> _Lines:
        """Actions over several lines; else the raw bytes, where nobody needs the actions."""
        whole = lines.anew()
        try:
            if lines.handed_on:
                raise exc
            for ordinal, line in enumerate(decode(data).lines):
                encode_action(line.action)
                whole.note(Line(line.action, ""), ordinal)
        except MalformedActionError:
            if not lines.part.is_history:
                raise BadFileError(lines.finding(exc)) from exc
            whole = lines.anew()
            whole.facts.oddities.append((exc.rule or "DL-CMT-02", lines.number + 1))
        else:
            whole.facts.oddities.append(("DL-CMT-02", lines.number + 1))
        whole.keep_raw(data)
        return whole

    def _whole(self, entry: LogEntry, data: bytes | None) -> bytes:
        return self._source.read(entry.name) if data is None else data


class _Lines:
    """The lines of one commit file, read in their order."""

    def __init__(
        self, decoder: Decoder, entry: LogEntry, part: Part, take: Callable[[Part], None]
    ) -> None:
        self.facts = CommitFacts(version=part.version, file=entry.name, mtime_ms=entry.mtime_ms)
        self.part = part
        #: of the line that is being read, from 0
        self.number = 0
        self.handed_on = False
        self._decoder = decoder
        self._entry = entry
        self._take = take
        self._digest = hashlib.sha256()
        self._has_blank_lines = False

    def anew(self) -> _Lines:
        """The same file from its beginning, as if nothing had been read."""
        part = Part(version=self.part.version, is_history=self.part.is_history)
        return _Lines(self._decoder, self._entry, part, self._take)

    def read(self, data: memoryview) -> None:
        """One window of the file."""
        self._digest.update(data)
        self.facts.byte_length += len(data)
        first = self.number
        window = Window(data, self._decoder.scratch)
        self.facts.final_newline = window.ends_with_newline
        self._decoder.put_plain(self.part, window, first, self.facts)
        for index in np.flatnonzero(window.free).tolist():
            self.number = first + index
            self._read_line(window.line(index))
        self.number = first + len(window)
        if self.part.num_rows >= PART_ROWS:
            self._hand_on()

    def note(self, line: Line, ordinal: int) -> None:
        """One line; an empty raw text means that the file's bytes are kept as a whole."""
        facts, action, raw = self.facts, line.action, line.raw or None
        facts.note(action, ordinal, is_exact=line.raw is None)
        if facts.info is action:
            facts.info_raw = raw
        else:
            facts.count(self._decoder.put(self.part, action, ordinal, raw))

    def keep_raw(self, data: bytes) -> None:
        """Keep the file's bytes as a whole."""
        self.facts.raw_file = data
        self.facts.byte_length = len(data)
        self._digest = hashlib.sha256(data)

    def finish(self, whole: Callable[[], bytes], rewritten: int) -> CommitFacts:
        """Hand on the rest."""
        self._hand_on()
        facts = self.facts
        if self._has_blank_lines:
            facts.raw_file = whole()
        facts.sha256 = self._digest.hexdigest()
        facts.rewritten_lines += rewritten
        facts.exact_lines -= rewritten
        return facts

    def finding(self, exc: MalformedActionError) -> Finding:
        """Why the line that is being read refuses the import."""
        return Finding(
            rule=exc.rule or "DL-CMT-02",
            severity=Severity.ERROR,
            message=exc.message,
            version=self.part.version,
            file=self._entry.name,
            line=self.number + 1,
            remedy="repair the file; `--history checkpoint` begins at the newest checkpoint",
        )

    def _read_line(self, piece: bytes) -> None:
        if not piece or piece.isspace():
            self._has_blank_lines = True
            return
        line = decode_line(piece)
        if line.raw is not None:
            encode_action(line.action)  # a lone surrogate fits no column
        self.note(line, self.number)

    def _hand_on(self) -> None:
        if self.part.num_rows:
            self._take(self.part)
            self.handed_on = True
        self.part = Part(version=self.part.version, is_history=self.part.is_history)


def _ended(row: Row) -> Row:
    """The row of a file that was never live: it ends at its own version."""
    return (*row[:-1], row[1])
