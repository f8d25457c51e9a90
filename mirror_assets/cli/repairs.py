"""`cleanup`, `reconcile`, `rebuild` and `diff`: a log looked after by an operator."""

# ruff: noqa: PLC0415 - heavy modules are imported when a command runs; session.py says why

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from mirror_assets.cli.engines import Engine, choose_for_reconcile, spark_workers
from mirror_assets.cli.exits import ExitCode
from mirror_assets.cli.session import Session
from mirror_assets.delta.actions import INT64_MAX
from mirror_assets.findings import Finding, Severity

if TYPE_CHECKING:
    from mirror_assets.mirror.reconciler import Report
    from mirror_assets.storage.log_store import LogStore

_Name = Annotated[str, typer.Argument(metavar="NAME", help="The table.")]


class ReconcileMode(StrEnum):
    """How much is looked at."""

    INCREMENTAL = "incremental"
    SMART = "smart"
    FULL = "full"


def cleanup(
    session: Session,
    *,
    name: _Name,
    apply: Annotated[bool, typer.Option("--apply", help="Delete; else only the plan.")] = False,
) -> ExitCode:
    """List the log files that have expired by the table's retention, or delete them."""
    from mirror_assets.mirror.cleanup import apply_cleanup, plan_of

    store = _store(session, name)
    plan = plan_of(session.metastore, store, name)
    if apply:
        apply_cleanup(session.metastore, store, name, plan)
    document = {
        "table": name,
        "delete": plan.names,
        "keep_from": plan.keep_from,
        "reason": plan.reason,
        "applied": apply,
    }
    title = f"{'deleted' if apply else 'would be deleted'}: {len(plan.delete)} files"
    session.output.record(document, title)
    return ExitCode.CLEAN


def reconcile(
    session: Session,
    *,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="The tables; all by default.")
    ] = None,
    mode: Annotated[
        ReconcileMode, typer.Option(help="What is new, the whole listing, or every byte.")
    ] = ReconcileMode.SMART,
    apply: Annotated[
        bool, typer.Option("--apply", help="Make the planned repairs; else only the plan.")
    ] = False,
    engine: Annotated[
        Engine, typer.Option(help="In this process (arrow), by Spark, or by size.")
    ] = Engine.AUTO,
) -> ExitCode:
    """Compare logs with SQL, and repair what is provably safe."""
    from mirror_assets.mirror.reconciler import highest

    tables = [session.reader.table(name).name for name in names or ()]
    tables = tables or [record.name for record in session.reader.tables()]
    choice = choose_for_reconcile(session, engine, tables, reads_all=mode is ReconcileMode.FULL)
    reports = _reconciled(session, tables, mode, choice.engine, apply=apply)
    findings = [finding for report in reports for finding in report.findings]
    next_mode = highest([report.recommended_next_mode for report in reports])
    document = {
        "findings": [finding.as_dict() for finding in findings],
        "plan": [repair.as_dict() for report in reports for repair in report.plan],
        "applied": [repair.as_dict() for report in reports for repair in report.applied],
        "recommended_next_mode": next_mode.value,
        **choice.as_dict(),
    }
    session.output.findings(findings)
    session.output.record(document, f"{len(reports)} tables compared")
    return _ended(findings)


def rebuild(
    session: Session,
    *,
    name: _Name,
    to: Annotated[str, typer.Option("--to", metavar="URI", help="An empty place.")],
) -> ExitCode:
    """Publish the whole log of a table from SQL at an empty place."""
    from mirror_assets.cli.locations import require_location
    from mirror_assets.mirror.rebuild import rebuild as rebuild_log

    session.reader.table(name)
    place = require_location(to, session.settings)
    store = session.mirror.open_store(place.uri)
    done = rebuild_log(session.metastore, name, store)
    document = {
        "table": name,
        "location": place.uri,
        "commits": done.commits,
        "checkpoints": list(done.checkpoints),
        "no_checkpoint": done.no_checkpoint,
    }
    if done.no_checkpoint:
        session.output.note(f"{done.no_checkpoint}; readers take the commit files")
    session.output.record(document, f"rebuilt {name}")
    return ExitCode.CLEAN


def diff(
    session: Session,
    *,
    name: _Name,
    version: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=INT64_MAX,
            metavar="N",
            help="At this version; the first that differs if not.",
        ),
    ] = None,
) -> ExitCode:
    """Show what differs between SQL and the log, action by action."""
    from mirror_assets.mirror.log_diff import diff_log

    findings = diff_log(session.metastore, _store(session, name), name, version)
    session.output.rows(
        {"table": name, "findings": [finding.as_dict() for finding in findings]},
        "findings",
        ("version", "severity", "message"),
        title=f"{name}: SQL and the log",
        empty="SQL and the log agree",
    )
    return _ended(findings)


def _reconciled(
    session: Session, tables: list[str], mode: ReconcileMode, engine: Engine, *, apply: bool
) -> list[Report]:
    from mirror_assets.mirror.bulk.reconciling import reconcile_logs, reconciled
    from mirror_assets.mirror.reconciler import Mode

    wanted = Mode(mode.value)
    if engine is Engine.SPARK:
        with spark_workers(session) as (workers, access):
            return reconcile_logs(workers, access, tables, wanted, apply=apply)
    open_store = session.mirror.open_store
    return [reconciled(session.metastore, open_store, name, wanted, apply=apply) for name in tables]


def _store(session: Session, name: str) -> LogStore:
    return session.mirror.open_store(session.reader.table(name).location)


def _ended(findings: list[Finding]) -> ExitCode:
    has_errors = any(finding.severity is Severity.ERROR for finding in findings)
    return ExitCode.REFUSED if has_errors else ExitCode.CLEAN
