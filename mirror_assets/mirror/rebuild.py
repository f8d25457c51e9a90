"""`rebuild`: the whole log from SQL, at a place that holds none (the disaster drill).

Commit files are byte for byte those of the table's own log. Where SQL does not know the beginning,
a checkpoint of the oldest known version stands for it, as it does after a cleanup.
"""

from __future__ import annotations

from dataclasses import dataclass

from mirror_assets.errors import TableExistsError, UnsupportedTableError
from mirror_assets.metastore.checkpoint_source import CheckpointSource
from mirror_assets.metastore.database import Metastore
from mirror_assets.metastore.log_facts import LogFacts, read_facts
from mirror_assets.mirror.checkpointer import publish_checkpoint
from mirror_assets.mirror.republishing import publish_commits
from mirror_assets.storage.log_store import LogStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuilt:
    """What was written: the number of commit files, and the versions of the checkpoints."""

    commits: int
    checkpoints: tuple[int, ...]
    #: why the head has no checkpoint: they are not ours to write
    no_checkpoint: str | None = None


def rebuild(metastore: Metastore, name: str, store: LogStore) -> Rebuilt:
    """Publish all commits in order, then a checkpoint of the head.

    A table whose checkpoints are not ours to write has none, unless its log cannot begin without
    one: then UnsupportedTableError is raised, and nothing written. Raises TableNotFoundError, and
    TableExistsError where a log lies already.
    """
    facts = read_facts(metastore, name)
    base, head = _base(facts), facts.table.head_version
    unsupported = _unsupported(metastore, facts)
    if unsupported and base > 0:
        raise unsupported
    _require_empty(store, name)
    versions, wanted = list(facts.commits), {head}
    commits = sum(1 for _ in publish_commits(metastore, store, facts, _until(versions, base)))
    if base > 0:
        wanted.add(base)
        publish_checkpoint(
            metastore, store, name, base, now_ms=facts.now_ms, alone=base not in facts.commits
        )
    commits += sum(1 for _ in publish_commits(metastore, store, facts, _after(versions, base)))
    if unsupported:
        return Rebuilt(commits=commits, checkpoints=(), no_checkpoint=unsupported.message)
    if head > base or head == 0:
        publish_checkpoint(metastore, store, name, head, now_ms=facts.now_ms)
    return Rebuilt(commits=commits, checkpoints=tuple(sorted(wanted)))


def _base(facts: LogFacts) -> int:
    """The oldest version with a commit file whose state is known; 0 with the whole history.

    Without any commit file it is the head, whose checkpoint is then the whole log.
    """
    table = facts.table
    return min(max(table.first_version, table.floor_version), table.head_version)


def _unsupported(metastore: Metastore, facts: LogFacts) -> UnsupportedTableError | None:
    name, head = facts.table.name, facts.table.head_version
    try:
        CheckpointSource.open(metastore, name, head, now_ms=facts.now_ms).require_allowed()
    except UnsupportedTableError as error:
        return error
    return None


def _require_empty(store: LogStore, name: str) -> None:
    if not store.list().is_empty:
        message = f"there are files of a log at {store.location} already"
        raise TableExistsError(message, table=name, remedy="give an empty place")


def _until(versions: list[int], base: int) -> list[int]:
    return [version for version in versions if version <= base]


def _after(versions: list[int], base: int) -> list[int]:
    return [version for version in versions if version > base]
