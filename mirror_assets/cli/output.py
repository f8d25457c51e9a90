"""Answers: one interface, a console and a JSON twin.

Stdout holds the answer and nothing else; notes, warnings and errors for people go to stderr. The
JSON twin writes exactly one document, whole or not at all.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from mirror_assets.errors import ImportRefusedError, MirrorAssetsError
from mirror_assets.findings import Finding

Document = Mapping[str, Any]
#: what is kept in memory of a document before it goes to a temporary file
_SPOOL_BYTES: Final = 8 * 1024 * 1024
_PIPE_COLUMNS: Final = 160


class Output(ABC):
    """What a command may say."""

    @abstractmethod
    def record(self, document: Document, title: str) -> None:
        """One object: the whole answer."""

    def answer(self, document: Document, summary: Document, title: str) -> None:
        """A document that is too long for a person, who gets its summary."""
        del document
        self.record(summary, title)

    @abstractmethod
    def rows(
        self, document: Document, key: str, columns: Sequence[str], *, title: str, empty: str
    ) -> None:
        """The list `document[key]`; a console shows the columns, JSON the whole document."""

    @abstractmethod
    def stream(self, document: Document, key: str, lines: Iterable[bytes], title: str) -> None:
        """An object with one member more: a list of JSON objects that is not held in memory."""

    @abstractmethod
    def findings(self, findings: Sequence[Finding]) -> None:
        """Findings for a person; in JSON they are part of the document."""

    @abstractmethod
    def error(self, error: MirrorAssetsError) -> None:
        """What went wrong, and the way out; with the findings of a refused import."""

    def note(self, text: str) -> None:
        """A word to a person; never part of the answer."""
        errors_console().print(Text(plain(text), style="yellow"), soft_wrap=True)


class JsonOutput(Output):
    """One JSON document on stdout."""

    def record(self, document: Document, title: str) -> None:
        del title
        _write_stdout(dump(document) + b"\n")

    def answer(self, document: Document, summary: Document, title: str) -> None:
        del summary
        self.record(document, title)

    def rows(
        self, document: Document, key: str, columns: Sequence[str], *, title: str, empty: str
    ) -> None:
        del key, columns, empty
        self.record(document, title)

    def stream(self, document: Document, key: str, lines: Iterable[bytes], title: str) -> None:
        del title
        with tempfile.SpooledTemporaryFile(max_size=_SPOOL_BYTES) as spool:
            spool.write(dump(document)[:-1] + b',"' + key.encode() + b'":[')
            separator = b""
            for line in lines:
                spool.write(separator + line)
                separator = b","
            spool.write(b"]}\n")
            spool.seek(0)
            shutil.copyfileobj(spool, typer.get_binary_stream("stdout"))

    def findings(self, findings: Sequence[Finding]) -> None:
        del findings

    def error(self, error: MirrorAssetsError) -> None:
        document: dict[str, Any] = {"error": _without_secrets(error)}
        if isinstance(error, ImportRefusedError):
            document["findings"] = [finding.as_dict() for finding in error.findings]
        self.record(document, "")


class ConsoleOutput(Output):
    """Tables and sentences for people."""

    def record(self, document: Document, title: str) -> None:
        table = Table("", "", title=title or None, title_justify="left", show_header=False)
        for key, value in document.items():
            if value is not None and key != "findings":  # those are notes on stderr
                table.add_row(Text(key, style="bold"), Text(shown(value), overflow="fold"))
        _console().print(table)

    def rows(
        self, document: Document, key: str, columns: Sequence[str], *, title: str, empty: str
    ) -> None:
        items = document[key]
        if not items:
            _console().print(Text(empty))
            return
        table = Table(title=Text(plain(title)), title_justify="left")
        for column in columns:
            numeric = all(isinstance(item[column], int) for item in items)
            table.add_column(
                column.replace("_", " "), justify="right" if numeric else "left", overflow="fold"
            )
        for item in items:
            table.add_row(*(Text(shown(item[column])) for column in columns))
        _console().print(table)

    def stream(self, document: Document, key: str, lines: Iterable[bytes], title: str) -> None:
        self.record(document, title)
        console = _console()
        console.print(Text(f"{key}:", style="bold"))
        for line in lines:
            console.print(Text(plain(line.decode())), soft_wrap=True)

    def findings(self, findings: Sequence[Finding]) -> None:
        if not findings:
            return
        several = len({finding.table for finding in findings}) > 1
        where = ("table", "version") if several else ("version",)
        columns = ("severity", "rule", *where, "file", "line", "message")
        table = Table(*columns, title="findings", title_justify="left")
        for finding in findings:
            table.add_row(*(Text(shown(getattr(finding, column))) for column in columns))
        errors_console().print(table)
        for rule, remedy in dict.fromkeys((f.rule, f.remedy) for f in findings if f.remedy):
            text = Text(f"remedy for {rule}: {plain(remedy)}", style="green")
            errors_console().print(text, soft_wrap=True)

    def error(self, error: MirrorAssetsError) -> None:
        fields = _without_secrets(error)
        where = " ".join(
            f"{word} {fields[word]}"
            for word in ("table", "version", "rule")
            if fields[word] is not None
        )
        head = Text(f"error {error.code}", style="bold red")
        head.append(f" {plain(where)}" if where else "", style="bold")
        head.append(f": {plain(str(fields['message']))}", style="default")
        errors_console().print(head, soft_wrap=True)
        if fields["remedy"]:
            remedy = Text(f"remedy: {plain(str(fields['remedy']))}", style="green")
            errors_console().print(remedy, soft_wrap=True)
        if isinstance(error, ImportRefusedError):
            self.findings(error.findings)


def dump(document: Document) -> bytes:
    """A document's bytes; a lone surrogate (bytes of an argument that are no UTF-8) is escaped."""
    text = json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode(errors="backslashreplace")


def plain(text: str) -> str:
    """The text with control characters spelled out: a name in a log must not steer a terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def shown(value: object) -> str:
    """A value as a table cell shows it."""
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case str():
            return plain(value)
        case dict() | list() | tuple():
            return plain(json.dumps(value, ensure_ascii=False, default=str))
        case _:
            return str(value)


def errors_console() -> Console:
    """Where people are spoken to besides the answer."""
    return _wide(Console(stderr=True, highlight=False))


def _console() -> Console:
    return _wide(Console(highlight=False))


def _wide(console: Console) -> Console:
    if not console.is_terminal:
        console.width = _PIPE_COLUMNS
    return console


def _write_stdout(data: bytes) -> None:
    stream = typer.get_binary_stream("stdout")
    stream.write(data)
    stream.flush()


def _without_secrets(error: MirrorAssetsError) -> dict[str, str | int | None]:
    from mirror_assets.settings import redact  # noqa: PLC0415 - for the start-up time

    return {
        key: redact(value) if isinstance(value, str) else value
        for key, value in error.as_dict().items()
    }
