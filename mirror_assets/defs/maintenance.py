"""Jobs for people and schedules: reconcile, cleanup, rebuild, verify-store, import, pruning.

What destroys or repairs makes a plan, shows it, and acts only where it is told to. Dagster reads
the annotations of what it runs as objects, so they are not postponed here.
"""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final, Literal

import dagster as dg
from pydantic import Field

from mirror_assets.defs.access import MirrorAccess
from mirror_assets.defs.findings_tables import facts_metadata, findings_metadata, table_metadata
from mirror_assets.defs.partition_keys import prune_keys
from mirror_assets.defs.publishing import as_failure
from mirror_assets.delta.locations import normalise_location
from mirror_assets.errors import LocationError, MirrorAssetsError
from mirror_assets.findings import Finding, Severity
from mirror_assets.metastore.importer import import_table as import_delta_table
from mirror_assets.metastore.log_reader import LogReader
from mirror_assets.metastore.mirror_state import read_mirror_states
from mirror_assets.mirror.cleanup import apply_cleanup, plan_of
from mirror_assets.mirror.rebuild import rebuild as rebuild_log
from mirror_assets.mirror.reconciler import Mode
from mirror_assets.mirror.reconciler import reconcile as reconcile_log
from mirror_assets.mirror.service import Mirror
from mirror_assets.settings import Settings
from mirror_assets.storage.probe import verify_store as probe_store
from mirror_assets.storage.stores import open_store

_PRUNED: Final = 10_000
_SHOWN: Final = 200


class TablesConfig(dg.Config):
    """Which tables."""

    tables: list[str] = Field(default=[], description="names; none given: all")


class ReconcileConfig(TablesConfig):
    """How closely to look, and whether to repair."""

    mode: Literal["incremental", "smart", "full"] = Field(
        default="smart", description="what is new, the whole listing, or every byte"
    )
    apply: bool = Field(default=False, description="make the repairs that are provably safe")


class CleanupConfig(TablesConfig):
    """Which logs, and whether to delete."""

    apply: bool = Field(default=False, description="delete what expired; else only the plan")


class RebuildConfig(dg.Config):
    """What to publish where."""

    table: str = Field(description="the table's name")
    to: str = Field(description="an empty place, as a path or URI")


class VerifyStoreConfig(dg.Config):
    """Which store."""

    location: str = Field(description="a place in the store, as a path or URI")


class ImportConfig(dg.Config):
    """What to take over."""

    location: str = Field(description="the root of an existing Delta table")
    name: str = Field(description="its name from then on, as schema.table")
    dry_run: bool = Field(default=True, description="look, and write nothing")
    history: Literal["full", "checkpoint"] = Field(
        default="full", description="all commits, or those since the newest checkpoint"
    )


@dg.op(description="Compares logs with SQL, and repairs what is provably safe.")
def reconcile_tables(
    context: dg.OpExecutionContext, config: ReconcileConfig, access: MirrorAccess
) -> None:
    """Every table is looked at; those that cannot be are findings."""
    findings: list[Finding] = []
    plan: list[dict[str, Any]] = []
    with access.mirror() as mirror:
        names = _names(mirror, config.tables)
        for name in names:
            try:
                store = _store(mirror, name)
                mode = Mode(config.mode)
                report = reconcile_log(mirror.metastore, store, name, mode, apply=config.apply)
            except MirrorAssetsError as error:
                findings.append(_as_finding(error.at(table=name)))
                continue
            findings += report.findings
            done = [repair.as_dict() for repair in report.applied]
            plan += [
                {**repair.as_dict(), "done": repair.as_dict() in done} for repair in report.plan
            ]
    _show(
        context,
        {"tables": len(names), "repairs": len(plan)},
        findings=findings,
        repairs=plan,
    )
    _fail_on_errors(findings)


@dg.op(description="Lists the log files that expired by a table's retention, or deletes them.")
def clean_tables(
    context: dg.OpExecutionContext, config: CleanupConfig, access: MirrorAccess
) -> None:
    """A table that may not be cleaned now is told, and left for the next time."""
    files: list[dict[str, Any]] = []
    findings: list[Finding] = []
    with access.mirror() as mirror:
        names = _names(mirror, config.tables)
        for name in names:
            try:
                store = _store(mirror, name)
                plan = plan_of(mirror.metastore, store, name)
                if config.apply:
                    apply_cleanup(mirror.metastore, store, name, plan)
            except MirrorAssetsError as error:
                findings.append(_as_finding(error.at(table=name), Severity.WARNING))
                continue
            files += [{"table": name, "file": file, "deleted": config.apply} for file in plan.names]
    facts = {"tables": len(names), "expired_files": len(files)}
    _show(context, facts, findings=findings, files=files)


@dg.op(description="Publishes the whole log of a table from SQL at an empty place.")
def rebuild_table(
    context: dg.OpExecutionContext, config: RebuildConfig, access: MirrorAccess
) -> None:
    """The disaster drill."""
    place = _allowed(config.to, access.settings)
    with access.mirror() as mirror:
        try:
            done = rebuild_log(mirror.metastore, config.table, mirror.open_store(place))
        except MirrorAssetsError as error:
            raise as_failure(error.at(table=config.table)) from error
    facts = {"commits": done.commits, "checkpoints": len(done.checkpoints), "location": place}
    _show(context, facts)


@dg.op(description="Races a store: does it create a file only where there is none?")
def probe_a_store(
    context: dg.OpExecutionContext, config: VerifyStoreConfig, access: MirrorAccess
) -> None:
    """Fails for a store on which two writers could both win."""
    settings = access.settings
    place = _allowed(config.location, settings)
    try:
        report = probe_store(place, settings.store_options(), allowed_roots=settings.allowed_roots)
    except MirrorAssetsError as error:
        raise as_failure(error) from error
    facts = {"safe": str(report.safe), **{k: str(v) for k, v in report.facts.items()}}
    _show(context, facts, findings=list(report.findings))
    _fail_on_errors(list(report.findings))


@dg.op(description="Takes an existing Delta table over, with its history; looks first.")
def import_a_table(
    context: dg.OpExecutionContext, config: ImportConfig, access: MirrorAccess
) -> None:
    """With `dry_run`, the default, nothing is written."""
    settings = access.settings
    place = _allowed(config.location, settings)
    source = open_store(place, settings.store_options(), allowed_roots=()).source
    with access.metastore() as metastore:
        try:
            report = import_delta_table(
                metastore, source, config.name, dry_run=config.dry_run, history=config.history
            )
        except MirrorAssetsError as error:
            raise as_failure(error.at(table=config.name)) from error
    facts = {k: v for k, v in asdict(report).items() if isinstance(v, int | str)}
    _show(context, facts, findings=list(report.findings))


@dg.op(description="Removes partition keys of old published versions; their events stay.")
def prune_partition_keys(context: dg.OpExecutionContext, access: MirrorAccess) -> None:
    """The newest thousand of each table stay, and all that is not published."""
    with access.metastore() as metastore:
        states = read_mirror_states(metastore, percentiles=False)
    pruned = {s.table: len(prune_keys(context.instance, s, at_most=_PRUNED)) for s in states}
    _show(context, {"tables": len(pruned), "keys": sum(pruned.values())})


@dg.job(description="Compare logs with SQL; with `apply`, repair what is provably safe.")
def reconcile() -> None:
    """One op."""
    reconcile_tables()


@dg.job(description="Plan the deletion of expired log files; with `apply`, delete them.")
def cleanup() -> None:
    """One op."""
    clean_tables()


@dg.job(description="Publish a table's whole log from SQL at an empty place (disaster drill).")
def rebuild() -> None:
    """One op."""
    rebuild_table()


@dg.job(description="Race a store before tables are mirrored there.")
def verify_store() -> None:
    """One op."""
    probe_a_store()


@dg.job(description="Take an existing Delta table over; a dry run unless told otherwise.")
def import_table() -> None:
    """One op."""
    import_a_table()


@dg.job(description="Keep the lists of partitions short.")
def prune_partitions() -> None:
    """One op."""
    prune_partition_keys()


JOBS: Final = [reconcile, cleanup, rebuild, verify_store, import_table, prune_partitions]


def _names(mirror: Mirror, wanted: Sequence[str]) -> list[str]:
    reader = LogReader(mirror.metastore)
    if not wanted:
        return [table.name for table in reader.tables()]
    try:
        return [reader.table(name).name for name in wanted]
    except MirrorAssetsError as error:
        raise as_failure(error) from error


def _store(mirror: Mirror, name: str) -> Any:
    return mirror.open_store(LogReader(mirror.metastore).table(name).location)


def _allowed(location: str, settings: Settings) -> str:
    try:
        place = normalise_location(location)
        if not settings.allows(place):
            remedy = "choose a place below one of them, or add it to allowed_roots"
            raise LocationError(f"{place} is outside of the allowed roots", remedy=remedy)
    except MirrorAssetsError as error:
        raise as_failure(error) from error
    return place.uri


def _as_finding(error: MirrorAssetsError, severity: Severity = Severity.ERROR) -> Finding:
    return Finding(
        rule=error.code,
        severity=severity,
        message=error.message,
        remedy=error.remedy,
        table=error.table,
        version=error.version,
    )


def _show(
    context: dg.OpExecutionContext,
    facts: dict[str, Any],
    *,
    findings: Sequence[Finding] = (),
    **tables: Sequence[dict[str, Any]],
) -> None:
    """The result on the run's page: numbers, what was found, what was or would be done."""
    metadata = {**facts_metadata(facts), **findings_metadata(findings)}
    for name, rows in tables.items():
        if rows:
            metadata[name] = table_metadata(rows[:_SHOWN])
    context.add_output_metadata(metadata)
    for finding in findings[:_SHOWN]:
        context.log.warning(
            "%s %s: %s. %s", finding.rule, finding.table, finding.message, finding.remedy
        )
    context.log.info(", ".join(f"{name} {value}" for name, value in facts.items()))


def _fail_on_errors(findings: Sequence[Finding]) -> None:
    errors = [finding for finding in findings if finding.severity is Severity.ERROR]
    if errors:
        first = errors[0]
        description = f"{len(errors)} errors; {first.rule} {first.table or ''}: {first.message}"
        raise dg.Failure(
            description=f"{description}. Remedy: {first.remedy}",
            metadata=findings_metadata(findings),
            allow_retries=False,
        )
