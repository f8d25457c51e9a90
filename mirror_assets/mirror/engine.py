"""The mirror: publishes ratified commits as commit files, in order, exactly once in effect.

    claim -> require v-1 -> encode, compare digest -> one conditional PUT -> record under the fence

A commit's content is frozen in SQL, so anybody may publish it and twice is the same as once. What
the store holds is read back whenever its answer leaves a doubt, and never overwritten. Tables are
published side by side, the versions of one table strictly one after the other, and those of a
commit to several tables together.
"""

from __future__ import annotations

import hashlib
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event, Thread

import structlog

from mirror_assets.delta.log_paths import CommitName
from mirror_assets.errors import (
    CommitIntegrityError,
    DivergenceError,
    LogGapError,
    MirrorAheadError,
    MirrorAssetsError,
)
from mirror_assets.metastore.commit_reader import Commit
from mirror_assets.metastore.mirror_queue import (
    Claim,
    ClaimResult,
    MirrorQueue,
    Pending,
    Published,
)
from mirror_assets.mirror.breakers import BreakerOpenError, Breakers
from mirror_assets.mirror.log_diff import describe_commit, summarise
from mirror_assets.mirror.publish_order import Step, publish_order
from mirror_assets.mirror.resilience import failure_of
from mirror_assets.storage.log_store import Different, LogStore, Put, digest

logger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """Bounds of one round."""

    #: tables claimed together, and versions of each
    tables: int = 500
    versions: int = 100
    threads: int = 8
    #: how long a claim outlives its worker; a working one renews it
    lease_ms: int = 4_000
    #: how long a round goes on publishing before it records what it has; the rest is given back
    round_ms: int = 5_000
    #: actions of one table held in memory; a larger commit goes through a file
    batch_bytes: int = 32 * 1024 * 1024


class MirrorEngine:
    """Publishes what is pending."""

    def __init__(
        self,
        queue: MirrorQueue,
        open_store: Callable[[str], LogStore],
        breakers: Breakers,
        *,
        owner: str,
        settings: EngineSettings | None = None,
    ) -> None:
        self._queue = queue
        self._open_store = open_store
        self._breakers = breakers
        self._owner = owner
        self._settings = settings or EngineSettings()
        #: by table, the fence and version this worker left: nobody else was there since
        self._left: dict[int, tuple[int, int]] = {}

    def run_once(
        self,
        tables: Sequence[str] | None = None,
        *,
        to_version: int | None = None,
        stop: Event | None = None,
    ) -> list[ClaimResult]:
        """Claim what is pending, publish a batch of each table, record it.

        Once `stop` is set no further table is begun; all are recorded and given back.
        """
        settings, began = self._settings, time.monotonic()
        claims = self._queue.claim(
            self._owner,
            tables=tables,
            limit=settings.tables,
            lease_ms=settings.lease_ms,
            to_version=to_version,
        )
        pending = self._queue.pending(
            claims,
            versions=settings.versions,
            max_bytes=settings.batch_bytes,
            to_version=to_version,
        )
        rest = _Rest(stop, settings.round_ms, began)
        results = {claim.table_id: ClaimResult(claim=claim) for claim in claims}
        with self._leases_renewed(claims):
            self._publish_all(results, pending, rest)
        lost = self._queue.record(list(results.values()))
        for result in results.values():
            self._remember(result, lost=result.claim in lost)
        return list(results.values())

    def run_until_idle(
        self, tables: Sequence[str] | None = None, *, to_version: int | None = None
    ) -> list[ClaimResult]:
        """Round after round, until nothing that can be published now is left."""
        results: list[ClaimResult] = []
        while batch := self.run_once(tables, to_version=to_version):
            results.extend(batch)
        return results

    @contextmanager
    def _leases_renewed(self, claims: Sequence[Claim]) -> Iterator[None]:
        """Keep the claims while this process lives; a stopped or dead one loses them."""
        done = Event()
        lease_ms = self._settings.lease_ms

        def renew() -> None:
            while not done.wait(lease_ms / 3000):
                try:
                    self._queue.renew(self._owner, lease_ms=lease_ms)
                except MirrorAssetsError as error:
                    logger.warning("lease_not_renewed", owner=self._owner, error=str(error))

        thread = Thread(target=renew, name="lease-renewal", daemon=True)
        if claims:
            thread.start()
        try:
            yield
        finally:
            done.set()
            if claims:
                thread.join()

    def _publish_all(
        self, results: Mapping[int, ClaimResult], pending: Mapping[int, Pending], rest: _Rest
    ) -> None:
        """All tables side by side, but versions that were committed together, together."""
        works = {
            table_id: self._publishing(result, pending.get(table_id, []), rest)
            for table_id, result in results.items()
        }
        order = publish_order({table_id: _groups(pending.get(table_id)) for table_id in results})
        threads = self._settings.threads
        with ThreadPoolExecutor(threads) as tables, ThreadPoolExecutor(threads) as members:
            for _ in tables.map(lambda steps: _take(steps, works, rest, members), order):
                pass

    def _publishing(
        self, result: ClaimResult, pending: Pending, rest: _Rest
    ) -> Generator[None, None, None]:
        """Publish a table's versions one by one, each time somebody asks for the next."""
        claim = result.claim
        try:
            with self._breakers.guard(claim.location):
                commits = _in_order(claim, pending)
                store = self._open_store(claim.location)
                self._require_predecessor(store, claim, commits)
                for commit in commits:
                    put = self._put(store, claim, commit)
                    result.published.append(_published(claim, commit, put, rest.elapsed_ms))
                    try:
                        yield
                    except GeneratorExit:  # the round is over; so far all went well
                        return
        except MirrorAssetsError as error:
            self._fail(result, error)
        except Exception as error:  # the edge of a table: the others go on
            logger.exception("unexpected_failure", table=claim.name)
            self._fail(result, MirrorAssetsError(f"unexpected {type(error).__name__}: {error}"))

    def _fail(self, result: ClaimResult, error: MirrorAssetsError) -> None:
        version = result.mirrored_version + 1
        error.at(table=result.claim.name, version=version)
        failure = failure_of(error, version, result.claim.failures)
        result.failure = replace(failure, was_tried=not isinstance(error, BreakerOpenError))

    def _put(self, store: LogStore, claim: Claim, commit: Commit) -> Put:
        """One conditional PUT of bytes that have the frozen digest."""
        name = CommitName(commit.version)
        if commit.file is None:
            put = self._put_large(store, claim, commit)
        else:
            data = commit.encode(claim.name)
            put = store.put_if_absent(name, data, mtime_ms=commit.timestamp_ms)
        if isinstance(put, Different):
            message = f"{name} holds {put.found_size} other bytes (SHA-256 {put.found_sha256})"
            raise DivergenceError(message + _difference(store, commit), version=commit.version)
        return put

    def _put_large(self, store: LogStore, claim: Claim, commit: Commit) -> Put:
        with tempfile.TemporaryDirectory(prefix="mirror-assets-") as directory:
            path = Path(directory) / "commit"
            found = hashlib.sha256()
            with path.open("wb") as file:
                for piece in self._queue.stream(claim, commit.version):
                    found.update(piece)
                    file.write(piece)
            if found.hexdigest() != commit.sha256:
                message = "the commit's rows do not give the bytes that were committed"
                raise CommitIntegrityError(message, version=commit.version)
            return store.put_file_if_absent(CommitName(commit.version), path)

    def _require_predecessor(
        self, store: LogStore, claim: Claim, commits: Sequence[Commit]
    ) -> None:
        """Version v-1 is in the log, and nothing foreign lies beyond it.

        Looked up unless this worker itself left the table so, or it is new: its place was looked
        at when it was registered, a foreign version 0 is met by the create of ours, and what else
        may lie there is looked for before version 1.
        """
        mirrored = claim.mirrored_version
        is_new = claim.head_version == 0
        if is_new or self._left.get(claim.table_id) == (claim.fence - 1, mirrored):
            return
        beyond = store.list(after=max(mirrored - 1, -1)).commits
        newest = beyond.get(mirrored)
        is_there = newest.size if newest else store.size(CommitName(mirrored))
        if mirrored >= claim.first_version and not is_there:
            message = f"{CommitName(mirrored)}, which was published, is gone"
            raise LogGapError(message, version=mirrored)
        for commit in commits:
            if commit.version in beyond:
                _require_same(store, commit)
        if beyond and max(beyond) > claim.head_version:
            first = min(version for version in beyond if version > claim.head_version)
            found = describe_commit(store.read(CommitName(first)) or b"")
            message = f"the log goes to version {max(beyond)}, SQL only to {claim.head_version}"
            raise MirrorAheadError(f"{message}; {first} is {found}", version=max(beyond))

    def _remember(self, result: ClaimResult, *, lost: bool) -> None:
        was_looked_at = result.claim.head_version > 0
        if was_looked_at and result.published and result.failure is None and not lost:
            self._left[result.claim.table_id] = (result.claim.fence, result.mirrored_version)
        else:
            self._left.pop(result.claim.table_id, None)


class _Rest:
    """Whether a round should come to its end: it was long enough, or somebody said stop."""

    def __init__(self, stop: Event | None, round_ms: int, began: float) -> None:
        self._stop = stop
        self._began = began
        self._end = began + round_ms / 1000

    @property
    def elapsed_ms(self) -> int:
        """Since the round began, which is when the tables were claimed."""
        return int((time.monotonic() - self._began) * 1000)

    @property
    def is_over(self) -> bool:
        return time.monotonic() > self._end or (self._stop is not None and self._stop.is_set())


def _groups(pending: Pending | None) -> list[str | None]:
    """The group of each version; what cannot be read is one step, which says so."""
    if not pending or isinstance(pending, MirrorAssetsError):
        return [None]
    return [commit.group_id for commit in pending]


def _take(
    steps: Sequence[Step],
    works: Mapping[int, Generator[None, None, None]],
    rest: _Rest,
    members: ThreadPoolExecutor,
) -> None:
    """Step by step until the round is over; a table that failed takes no further part."""
    for step in steps:
        if rest.is_over:
            break
        if len(step) == 1:
            next(works[step[0]], None)
        else:
            for _ in members.map(lambda table_id: next(works[table_id], None), step):
                pass
    for table_id in {table_id for step in steps for table_id in step}:
        works[table_id].close()


def _in_order(claim: Claim, pending: Pending) -> Sequence[Commit]:
    """The commits, which follow the mirrored version without a gap."""
    if isinstance(pending, MirrorAssetsError):
        raise pending
    expected = range(claim.mirrored_version + 1, claim.mirrored_version + 1 + len(pending))
    if not pending or [commit.version for commit in pending] != list(expected):
        message = f"SQL has no commit of version {claim.mirrored_version + 1}, or a gap behind it"
        raise CommitIntegrityError(message, version=claim.mirrored_version + 1)
    return pending


def _require_same(store: LogStore, commit: Commit) -> None:
    data = store.read(CommitName(commit.version))
    if data is not None and digest(data) != commit.sha256:
        message = f"{CommitName(commit.version)} holds {len(data)} other bytes"
        raise DivergenceError(message + _difference(store, commit), version=commit.version)


def _difference(store: LogStore, commit: Commit) -> str:
    """The first differences, action by action; nothing for a commit too large to hold."""
    if commit.file is None:
        return ""
    in_log = store.read(CommitName(commit.version)) or b""
    return f": {summarise(commit.file.encode(), in_log)}"


def _published(claim: Claim, commit: Commit, put: Put, elapsed_ms: int) -> Published:
    """Times by the database's clock, at which the claim began."""
    now_ms = claim.claimed_at_ms + elapsed_ms
    return Published(
        version=commit.version,
        resolved_by="readback" if isinstance(put, Different) else put.resolved_by,
        published_at_ms=now_ms,
        lag_ms=max(0, now_ms - commit.committed_at_ms),
        group_id=commit.group_id,
    )
