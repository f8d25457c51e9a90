"""`doctor`: everything a commit depends on, looked at once."""

# ruff: noqa: PLC0415 - heavy modules are imported when a command runs; session.py says why

from __future__ import annotations

import platform
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from mirror_assets.cli.exits import ExitCode
from mirror_assets.cli.session import Session
from mirror_assets.errors import MirrorAssetsError

_PACKAGES: Final = (
    *("mirror-assets", "SQLAlchemy", "alembic", "psycopg", "duckdb", "duckdb-engine"),
    *("obstore", "pyarrow", "deltalake", "pyspark", "dagster"),
)
_JAVA: Final = 17
_CLOCK_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was looked at."""

    name: str
    ok: bool
    detail: str
    remedy: str = ""


def doctor(session: Session) -> ExitCode:
    """Check this machine and the metastore, and say what is wrong."""
    checks = [*_machine(), *_configuration(session), *_metastore(session)]
    ok = all(check.ok for check in checks)
    session.output.rows(
        {"ok": ok, "checks": [asdict(check) for check in checks]},
        "checks",
        ("name", "ok", "detail", "remedy"),
        title="all is well" if ok else "something needs attention",
        empty="",
    )
    return ExitCode.CLEAN if ok else ExitCode.REFUSED


def _machine() -> Iterator[Check]:
    yield Check(name="python", ok=True, detail=f"{platform.python_version()} {platform.machine()}")
    found = {package: _package(package) for package in _PACKAGES}
    missing = [package for package, number in found.items() if number is None]
    yield Check(
        name="packages",
        ok=not missing,
        detail=", ".join(f"{package} {number or 'missing'}" for package, number in found.items()),
        remedy="run `make setup`, or install the package again" if missing else "",
    )
    yield _java()


def _package(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _java() -> Check:
    """Java never fails the doctor: nothing but Spark asks for it."""
    from mirror_assets.settings import java_home

    home = java_home()
    program = shutil.which("java", path=str(home / "bin")) if home else shutil.which("java")
    number = None if program is None else _java_version(Path(program))
    if number is not None and number >= _JAVA:
        return Check(name="java", ok=True, detail=f"Java {number} at {program}")
    found = "not found" if number is None else f"Java {number}"
    return Check(
        name="java",
        ok=True,
        detail=f"{found}; only Spark work needs it",
        remedy=f"install Java {_JAVA} or newer before Spark is used",
    )


def _java_version(program: Path) -> int | None:
    try:
        done = subprocess.run(  # noqa: S603 - the program that the PATH or JAVA_HOME names
            [program, "-version"], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', done.stderr)
    return int(found[1]) if found else None


def _configuration(session: Session) -> Iterator[Check]:
    from mirror_assets.settings import unknown_variables

    strays = unknown_variables()
    yield Check(
        name="environment",
        ok=not strays,
        detail=f"no settings: {', '.join(strays)}" if strays else "no stray MIRROR_* variables",
        remedy="correct or unset them: they are ignored" if strays else "",
    )
    roots = session.settings.allowed_roots
    missing = [
        root for root in roots if root.startswith("file://") and not _directory(root).is_dir()
    ]
    yield Check(
        name="allowed_roots",
        ok=not missing,
        detail=", ".join(roots) if roots else "none set: tables may live anywhere",
        remedy=f"make the directory: {', '.join(missing)}" if missing else "",
    )


def _directory(uri: str) -> Path:
    from mirror_assets.delta.locations import normalise_location

    return Path(normalise_location(uri).path)


def _metastore(session: Session) -> Iterator[Check]:
    """One check after the other; those behind a failed one cannot be looked at."""
    for name, look in (
        ("metastore", _reach),
        ("schema_revision", _revision),
        ("writable", _write),
        ("clock", _clock),
        ("stores", _stores),
    ):
        check = _look(name, look, session)
        yield check
        if not check.ok:
            return


def _look(name: str, look: Callable[[Session], Check], session: Session) -> Check:
    from mirror_assets.settings import redact

    try:
        return look(session)
    except MirrorAssetsError as exc:
        return Check(name=name, ok=False, detail=redact(exc.message), remedy=exc.remedy)


def _reach(session: Session) -> Check:
    from mirror_assets.cli.metastores import in_our_words
    from mirror_assets.settings import redact

    metastore = session.metastore
    with in_our_words(metastore), metastore.engine.connect() as connection:
        numbers = connection.dialect.server_version_info or ()
    server = ".".join(map(str, numbers))
    detail = f"{redact(metastore.url)}: {metastore.dialect.name} {server}"
    return Check(name="metastore", ok=True, detail=detail)


def _revision(session: Session) -> Check:
    from mirror_assets.metastore.migrate import SCHEMA_REVISION

    with session.metastore.read():
        return Check(name="schema_revision", ok=True, detail=SCHEMA_REVISION)


def _write(session: Session) -> Check:
    """Ask for a change of no row: what may not be written refuses that, too."""
    from mirror_assets.metastore.tables import dl_tables

    with session.metastore.write() as connection:
        connection.execute(
            dl_tables.update().where(dl_tables.c.table_id < 0).values(table_id=dl_tables.c.table_id)
        )
    return Check(name="writable", ok=True, detail="yes")


def _clock(session: Session) -> Check:
    from mirror_assets.metastore.tables import dl_tables

    metastore = session.metastore
    question = dl_tables.select().with_only_columns(metastore.dialect.now_ms())
    with metastore.read() as connection:
        before = time.time()
        there = float(connection.execute(question).scalar_one()) / 1000
        here = (before + time.time()) / 2
    seconds = there - here
    ok = abs(seconds) <= _CLOCK_SECONDS
    return Check(
        name="clock",
        ok=ok,
        detail=f"the database is {seconds:+.3f} s from this host",
        remedy="" if ok else "set both clocks by NTP: commit times are the database's",
    )


def _stores(session: Session) -> Check:
    """Stores that fail are refused by the mirror, unless somebody answers for them."""
    from mirror_assets.cli.mirror_states import ONLY_THE_LEASE
    from mirror_assets.metastore.store_facts import read_store_facts

    accepted = session.settings.single_writer
    facts = read_store_facts(session.metastore)
    refused = [f.store for f in facts.values() if not f.safe and f.store not in accepted]
    known = [f"{f.store} {'safe' if f.safe else 'not safe'} ({f.found_by})" for f in facts.values()]
    notes = [*known, *(ONLY_THE_LEASE.format(store) for store in accepted)]
    return Check(
        name="stores",
        ok=not refused,
        detail="; ".join(notes) or "none known yet: `mirror-assets verify-store URI` tells",
        remedy=f"use another store, or set single_writer for {', '.join(refused)}"
        if refused
        else "",
    )
