"""`verify-store`: does the store keep the one promise that everything rests on?

Only one of many concurrent creates of a file may win, and a file once created may not change.
Stores that ignore conditions accept them silently, so the only way to know is to race them. The
probe works in a directory of its own below the given place, and removes it afterwards.
"""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Barrier
from typing import Final

import obstore
from obstore.exceptions import BaseError

from mirror_assets.delta.locations import Location, normalise_location
from mirror_assets.delta.log_paths import LOG_DIRECTORY, CommitName, LastCheckpoint
from mirror_assets.errors import (
    ClockSkewError,
    MirrorAssetsError,
    TransientError,
    UnsafeStoreError,
)
from mirror_assets.findings import Finding, Severity
from mirror_assets.storage.clients import clients_of
from mirror_assets.storage.log_store import (
    Created,
    Different,
    LogKey,
    LogStore,
    Put,
)
from mirror_assets.storage.options import StoreOptions
from mirror_assets.storage.stores import open_store
from mirror_assets.storage.translation import translated

#: what the findings are about
RULES: Final = {
    "ST-01": "a create over an existing file is refused, and changes nothing",
    "ST-02": "one of many concurrent creates wins",
    "ST-03": "the winner's bytes are what is stored",
    "ST-04": "a read after a write gives what was written",
    "ST-05": "a listing has what was written, and starts where it is told to",
    "ST-06": "the clocks of this host and of the store agree",
    "ST-07": "the probe can remove its own files",
    "ST-08": "every race is decided",
    "ST-09": "a stale overwrite of the pointer is refused",
}
#: with one of these broken, two writers can both believe to have published a version
_DECISIVE: Final = frozenset({"ST-01", "ST-02", "ST-03", "ST-04"})
_SKEW_WARNING_S: Final = 60
_SKEW_ERROR_S: Final = 300
_LISTED: Final = 12
_USE_ANOTHER: Final = (
    "use a store with atomic conditional writes; or set single_writer for it, and accept that only "
    "SQL's lease keeps writers apart"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeReport:
    """What the probe found; `facts` are measurements for a person to read."""

    location: str
    safe: bool
    findings: tuple[Finding, ...]
    facts: dict[str, str | int | float | bool | None]


def verify_store(
    location: str | Location,
    options: StoreOptions | None = None,
    *,
    allowed_roots: Sequence[str | Location] = (),
    ways: int = 8,
    rounds: int = 5,
) -> ProbeReport:
    """Race, overwrite, list and time the store below the location.

    `safe` is whether conditional creates held in every race. A clock that is off is a finding.
    Raises the errors of a store if it cannot be reached or does not let us.
    """
    place = normalise_location(location) if isinstance(location, str) else location
    name = f"verify-store-{uuid.uuid4()}"
    scratch = normalise_location(f"{place.uri.removesuffix('/')}/{name}")
    store = open_store(scratch, options, allowed_roots=allowed_roots)
    probe = _Probe(store)
    finished = False
    try:
        probe.run(ways, rounds)
        probe.check_stale_overwrite(options or StoreOptions())
        finished = True
    except ClockSkewError as exc:
        probe.find("ST-06", Severity.ERROR, exc.message, exc.remedy)
    except UnsafeStoreError as exc:
        probe.find("ST-01", Severity.ERROR, exc.message, exc.remedy)
    finally:
        probe.clean_up(scratch)
    findings = tuple(probe.findings)
    safe = finished and not any(finding.rule in _DECISIVE for finding in findings)
    return ProbeReport(location=place.uri, safe=safe, findings=findings, facts=probe.facts)


class _Probe:
    """One run: the store under test, and what was found so far."""

    def __init__(self, store: LogStore) -> None:
        self.findings: list[Finding] = []
        self.facts: dict[str, str | int | float | bool | None] = {}
        self._store = store
        self._written: set[LogKey] = set()

    def run(self, ways: int, rounds: int) -> None:
        """All checks, the decisive ones first."""
        self._check_clock()
        self._check_creates()
        self._check_races(ways, rounds)
        self._check_pointer()
        self._check_listing(rounds)

    def find(self, rule: str, severity: Severity, message: str, remedy: str) -> None:
        """Note a finding."""
        self.findings.append(Finding(rule=rule, severity=severity, message=message, remedy=remedy))

    def clean_up(self, scratch: Location) -> None:
        """Remove what was written; a store that lets nobody delete keeps a few small files."""
        left: list[MirrorAssetsError] = []
        for key in sorted(self._written, key=str):
            try:
                self._store.delete(key)
            except MirrorAssetsError as exc:
                left.append(exc)
        if left:
            message = f"{len(left)} files stay in {scratch}: {left[0].message}"
            self.find("ST-07", Severity.WARNING, message, "remove them by hand")
        if scratch.scheme == "file":
            root = Path(scratch.path)
            with suppress(OSError):
                (root / LOG_DIRECTORY).rmdir()
                root.rmdir()

    def _put(self, key: LogKey, data: bytes) -> Put | None:
        """The outcome; None for one that a busy store did not decide."""
        self._written.add(key)
        try:
            return self._store.put_if_absent(key, data)
        except TransientError:
            return None

    def _check_clock(self) -> None:
        key = CommitName(0)
        before = time.time()
        self._written.add(key)
        self._store.put_if_absent(key, b"clock\n")
        after = time.time()
        self.facts["create_ms"] = round((after - before) * 1000, 1)
        entry = self._store.list().commits.get(0)
        if entry is None:
            return  # the check of the listing says so
        # Stores round to seconds, and the file was made at some time in between.
        stored = entry.mtime_ms / 1000
        skew = max(before - 1 - stored, stored - after - 1, 0.0)
        self.facts["clock_skew_s"] = round(skew, 1)
        if skew > _SKEW_WARNING_S:
            severity = Severity.ERROR if skew > _SKEW_ERROR_S else Severity.WARNING
            message = f"this host's clock and the store's are {skew:.0f} s apart"
            self.find("ST-06", severity, message, ClockSkewError.default_remedy)

    def _check_creates(self) -> None:
        key = CommitName(0)
        outcome = self._put(key, b"another\n")
        kept = self._store.read(key) == b"clock\n"
        self.facts["create_over_existing_refused"] = isinstance(outcome, Different) and kept
        if isinstance(outcome, Created) or not kept:
            message = "a create over an existing file was accepted: the store ignores conditions"
            self.find("ST-01", Severity.ERROR, message, _USE_ANOTHER)

    def _check_races(self, ways: int, rounds: int) -> None:
        started = time.monotonic()
        bad: Counter[str] = Counter()
        with ThreadPoolExecutor(ways) as pool:
            for number in range(1, rounds + 1):
                bad.update(self._race(pool, CommitName(number), ways))
        self.facts |= {
            "race_ways": ways,
            "race_rounds": rounds,
            "race_bad_rounds": bad["winners"] + bad["content"],
            "race_seconds": round(time.monotonic() - started, 2),
        }
        if bad["winners"]:
            message = f"{bad['winners']} of {rounds} races of {ways} creates had several winners"
            self.find("ST-02", Severity.ERROR, message, _USE_ANOTHER)
        if bad["content"]:
            message = f"{bad['content']} of {rounds} races left other bytes than the winner's"
            self.find("ST-03", Severity.ERROR, message, _USE_ANOTHER)
        if bad["undecided"]:
            message = f"{bad['undecided']} of {rounds} races had no winner: the store was too busy"
            self.find("ST-08", Severity.WARNING, message, "run verify-store again when it is idle")

    def _race(self, pool: ThreadPoolExecutor, key: CommitName, ways: int) -> list[str]:
        barrier = Barrier(ways)

        def create(number: int) -> Put | None:
            barrier.wait()
            return self._put(key, b"content %d\n" % number)

        outcomes = list(pool.map(create, range(ways)))
        winners = [number for number, outcome in enumerate(outcomes) if outcome == Created()]
        if len(winners) > 1:
            return ["winners"]
        found = self._store.read(key)
        if not winners:
            # Every reply was lost or refused; what is there must still be one writer's.
            whole = found is None or found in {b"content %d\n" % n for n in range(ways)}
            return ["undecided"] if whole else ["content"]
        return [] if found == b"content %d\n" % winners[0] else ["content"]

    def _check_pointer(self) -> None:
        """Reads after overwrites give the newest."""
        pointer = LastCheckpoint()
        self._written.add(pointer)
        for number in range(5):
            data = b"%d\n" % number
            self._store.replace(pointer, data)
            found = self._store.read(pointer)
            if found != data:
                message = f"a read after an overwrite gave {found!r} and not {data!r}"
                remedy = "use a store with reads after writes, without a cache before it"
                self.find("ST-04", Severity.ERROR, message, remedy)
                break

    def check_stale_overwrite(self, options: StoreOptions) -> None:
        """Whether the store refuses to overwrite what has changed since; nothing rests on it."""
        place = self._store.location
        if place.scheme == "file":
            return  # by a lock of ours, not by the store
        client = clients_of(place, options).once
        key = f"{place.path}/{LOG_DIRECTORY}/{LastCheckpoint()}".lstrip("/")
        with translated(place, "overwrite the pointer"):
            stale = obstore.head(client, key)["e_tag"]
            obstore.put(client, key, b"fresh\n", mode="overwrite", use_multipart=False)
            try:
                obstore.put(client, key, b"stale\n", mode={"e_tag": stale}, use_multipart=False)
            except BaseError as exc:
                self.facts["stale_overwrite"] = f"refused ({type(exc).__name__})"
                return
        self.facts["stale_overwrite"] = "accepted"
        remedy = "nothing to do: the lease in SQL keeps pointers in order"
        self.find("ST-09", Severity.INFO, "a stale overwrite was accepted", remedy)

    def _check_listing(self, rounds: int) -> None:
        first = rounds + 1
        wanted = range(first, first + _LISTED)
        for version in wanted:
            self._written.add(CommitName(version))
            data = b"%d\n" % version
            self._store.put_if_absent(CommitName(version), data)
            if self._store.size(CommitName(version)) != len(data):
                message = f"{CommitName(version)} was not there right after it was created"
                self.find("ST-04", Severity.ERROR, message, "use a store with reads after writes")
        listed = self._store.list().commits
        lagging = sum(version not in listed for version in wanted)
        tail = list(self._store.list(after=wanted[-4]).commits)
        self.facts["listed_at_once"] = lagging == 0
        if lagging or tail != list(wanted[-3:]):
            message = f"a listing lags or starts at the wrong name: {lagging} missing, tail {tail}"
            remedy = "publishing is safe; reconcile asks for each file, which takes longer"
            self.find("ST-05", Severity.WARNING, message, remedy)
