"""`adopt`: a log that is ahead of SQL is taken over, if all that both know is the same.

SQL was restored to an earlier time, or somebody wrote into the log: the versions beyond SQL's head
become SQL's. Where the two tell different things of one version nothing is adopted, because one
of them would be lost.
"""

from __future__ import annotations

from dataclasses import dataclass

from mirror_assets.delta.log_paths import CommitName, LogEntry, LogListing
from mirror_assets.errors import DivergenceError, LogGapError, TableStateError
from mirror_assets.findings import Finding
from mirror_assets.metastore.adoption import ForeignCommit, read_foreign, reopen, write_foreign
from mirror_assets.metastore.database import Metastore
from mirror_assets.metastore.handover import require_state
from mirror_assets.metastore.heads import TableState
from mirror_assets.metastore.log_facts import LogFacts, read_facts
from mirror_assets.mirror.log_digests import differing
from mirror_assets.storage.log_store import LogStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Adoption:
    """What would become SQL's, or has."""

    table: str
    #: SQL's head before
    head_version: int
    commits: tuple[ForeignCommit, ...]
    findings: tuple[Finding, ...]
    #: whether the table was somebody else's, or half-adopted, before
    is_taken_back: bool

    @property
    def version(self) -> int:
        """SQL's head after it."""
        return self.commits[-1].version if self.commits else self.head_version


def adopt(metastore: Metastore, store: LogStore, name: str, *, apply: bool = False) -> Adoption:
    """Look what the log has beyond SQL; with `apply`, make it SQL's.

    Raises TableNotFoundError, TableStateError, DivergenceError where SQL and the log tell
    different things, LogGapError where commit files are missing, ImportRefusedError for commits
    that cannot be understood; then nothing has changed.
    """
    facts = read_facts(metastore, name)
    states = (TableState.ACTIVE, TableState.RELEASING, TableState.RELEASED, TableState.ADOPTING)
    require_state(facts.table, *states)
    entries = _beyond(store.list(), store, facts)
    foreign = read_foreign(metastore, store.source, facts, entries)
    is_taken_back = facts.table.state != TableState.ACTIVE
    if apply and entries:
        write_foreign(metastore, store.source, facts, entries, foreign)
    elif apply and is_taken_back:
        reopen(metastore, facts)
    return Adoption(
        table=name,
        head_version=facts.table.head_version,
        commits=foreign.commits,
        findings=foreign.findings,
        is_taken_back=is_taken_back,
    )


def _beyond(listing: LogListing, store: LogStore, facts: LogFacts) -> list[LogEntry]:
    """The commit files beyond the head, once all before them is proven to be the same."""
    table, commits = facts.table, listing.commits
    known = [(entry, facts.commits[v]) for v, entry in commits.items() if v in facts.commits]
    for _, commit in differing(store, known):
        raise _diverged(facts, commit.version)
    newest = max([*commits, *listing.checkpoints], default=-1)
    if newest > table.head_version or table.state == TableState.RELEASED:
        _require_common(facts, listing)
    for version in range(table.mirrored_version + 1, newest + 1):
        if version not in commits:
            raise _gap(facts, version, newest)
    return [entry for version, entry in commits.items() if version > table.head_version]


def _require_common(facts: LogFacts, listing: LogListing) -> None:
    """The newest version that SQL knows proves that it is the same table."""
    head, name = facts.table.head_version, facts.table.name
    if head in listing.commits and head in facts.commits:
        return
    message = f"{CommitName(head)} is not there to prove that SQL and the log are one table"
    remedy = (
        f"restore the file; or begin anew: `mirror-assets drop {name} --apply`, then "
        f"`mirror-assets import {facts.table.location} --name {name}`"
    )
    raise TableStateError(message, table=name, version=head, remedy=remedy)


def _diverged(facts: LogFacts, version: int) -> DivergenceError:
    table = facts.table
    unpublished = table.head_version - table.mirrored_version
    message = f"{CommitName(version)} says something else than SQL"
    if version > table.mirrored_version:
        message = f"{message}, whose {unpublished} unpublished versions would be lost"
    remedy = (
        f"`mirror-assets diff {table.name} --version {version}` shows both; "
        f"`mirror-assets fork {table.name} --to URI` lets SQL's history go on at another place, "
        "after which the log here can be imported under another name; nothing was changed"
    )
    return DivergenceError(message, table=table.name, version=version, remedy=remedy)


def _gap(facts: LogFacts, version: int, newest: int) -> LogGapError:
    name = facts.table.name
    message = f"the log goes to version {newest}, and {CommitName(version)} is missing"
    remedy = f"restore the file, or `mirror-assets fork {name} --to URI`; nothing was changed"
    return LogGapError(message, table=name, version=version, remedy=remedy)
