"""Logs reconciled: many side by side, a table a work item; or the commit files of a large one.

Either way a table is looked at as it is in process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from functools import partial
from typing import Final

import msgspec

from mirror_assets.delta.log_paths import CommitName, LogEntry
from mirror_assets.errors import MirrorAssetsError
from mirror_assets.findings import Finding, Severity
from mirror_assets.metastore.database import Metastore
from mirror_assets.metastore.log_facts import CommitFact, read_commit_facts
from mirror_assets.metastore.log_reader import LogReader
from mirror_assets.mirror.bulk.checkpoints import mirror_of
from mirror_assets.mirror.bulk.runner import Facts, Runner
from mirror_assets.mirror.log_digests import Differing, differing
from mirror_assets.mirror.reconciler import Mode, Report, reconcile
from mirror_assets.pipeline.access import Access
from mirror_assets.storage.log_store import LogStore

#: commit files that a task reads of a large table
_FILES_PER_ITEM: Final = 10_000


def reconcile_logs(
    workers: Runner, access: Access, names: Sequence[str], mode: Mode, *, apply: bool = False
) -> list[Report]:
    """Compare the logs of tables with SQL, and with `apply` repair what is provably safe.

    Of a single table, spans of commit files are the items; the rest is looked at here.
    """
    if len(names) == 1:
        mirror, read_all = mirror_of(access), partial(_differing, workers, access, names[0])
        given = (mirror.metastore, mirror.open_store, names[0], mode)
        return [reconciled(*given, apply=apply, read_all=read_all)]
    facts = workers.run(names, partial(_reconcile, access, mode, apply))
    return [msgspec.convert(fact, Report) for fact in facts]


def reconciled(
    metastore: Metastore,
    open_store: Callable[[str], LogStore],
    name: str,
    mode: Mode,
    *,
    apply: bool = False,
    read_all: Differing = differing,
) -> Report:
    """One table; that it cannot be looked at is a finding, so that the others are."""
    try:
        store = open_store(LogReader(metastore).table(name).location)
        return reconcile(metastore, store, name, mode, apply=apply, read_all=read_all)
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


def _differing(
    workers: Runner,
    access: Access,
    name: str,
    store: LogStore,
    files: Iterable[tuple[LogEntry, CommitFact]],
) -> list[tuple[LogEntry, CommitFact]]:
    """As `differing` in process: the tasks ask SQL for their commits, and answer with versions."""
    del store
    asked = sorted(files, key=lambda file: file[1].version)
    spans = [
        (asked[start][1].version, asked[start : start + _FILES_PER_ITEM][-1][1].version)
        for start in range(0, len(asked), _FILES_PER_ITEM)
    ]
    facts = workers.run(spans, partial(_differing_in, access, name))
    others = {version for fact in facts for version in fact["versions"]}
    return [file for file in asked if file[1].version in others]


def _differing_in(access: Access, name: str, span: tuple[int, int]) -> Facts:
    """Runs in a task."""
    metastore = access.metastore()
    store = access.log_store(LogReader(metastore).table(name).location)
    files = [(_entry(fact), fact) for fact in read_commit_facts(metastore, name, *span)]
    return {"versions": [fact.version for _, fact in differing(store, files)]}


def _entry(fact: CommitFact) -> LogEntry:
    """As the store would list it; that it has another size was seen where it was listed."""
    path = CommitName(fact.version)
    return LogEntry(path=path, size=fact.byte_length, mtime_ms=fact.timestamp_ms)
