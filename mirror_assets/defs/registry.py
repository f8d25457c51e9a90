"""Which tables there are, for definitions that must load whatever happens.

The metastore is asked, for a short while; its last good answer is kept beside the Dagster instance
and stands in when there is none.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Thread
from typing import Final

import orjson

from mirror_assets.errors import DatabaseUnavailableError, MirrorAssetsError
from mirror_assets.metastore.database import Metastore
from mirror_assets.metastore.log_reader import LogReader
from mirror_assets.settings import Settings, dagster_home, load_settings, redact

#: how long loading waits for the metastore
_PATIENCE_S: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredTable:
    """What definitions need to know of a table."""

    name: str
    location: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Registry:
    """The tables, and why they may be those of an earlier time."""

    settings: Settings
    tables: tuple[RegisteredTable, ...]
    problem: str | None = None


def read_registry() -> Registry:
    """Never raises for a metastore that is gone, locked, empty or misconfigured."""
    try:
        settings = load_settings().settings
    except MirrorAssetsError as error:
        return Registry(settings=Settings(), tables=(), problem=str(error))
    url = settings.metastore_url.get_secret_value()
    kept = _kept_answer(url)
    try:
        tables = _within(_PATIENCE_S, lambda: registered_tables(url))
    except Exception as error:  # noqa: BLE001 - whatever it is, the sensors must load to tell it
        return Registry(settings=settings, tables=_read(kept), problem=redact(str(error)))
    _write(kept, tables)
    return Registry(settings=settings, tables=tables)


def registered_tables(url: str) -> tuple[RegisteredTable, ...]:
    """The tables by name, from the metastore alone."""
    metastore = Metastore.open(url)
    try:
        metastore.require_file()
        found = LogReader(metastore).tables()
    finally:
        metastore.close()
    return tuple(RegisteredTable(name=t.name, location=t.location) for t in found)


def _within(
    seconds: float, ask: Callable[[], tuple[RegisteredTable, ...]]
) -> tuple[RegisteredTable, ...]:
    """The answer of a function that may hang: a database behind a dead network does."""
    answers: list[tuple[RegisteredTable, ...] | Exception] = []

    def run() -> None:
        try:
            answers.append(ask())
        except Exception as error:  # noqa: BLE001 - raised again by whoever waits
            answers.append(error)

    thread = Thread(target=run, name="registry", daemon=True)
    thread.start()
    thread.join(seconds)
    if not answers:
        raise DatabaseUnavailableError(f"the metastore did not answer within {seconds:g} s")
    if isinstance(answers[0], Exception):
        raise answers[0]
    return answers[0]


def _kept_answer(url: str) -> Path | None:
    """One file per metastore, so that one's tables are never shown for another's."""
    home = dagster_home()
    name = hashlib.sha256(url.encode()).hexdigest()[:16]
    return None if home is None else home / f"mirror-tables-{name}.json"


def _read(path: Path | None) -> tuple[RegisteredTable, ...]:
    if path is None:
        return ()
    try:
        return tuple(RegisteredTable(**table) for table in orjson.loads(path.read_bytes()))
    except (OSError, ValueError, TypeError):
        return ()


def _write(path: Path | None, tables: tuple[RegisteredTable, ...]) -> None:
    if path is None or not path.parent.is_dir():
        return
    content = orjson.dumps([asdict(table) for table in tables])
    beside = path.with_suffix(f".{os.getpid()}")
    try:
        beside.write_bytes(content)
        beside.replace(path)
    except OSError:
        beside.unlink(missing_ok=True)
