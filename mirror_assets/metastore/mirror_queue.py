"""The mirror's side of the metastore: who publishes what, and what came of it.

A worker claims tables for a while (a lease with a fencing token, by the database's clock), reads
what is pending, and records the outcome under the token. A claim that was lost meanwhile records
nothing: what its holder published is what anybody else would have published.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import stamina
from sqlalchemy import ColumnElement, Connection, Select, and_, select

from mirror_assets.errors import CommitIntegrityError, MirrorAssetsError
from mirror_assets.metastore.commit_reader import Commit, read_pending_commits, stream_commit
from mirror_assets.metastore.database import Metastore
from mirror_assets.metastore.dialect import RetryableError
from mirror_assets.metastore.events import record_event
from mirror_assets.metastore.heads import PUBLISHED_STATES
from mirror_assets.metastore.tables import (
    dl_mirror_status,
    dl_mirror_tables,
    dl_tables,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A table that this worker may publish until its lease ends."""

    table_id: int
    name: str
    location: str
    fence: int
    #: oldest version with a commit: what is older is no file of the log
    first_version: int
    mirrored_version: int
    head_version: int
    failures: int
    #: the database's time of the claim, epoch milliseconds
    claimed_at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """One version in the log."""

    version: int
    #: `put`, or `readback` where only a look at the store could tell
    resolved_by: str
    published_at_ms: int
    lag_ms: int
    #: of a commit to several tables, whose cut may be complete now
    group_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a claim ended before its last version."""

    version: int
    reason_code: str
    message: str
    retry_in_ms: int = 0
    #: the named state in which the table stops; None: it is tried again
    stop_state: str | None = None
    #: whether the version itself was tried, so that its status tells of it
    was_tried: bool = True
    #: for the one who is told: the way out, whether to go it, and whether all tables are concerned
    remedy: str = ""
    needs_a_person: bool = False
    is_of_store: bool = False


@dataclass(slots=True, kw_only=True)
class ClaimResult:
    """What came of a claim."""

    claim: Claim
    published: list[Published] = field(default_factory=list)
    failure: Failure | None = None

    @property
    def mirrored_version(self) -> int:
        """The newest version in the log, as far as this claim knows."""
        return self.published[-1].version if self.published else self.claim.mirrored_version


#: what the database rolled back is done again at once: nothing of it has happened
_again = stamina.retry(
    on=RetryableError, attempts=10, timeout=3.0, wait_initial=0.01, wait_max=0.5, wait_jitter=0.1
)

#: what is to be published next, or why it cannot be read
Pending = list[Commit] | MirrorAssetsError


class MirrorQueue:
    """Claims, pending commits, and the record of what was published."""

    def __init__(self, metastore: Metastore) -> None:
        self._metastore = metastore

    @_again
    def claim(
        self,
        owner: str,
        *,
        tables: Sequence[str] | None,
        limit: int,
        lease_ms: int,
        to_version: int | None = None,
    ) -> list[Claim]:
        """Take up to `limit` tables that have something pending, nobody's lease and no wait."""
        with self._metastore.read() as connection:
            now_ms = self._now_ms(connection)
            if not connection.execute(_claimable(tables, now_ms, to_version).limit(1)).first():
                return []
        with self._metastore.write() as connection:
            now_ms = self._now_ms(connection)
            wanted = self._metastore.dialect.skip_locked(
                _claimable(tables, now_ms, to_version).limit(limit), dl_mirror_tables
            )
            ids = connection.execute(wanted).scalars().all()
            if not ids:
                return []
            connection.execute(
                dl_mirror_tables.update()
                .where(self._metastore.dialect.among(dl_mirror_tables.c.table_id, ids))
                .values(
                    lease_owner=owner,
                    fence=dl_mirror_tables.c.fence + 1,
                    lease_until_ms=now_ms + lease_ms,
                )
            )
            return self._read_claims(connection, ids, now_ms)

    def pending(
        self,
        claims: Sequence[Claim],
        *,
        versions: int,
        max_bytes: int,
        to_version: int | None = None,
    ) -> dict[int, Pending]:
        """The next commits of each claimed table, oldest first: at least one, then a batch.

        A commit larger than `max_bytes` comes without its actions, to be read as a stream. A table
        whose next commit cannot be read has the error in place of commits.
        """
        try:
            found = self._read_pending(claims, versions=versions, max_bytes=max_bytes)
        except MirrorAssetsError:
            raise
        except Exception:  # noqa: BLE001 - some table's rows are broken: find out whose
            return {claim.table_id: self._readable(claim, max_bytes) for claim in claims}
        if to_version is None:
            return dict(found)
        return {t: [c for c in commits if c.version <= to_version] for t, commits in found.items()}

    def _read_pending(
        self, claims: Sequence[Claim], *, versions: int, max_bytes: int
    ) -> dict[int, list[Commit]]:
        with self._metastore.read() as connection:
            return read_pending_commits(
                self._metastore.dialect,
                connection,
                {claim.table_id: claim.mirrored_version for claim in claims},
                versions=versions,
                max_bytes=max_bytes,
            )

    def _readable(self, claim: Claim, max_bytes: int) -> Pending:
        """The next commit of one table, or why it cannot be read."""
        try:
            found = self._read_pending([claim], versions=1, max_bytes=max_bytes)
        except MirrorAssetsError:
            raise
        except self._metastore.dialect.errors as exc:
            return MirrorAssetsError(f"the commit cannot be read: {exc}")
        except Exception as exc:  # noqa: BLE001 - whatever a broken row leads to
            message = f"the commit's rows cannot be read: {type(exc).__name__}: {exc}"
            return CommitIntegrityError(message)
        return found.get(claim.table_id, [])

    def stream(self, claim: Claim, version: int) -> Iterator[bytes]:
        """The bytes of a commit that is too large to hold."""
        with self._metastore.read() as connection:
            yield from stream_commit(connection, claim.table_id, version)

    @_again
    def renew(self, owner: str, *, lease_ms: int) -> None:
        """Prolong the leases that the worker still holds; a lost one stays lost."""
        with self._metastore.write() as connection:
            now_ms = self._now_ms(connection)
            connection.execute(
                dl_mirror_tables.update()
                .where(
                    dl_mirror_tables.c.lease_owner == owner,
                    dl_mirror_tables.c.lease_until_ms > now_ms,
                )
                .values(lease_until_ms=now_ms + lease_ms)
            )

    @_again
    def record(self, results: Sequence[ClaimResult]) -> list[Claim]:
        """Write the outcomes and give the leases back; return the claims that were lost."""
        with self._metastore.write() as connection:
            now_ms = self._now_ms(connection)
            kept = self._give_back_all(connection, results, now_ms)
            held = [r for r in results if r.claim.table_id in kept]
            lost = [r.claim for r in results if r.claim.table_id not in kept]
            self._record_published(connection, held)
            for result in held:
                if result.failure is not None:
                    _record_failure(connection, result.claim, result.failure, now_ms)
        return lost

    def _give_back_all(
        self, connection: Connection, results: Sequence[ClaimResult], now_ms: int
    ) -> set[int]:
        """End the leases that are still ours, those without a failure at once; their tables."""
        kept = {
            r.claim.table_id
            for r in results
            if r.failure is not None and _give_back_failed(connection, r.claim, r.failure, now_ms)
        }
        fences = [(r.claim.table_id, r.claim.fence) for r in results if r.failure is None]
        if not fences:
            return kept
        ours = self._metastore.dialect.pairs(fences)
        update = dl_mirror_tables.update().where(
            dl_mirror_tables.c.table_id == ours.c.first, dl_mirror_tables.c.fence == ours.c.second
        )
        given_back = update.values(
            lease_owner=None, lease_until_ms=now_ms, failures=0, next_attempt_at_ms=0
        ).returning(dl_mirror_tables.c.table_id)
        return kept | set(connection.execute(given_back).scalars())

    def _record_published(self, connection: Connection, results: list[ClaimResult]) -> None:
        rows = [(r.claim.table_id, p) for r in results for p in r.published]
        if not rows:
            return
        self._metastore.dialect.update_rows(
            connection,
            dl_mirror_status,
            keys=("table_id", "version", "artifact"),
            columns=("status", "reason_code", "resolved_by", "published_at_ms", "lag_ms"),
            rows=[
                (
                    table_id,
                    published.version,
                    "commit",
                    "SUCCESS",
                    None,
                    published.resolved_by,
                    published.published_at_ms,
                    published.lag_ms,
                )
                for table_id, published in rows
            ],
        )
        self._metastore.dialect.update_rows(
            connection,
            dl_tables,
            keys=("table_id",),
            columns=("mirrored_version",),
            rows=[(r.claim.table_id, r.mirrored_version) for r in results if r.published],
        )

    def _read_claims(self, connection: Connection, ids: Sequence[int], now_ms: int) -> list[Claim]:
        names = ("name", "location", "first_version", "mirrored_version", "head_version")
        query = (
            select(dl_mirror_tables, *(dl_tables.c[name] for name in names))
            .join(dl_tables, dl_tables.c.table_id == dl_mirror_tables.c.table_id)
            .where(self._metastore.dialect.among(dl_mirror_tables.c.table_id, ids))
            .order_by(dl_mirror_tables.c.table_id)
        )
        return [
            Claim(
                table_id=row["table_id"],
                name=row["name"],
                location=row["location"],
                fence=row["fence"],
                first_version=row["first_version"],
                mirrored_version=row["mirrored_version"],
                head_version=row["head_version"],
                failures=row["failures"],
                claimed_at_ms=now_ms,
            )
            for row in connection.execute(query).mappings()
        ]

    def _now_ms(self, connection: Connection) -> int:
        return int(connection.execute(select(self._metastore.dialect.now_ms())).scalar_one())


def _claimable(
    tables: Sequence[str] | None, now_ms: int, to_version: int | None
) -> Select[tuple[int]]:
    query = (
        select(dl_mirror_tables.c.table_id)
        .join(dl_tables, dl_tables.c.table_id == dl_mirror_tables.c.table_id)
        .where(
            dl_tables.c.head_version > dl_tables.c.mirrored_version,
            dl_tables.c.state.in_(PUBLISHED_STATES),
            dl_mirror_tables.c.state == "OK",
            dl_mirror_tables.c.lease_until_ms <= now_ms,
            dl_mirror_tables.c.next_attempt_at_ms <= now_ms,
        )
    )
    if tables is not None:
        query = query.where(dl_tables.c.name.in_(tables))
    if to_version is not None:
        query = query.where(dl_tables.c.mirrored_version < to_version)
    #: who waited longest comes first, so that a busy table starves none
    return query.order_by(dl_mirror_tables.c.lease_until_ms, dl_mirror_tables.c.table_id)


def _is_held(claim: Claim) -> ColumnElement[bool]:
    return and_(
        dl_mirror_tables.c.table_id == claim.table_id, dl_mirror_tables.c.fence == claim.fence
    )


def _give_back_failed(connection: Connection, claim: Claim, failure: Failure, now_ms: int) -> bool:
    """End the lease, if it is still ours; a lost one changes nothing."""
    values: dict[str, Any] = {
        "lease_owner": None,
        "lease_until_ms": now_ms,
        "failures": claim.failures + 1,
        "next_attempt_at_ms": now_ms + failure.retry_in_ms,
    }
    if failure.stop_state is not None:
        values |= {"state": failure.stop_state, "reason": failure.message}
    held = dl_mirror_tables.update().where(_is_held(claim)).values(values)
    return connection.execute(held.returning(dl_mirror_tables.c.table_id)).first() is not None


def _record_failure(connection: Connection, claim: Claim, failure: Failure, now_ms: int) -> None:
    status = dl_mirror_status
    if not failure.was_tried:
        return
    connection.execute(
        status.update()
        .where(
            status.c.table_id == claim.table_id,
            status.c.version == failure.version,
            status.c.artifact == "commit",
        )
        .values(
            status="FAILED",
            reason_code=failure.reason_code,
            attempts=status.c.attempts + 1,
            next_attempt_at_ms=now_ms + failure.retry_in_ms,
            last_error=failure.message,
        )
    )
    if failure.stop_state is not None:
        record_event(
            connection,
            at_ms=now_ms,
            event=failure.stop_state.lower(),
            table_id=claim.table_id,
            version=failure.version,
            detail=failure.message,
        )
