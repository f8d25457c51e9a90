"""Imports side by side: a table is a work item, for its versions build on one another.

A job may be started again. An import that was cut off goes on where it stopped, and a table that
was taken over from the same place, by an attempt that died before it could say so or long ago, is
left as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import msgspec

from mirror_assets.delta.locations import normalise_location
from mirror_assets.errors import ImportRefusedError, PermanentError, TableNotFoundError
from mirror_assets.findings import Finding
from mirror_assets.metastore.heads import TableState
from mirror_assets.metastore.import_audit import Parity
from mirror_assets.metastore.import_plan import History
from mirror_assets.metastore.importer import ImportReport, import_table
from mirror_assets.metastore.log_reader import LogReader, TableRecord
from mirror_assets.mirror.bulk.runner import Facts, Runner
from mirror_assets.pipeline.access import Access


@dataclass(frozen=True, slots=True, kw_only=True)
class AlreadyOurs:
    """The table was taken over from this place before."""

    table: str
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportRefusal:
    """A table that cannot be taken over, and why; nothing of it is left."""

    table: str
    code: str
    message: str
    remedy: str
    findings: list[Finding] = field(default_factory=list)


Outcome = ImportReport | AlreadyOurs | ImportRefusal


def import_tables(
    workers: Runner,
    access: Access,
    places: Mapping[str, str],
    *,
    history: History = "full",
    dry_run: bool = False,
) -> dict[str, Outcome]:
    """Take the tables at these places over, given by name; what came of each.

    One that is refused does not hold the others up. Raises SparkJobError if Spark gave up: then
    some may be imported, and others are when the job is started again.
    """
    wanted = list(places.items())
    slices = 1 if access.metastore().dialect.admits_one_process else None
    facts = workers.run(wanted, partial(_import, access, history, dry_run), slices=slices)
    return {name: _outcome(fact) for (name, _), fact in zip(wanted, facts, strict=True)}


def _import(access: Access, history: History, dry_run: bool, wanted: tuple[str, str]) -> Facts:  # noqa: FBT001 - bound by `partial`
    """Runs in a task."""
    name, place = wanted
    metastore = access.metastore()
    try:
        known = _ours(LogReader(metastore), name, place)
        if known is not None:
            return {"known": {"table": name, "version": known.head_version}}
        source = access.log_store(place).source
        report = import_table(metastore, source, name, history=history, dry_run=dry_run)
    except PermanentError as error:
        found = error.findings if isinstance(error, ImportRefusedError) else []
        refusal = {key: error.as_dict()[key] for key in ("code", "message", "remedy")}
        findings = [finding.as_dict() for finding in found]
        return {"refused": {**refusal, "table": name, "findings": findings}}
    return {"report": asdict(report)}


def _ours(reader: LogReader, name: str, place: str) -> TableRecord | None:
    try:
        record = reader.table(name)
    except TableNotFoundError:
        return None
    is_same = record.location_key == normalise_location(place).key
    return record if is_same and record.state != TableState.IMPORTING else None


def _outcome(fact: Facts) -> Outcome:
    match fact:
        case {"known": known}:
            return AlreadyOurs(**known)
        case {"refused": refused}:
            return msgspec.convert(refused, ImportRefusal)
        case _:
            return _report(fact["report"])


def _report(fact: dict[str, Any]) -> ImportReport:
    findings = msgspec.convert(fact["findings"], list[Finding])
    return ImportReport(**{**fact, "parity": Parity(**fact["parity"]), "findings": findings})
