"""`verify`: a log against the rules of the protocol, ours against SQL, and readers against both."""

# ruff: noqa: PLC0415 - heavy modules are imported when a command runs; session.py says why

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final
from urllib.parse import unquote

import typer

from mirror_assets.cli.exits import ExitCode, UsageError
from mirror_assets.cli.files import require_folder, write_bytes
from mirror_assets.cli.session import Session
from mirror_assets.errors import VersionNotFoundError

if TYPE_CHECKING:
    from mirror_assets.conformance.readers import Expected, Reader
    from mirror_assets.conformance.report import Report


#: as in `--readers`; the last three are in environments of their own
READERS: Final = ("deltalake", "duckdb", "spark", "sail", "deltalake-0.25", "chdb")
READERS_HELP: Final = f"Ask {', '.join(READERS)}, too; by commas."


class VerifyProfile(StrEnum):
    """How much a rule weighs."""

    STRICT = "strict"
    FOREIGN = "foreign"
    READ = "read"


_File = Annotated[
    Path | None, typer.Option(metavar="FILE", dir_okay=False, help="Write the report here, too.")
]


def verify(
    session: Session,
    *,
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="A table of ours.")] = None,
    path: Annotated[
        str | None, typer.Option("--path", metavar="URI", help="A table anywhere: its root.")
    ] = None,
    profile: Annotated[
        VerifyProfile | None,
        typer.Option(help="strict: as ours; foreign: as anybody's; read: what readers need."),
    ] = None,
    readers: Annotated[
        str | None,
        typer.Option(metavar="NAMES", help=READERS_HELP),
    ] = None,
    version: Annotated[
        int | None,
        typer.Option(min=0, metavar="N", help="Only this commit of NAME; costs what it holds."),
    ] = None,
    junit: _File = None,
    html: _File = None,
) -> ExitCode:
    """Check a log by the rules of the protocol; of a table of ours, also against SQL."""
    if (name is None) == (path is None):
        raise UsageError("give a table's name, or a place by --path")
    if version is not None and name is None:
        raise UsageError("--version is for a table of ours: SQL knows the state before it")
    asked = reader_names(readers)
    for file in (junit, html):
        if file is not None:
            require_folder(file)
    if path is not None:
        report = _of_path(session, path, profile or VerifyProfile.FOREIGN)
    else:
        report = verified_table(session, str(name), profile or VerifyProfile.STRICT, version)
    if asked:
        report = read_by(session, report, asked)
    _write(report, junit, html)
    return _ended(session, report)


def _of_path(session: Session, path: str, profile: VerifyProfile) -> Report:
    from mirror_assets.cli.locations import require_location
    from mirror_assets.conformance.rulebook import Profile
    from mirror_assets.conformance.validator import verify_log
    from mirror_assets.storage.stores import open_store
    from mirror_assets.storage.table_files import table_files

    place, options = require_location(path, session.settings), session.settings.store_options()
    store = open_store(place, options, allowed_roots=())
    return verify_log(
        store.source, profile=Profile(profile.value), read_data=table_files(place, options)
    )


def verified_table(
    session: Session, name: str, profile: VerifyProfile, version: int | None = None
) -> Report:
    """A table of ours by the rules and against SQL, or one commit of it."""
    from mirror_assets.conformance.rulebook import Profile
    from mirror_assets.mirror.commit_verification import verify_commit
    from mirror_assets.mirror.verification import verify_table
    from mirror_assets.storage.table_files import table_files

    store = session.mirror.open_store(session.reader.table(name).location)
    files = table_files(store.location, session.settings.store_options())
    weight = Profile(profile.value)
    if version is not None:
        return verify_commit(
            session.metastore, store, name, version, profile=weight, read_data=files
        )
    return verify_table(session.metastore, store, name, profile=weight, read_data=files)


def reader_names(readers: str | None) -> list[str]:
    """The names between the commas; UsageError for one that nobody has."""
    wanted = list(dict.fromkeys(word.strip() for word in (readers or "").split(",")))
    wanted = [word for word in wanted if word]
    if unknown := set(wanted) - {*READERS}:
        message = f"no such reader: {', '.join(sorted(unknown))}"
        raise UsageError(message, remedy=f"choose from {', '.join(READERS)}")
    return wanted


def _reader(session: Session, name: str, location: str) -> Reader:
    """A reader by name; it brings its library along."""
    settings = session.settings
    match name:
        case "deltalake":
            from mirror_assets.conformance.deltalake_reader import DeltalakeReader

            return DeltalakeReader()
        case "duckdb":
            from mirror_assets.conformance.duckdb_reader import DuckdbReader

            return DuckdbReader()
        case "spark":
            from mirror_assets.conformance.spark_reader import SparkReader
            from mirror_assets.pipeline.session import SparkOptions, open_session

            s3 = settings.store_options() if location.startswith("s3:") else None
            options = SparkOptions(master=settings.spark_master, delta=True, s3=s3)
            return SparkReader(lambda: open_session(options))
    from mirror_assets.conformance.second_reader import SecondReader

    return SecondReader(name, settings.readers)


def read_by(session: Session, report: Report, wanted: list[str]) -> Report:
    """The same report with what these readers see."""
    from mirror_assets.conformance.readers import ask_readers, expected_of, findings_of
    from mirror_assets.delta.locations import normalise_location

    expected = expected_of(report.growth)
    if report.table is not None:
        expected = [_with_files(session, report.table, each) for each in expected]

    readers = [_reader(session, name, report.location) for name in wanted]
    try:
        verdicts = ask_readers(
            readers,
            normalise_location(report.location),
            expected,
            features=report.features,
            types=report.types,
            partitions=report.partitions,
            options=session.settings.store_options(),
        )
    finally:
        for reader in readers:
            reader.close()
    return report.with_readers(verdicts).with_findings(findings_of(verdicts, report.table))


def _with_files(session: Session, table: str, expected: Expected) -> Expected:
    """The same with the names of the live files, if SQL knows the version."""
    try:
        adds = list(session.reader.live_files(table, expected.version))
    except VersionNotFoundError:
        return expected
    return replace(expected, paths=frozenset(unquote(add.path) for add in adds))


def _write(report: Report, junit: Path | None, html: Path | None) -> None:
    if junit is not None:
        from mirror_assets.conformance.junit import junit_xml

        write_bytes(junit, junit_xml(report))
    if html is not None:
        from mirror_assets.conformance.html import html_page

        made_at = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
        write_bytes(html, html_page(report, made_at=made_at).encode("utf-8", "backslashreplace"))


def _ended(session: Session, report: Report) -> ExitCode:
    document = report.as_dict()
    counts = ", ".join(f"{count} {name}" for name, count in report.counts().items())
    session.output.findings(report.findings)
    summary = {
        "location": report.location,
        "profile": report.profile.value,
        **document["checked"],
        **{
            f"{v.reader} at version {v.version}": f"{v.outcome}: {v.detail}" for v in report.readers
        },
    }
    session.output.answer(document, summary, f"verified: {counts}")
    return ExitCode.REFUSED if report.has_errors else ExitCode.CLEAN
