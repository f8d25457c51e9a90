"""One follower run: waits for the role, publishes while it has it, and hands over.

Two runs stand by; the lease in SQL decides which one is active. The main thread keeps the lease and
the heartbeat, one thread publishes, another reports: neither waits for Dagster's event log but the
last.
"""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from threading import Event, Thread
from typing import Final, Self

import dagster as dg
import structlog

from mirror_assets.defs.heartbeats import LagBeats
from mirror_assets.defs.reporting import Events, report
from mirror_assets.errors import MirrorAssetsError
from mirror_assets.metastore.database import Metastore
from mirror_assets.metastore.followers import beat, leave, read_followers
from mirror_assets.metastore.role_lease import RoleLease
from mirror_assets.mirror.follower import Follower
from mirror_assets.mirror.service import Mirror

ROLE: Final = "dagster-follower"
#: how long the role outlives its holder
_LEASE_MS: Final = 3_000
_TICK_S: Final = 0.5
HEARTBEAT_S: Final = 5.0
#: a follower that is silent for so long is not counted on
SILENT_MS: Final = 20_000
#: a round that takes longer than this does not end by itself
_STUCK_S: Final = 180.0
_REPORT_S: Final = 0.5
#: how often a run asks Dagster whether it was given up
_ASK_S: Final = 30.0
#: events between two looks at the lag: a slow event log must not hold up the heartbeats
_EVENTS: Final = 100

logger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowerName:
    """A follower run as leases and heartbeats call it."""

    run_id: str
    host: str
    pid: int

    @classmethod
    def of_this_process(cls, run_id: str) -> Self:
        return cls(run_id=run_id, host=socket.gethostname(), pid=os.getpid())

    @classmethod
    def parse(cls, owner: str) -> Self | None:
        """None for a follower that Dagster knows nothing of."""
        found = re.fullmatch(r"dagster:([^@]+)@(.+):(\d+)", owner)
        return cls(run_id=found[1], host=found[2], pid=int(found[3])) if found else None

    @property
    def is_gone(self) -> bool:
        """Whether its process is known to have ended; only this host can know."""
        if self.host != socket.gethostname():
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            return False
        return False

    def __str__(self) -> str:
        return f"dagster:{self.run_id}@{self.host}:{self.pid}"


class FollowerRun:
    """What the `follow` job does until its time is over."""

    def __init__(
        self,
        mirror: Mirror,
        *,
        events: Events,
        lag_beats: LagBeats,
        seconds: float,
        say: Callable[[str], None],
        is_wanted: Callable[[], bool],
    ) -> None:
        self._mirror = mirror
        self._events = events
        self._lag_beats = lag_beats
        self._seconds = seconds
        self._say = say
        self._is_wanted = is_wanted
        self._ask_at = 0.0
        self._lease = RoleLease(
            metastore=mirror.metastore, role=ROLE, owner=mirror.owner, lease_ms=_LEASE_MS
        )
        self._started = time.monotonic()
        self._held_until = 0.0
        self._renew_at = 0.0
        self._beat_at = 0.0
        self._file = _identity(mirror.metastore)
        self._work: _Work | None = None
        self.was_active = False

    def run(self, stop: Event) -> None:
        """Until `stop` is set, or another follower can take over after the time is up."""
        self._say(f"{self._mirror.owner} waits for the role")
        try:
            while not stop.wait(_TICK_S) and not self._is_over():
                self.tick()
        finally:
            self._step_down()
            self._leave()

    def tick(self) -> None:
        """Keep the lease and the heartbeat, and begin or end publishing by them."""
        now = time.monotonic()
        if now >= self._renew_at:
            self._renew(now)
        holds = now < self._held_until
        if holds and self._work is None:
            self._say("active: publishing commits as they come")
            self._work = _Work(self._mirror, self._events, self._lag_beats)
            self.was_active = True
        elif not holds and self._work is not None:
            self._say("the role is lost: standing by")
            self._step_down()
        if self._work is not None:
            self._work.require_progress()
        elif now >= self._beat_at:
            self._beat_at = now + HEARTBEAT_S
            self._try(lambda: beat(self._mirror.metastore, self._mirror.owner, '"standby"'))

    def _renew(self, now: float) -> None:
        """While the database does not answer, a lease holds as long as it was given for."""
        self._renew_at = now + (_LEASE_MS / 3000 if self._work else _TICK_S)
        try:
            self._held_until = now + _LEASE_MS / 1000 if self._lease.hold() else 0.0
        except MirrorAssetsError as error:
            logger.warning("lease_not_renewed", owner=self._mirror.owner, error=str(error))

    def _is_over(self) -> bool:
        if _identity(self._mirror.metastore) != self._file:
            self._say("the metastore's file was replaced: a new run looks at the new one")
            return True
        now = time.monotonic()
        if now >= self._ask_at:
            self._ask_at = now + _ASK_S
            if not self._is_wanted():
                self._say("Dagster has ended this run: so does the process")
                return True
        age = now - self._started
        if age < self._seconds or self._work is None:
            return False
        if age > 2 * self._seconds or self._has_successor():
            self._say("the time is up: handing over")
            return True
        return False

    def _has_successor(self) -> bool:
        try:
            beats = read_followers(self._mirror.metastore)
        except MirrorAssetsError:
            return False
        return any(
            found.owner != self._mirror.owner
            and FollowerName.parse(found.owner) is not None
            and found.age_ms < SILENT_MS
            for found in beats
        )

    def _step_down(self) -> None:
        if self._work is not None:
            self._work.end()
            self._work = None

    def _leave(self) -> None:
        self._try(self._lease.release)
        self._try(lambda: leave(self._mirror.metastore, self._mirror.owner))

    def _try(self, action: Callable[[], None]) -> None:
        try:
            action()
        except MirrorAssetsError as error:
            logger.warning("follower_not_heard", owner=self._mirror.owner, error=str(error))


class _Work:
    """Publishing and reporting, each in a thread of its own, while the role is held."""

    def __init__(self, mirror: Mirror, events: Events, lag_beats: LagBeats) -> None:
        self._mirror = mirror
        self._events = events
        self._lag_beats = lag_beats
        self._stop = Event()
        self._follower = Follower(mirror)
        self._seen = (0, time.monotonic())
        self._threads = [
            Thread(target=self._follower.run, args=(self._stop,), name="follower", daemon=True),
            Thread(target=self._report, name="reporter", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def require_progress(self) -> None:
        """Raise for a publisher that died or does not come back: another must take over."""
        now = time.monotonic()
        if self._follower.rounds != self._seen[0]:
            self._seen = (self._follower.rounds, now)
        if not self._threads[0].is_alive() or now - self._seen[1] > _STUCK_S:
            message = f"the publisher did not finish a round for {now - self._seen[1]:.0f} s"
            raise dg.Failure(f"{message}: this run ends, so that another takes over")

    def end(self) -> None:
        """Finish the round that is under way, and report what it published."""
        self._stop.set()
        for thread in self._threads:
            thread.join(_STUCK_S)

    def _report(self) -> None:
        has_more = False
        while True:
            is_last = self._stop.wait(0 if has_more else _REPORT_S)
            try:
                done = report(self._mirror.metastore, self._events, at_most=_EVENTS)
                self._lag_beats.beat(self._mirror.metastore)
                has_more = done >= _EVENTS
            except Exception as error:  # noqa: BLE001 - Dagster's store may fail; publishing goes on
                logger.warning("not_reported", error=f"{type(error).__name__}: {error}")
                has_more = False
                self._stop.wait(HEARTBEAT_S)
            if is_last:
                return


def _identity(metastore: Metastore) -> tuple[int, int] | None:
    """Which file an embedded metastore is; None for a server, or a file that is gone."""
    if metastore.file is None:
        return None
    try:
        found = metastore.file.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
