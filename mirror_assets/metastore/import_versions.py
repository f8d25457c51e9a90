"""The row of an imported version: what its commit file says, its place in time, its totals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from mirror_assets.delta.actions import INT64_MAX
from mirror_assets.delta.commit_file import SERIALIZER_VERSION, canonical_json
from mirror_assets.metastore.rows import ACTION_TABLES

if TYPE_CHECKING:
    from mirror_assets.metastore.import_parts import CommitFacts

#: of rows made from a commit file, and of the one that only a checkpoint tells of
SOURCE_IMPORT: Final = "import"
SOURCE_CHECKPOINT: Final = "checkpoint"
#: of commits that others wrote into a log of ours
SOURCE_ADOPT: Final = "adopt"
_COUNTS: Final = {table.name: count for table, count in ACTION_TABLES.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedVersion:
    """A version whose rows are complete."""

    facts: CommitFacts
    #: never before that of an earlier version, so that time travel has one answer
    timestamp_ms: int
    source: str = SOURCE_IMPORT

    @property
    def version(self) -> int:
        return self.facts.version

    @property
    def has_file(self) -> bool:
        """Whether there is a commit file: of the floor maybe not."""
        return bool(self.facts.sha256)

    def row(self, table_id: int, totals: tuple[int, int] | None) -> dict[str, Any]:
        """By the columns of `dl_table_versions`; no totals where the state is not known."""
        facts, info = self.facts, self.facts.info
        files, size = totals or (None, None)
        return {
            "table_id": table_id,
            "version": facts.version,
            "source": self.source if self.has_file else SOURCE_CHECKPOINT,
            "committed_at_ms": facts.mtime_ms,
            "timestamp_ms": self.timestamp_ms,
            "in_commit_timestamp_ms": _number(facts, "inCommitTimestamp"),
            "operation": _text(facts, "operation"),
            "read_version": _number(facts, "readVersion"),
            "is_blind_append": _flag(facts, "isBlindAppend"),
            "isolation_level": _text(facts, "isolationLevel"),
            "commit_info": None if info is None else canonical_json(info.fields).decode(),
            "commit_info_ordinal": facts.info_ordinal,
            "commit_info_raw": facts.info_raw,
            "num_actions": facts.num_actions,
            **{count: facts.counts.get(name, 0) for name, count in _COUNTS.items()},
            "num_files": files,
            "size_bytes": size,
            "sha256": facts.sha256,
            "byte_length": facts.byte_length,
            "serializer_version": SERIALIZER_VERSION,
            "final_newline": facts.final_newline,
            "raw_file": facts.raw_file,
        }

    def status(self, table_id: int, *, is_published: bool) -> dict[str, Any]:
        """By the columns of `dl_mirror_status`: in the log already, or waiting for its mirror."""
        by = "readback" if self.source == SOURCE_ADOPT else "import"
        return {
            "table_id": table_id,
            "version": self.version,
            "artifact": "commit",
            "status": "SUCCESS" if is_published else "PENDING",
            "attempts": 0,
            "sha256": self.facts.sha256,
            "resolved_by": by if is_published else None,
            "published_at_ms": self.facts.mtime_ms if is_published else None,
        }


def timestamp_of(facts: CommitFacts, previous_ms: int | None) -> int:
    """When the version was committed: as it says, as its writer says, as its file says.

    Like Delta, a time that is not after that of the version before is moved behind it.
    """
    said = _number(facts, "inCommitTimestamp")
    said = _number(facts, "timestamp") if said is None else said
    found = facts.mtime_ms if said is None else said
    return found if previous_ms is None else max(found, previous_ms + 1)


def _number(facts: CommitFacts, name: str) -> int | None:
    value = facts.info and facts.info.get(name)
    return value if type(value) is int and abs(value) <= INT64_MAX else None


def _text(facts: CommitFacts, name: str) -> str | None:
    value = facts.info and facts.info.get(name)
    return value if isinstance(value, str) and "\0" not in value else None


def _flag(facts: CommitFacts, name: str) -> bool | None:
    value = facts.info and facts.info.get(name)
    return value if isinstance(value, bool) else None
