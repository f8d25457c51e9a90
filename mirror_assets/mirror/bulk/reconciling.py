"""Logs reconciled side by side: a table is a work item, looked at as it is in process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial

import msgspec

from mirror_assets.errors import MirrorAssetsError
from mirror_assets.findings import Finding, Severity
from mirror_assets.metastore.database import Metastore
from mirror_assets.metastore.log_reader import LogReader
from mirror_assets.mirror.bulk.checkpoints import mirror_of
from mirror_assets.mirror.bulk.runner import Facts, Runner
from mirror_assets.mirror.reconciler import Mode, Report, reconcile
from mirror_assets.pipeline.access import Access
from mirror_assets.storage.log_store import LogStore


def reconcile_logs(
    workers: Runner, access: Access, names: Sequence[str], mode: Mode, *, apply: bool = False
) -> list[Report]:
    """Compare the logs of tables with SQL, and with `apply` repair what is provably safe."""
    facts = workers.run(names, partial(_reconcile, access, mode, apply))
    return [msgspec.convert(fact, Report) for fact in facts]


def reconciled(
    metastore: Metastore,
    open_store: Callable[[str], LogStore],
    name: str,
    mode: Mode,
    *,
    apply: bool = False,
) -> Report:
    """One table; that it cannot be looked at is a finding, so that the others are."""
    try:
        store = open_store(LogReader(metastore).table(name).location)
        return reconcile(metastore, store, name, mode, apply=apply)
    except MirrorAssetsError as error:
        finding = Finding(
            rule=error.code,
            severity=Severity.ERROR,
            message=error.message,
            remedy=error.remedy,
            table=name,
            version=error.version,
        )
        return Report(table=name, mode=mode, findings=(finding,), plan=())


def _reconcile(access: Access, mode: Mode, apply: bool, name: str) -> Facts:  # noqa: FBT001 - bound by `partial`
    """Runs in a task."""
    mirror = mirror_of(access)
    return asdict(reconciled(mirror.metastore, mirror.open_store, name, mode, apply=apply))
