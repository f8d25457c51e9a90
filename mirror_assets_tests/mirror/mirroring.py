"""Tables mirrored in this process, stores that fail on demand, and what must hold after."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Any

from sqlalchemy import select

from mirror_assets.delta.log_paths import CommitName
from mirror_assets.metastore.log_reader import LogReader
from mirror_assets.metastore.mirror_state import MirrorState, read_mirror_states
from mirror_assets.metastore.tables import dl_mirror_tables
from mirror_assets.mirror.engine import EngineSettings
from mirror_assets.mirror.service import Mirror
from mirror_assets.storage.log_store import digest
from mirror_assets.storage.options import StoreOptions
from mirror_assets.storage.stores import open_store
from mirror_assets_tests.builders import a_table, add, commit

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirror_assets.metastore.database import Metastore
    from mirror_assets.storage.log_store import LogStore

SOON = EngineSettings(lease_ms=1_000)


@dataclass
class Flaky:
    """A store that does what the script says before it does its work: one entry per write."""

    inner: LogStore
    script: list[Exception | None] = field(default_factory=list)
    puts: Counter[str] = field(default_factory=Counter)
    asked: int = 0
    before: Callable[[], None] | None = None
    _lock: Lock = field(default_factory=Lock)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def put_if_absent(self, path: Any, data: bytes, **options: Any) -> Any:
        with self._lock:
            self.asked += 1
            error = self.script.pop(0) if self.script else None
        if self.before is not None:
            self.before()
        if error is not None:
            raise error
        self.puts[path.name] += 1
        return self.inner.put_if_absent(path, data, **options)


@dataclass
class World:
    """A metastore, and a place below which its tables live in one kind of store."""

    metastore: Metastore
    root: str
    options: StoreOptions

    def table(self, name: str, *, commits: int = 0, **members: Any) -> str:
        a_table(self.metastore, name, location=self.location(name), **members)
        for number in range(1, commits + 1):
            commit(self.metastore, name, add(f"f-{number}.parquet"))
        return name

    def location(self, name: str) -> str:
        return f"{self.root}/{name}"

    def store(self, name: str) -> LogStore:
        return open_store(self.location(name), self.options, allowed_roots=())

    def mirror(self, **options: Any) -> Mirror:
        return Mirror(self.metastore, **{"options": self.options, "settings": SOON} | options)

    def flaky_mirror(self, store: Flaky, **options: Any) -> Mirror:
        return self.mirror(open_log=lambda _: store, **options)

    def state(self, name: str) -> MirrorState:
        (found,) = read_mirror_states(self.metastore, [name])
        return found

    def foreign(self, name: str, version: int, data: bytes = b'{"commitInfo":{}}\n') -> None:
        """Somebody else writes a commit file."""
        self.store(name).put_if_absent(CommitName(version), data)

    def assert_mirrored(self, *names: str) -> None:
        """Every version is in the log with its digest, nothing else is, and SQL says so."""
        for name in names:
            expected = {c.version: c.sha256 for c in LogReader(self.metastore).commits(name)}
            assert store_digests(self.store(name)) == expected, name
            rows = LogReader(self.metastore).history(name)
            assert {row["mirror_status"] for row in rows} == {"SUCCESS"}, name
            assert self.state(name).mirrored_version == max(expected)

    def forget_wait(self) -> None:
        """Let what waits be tried at once."""
        with self.metastore.write() as connection:
            connection.execute(dl_mirror_tables.update().values(next_attempt_at_ms=0))

    def fence(self) -> list[int]:
        with self.metastore.read() as connection:
            return list(connection.execute(select(dl_mirror_tables.c.fence)).scalars())


def store_digests(store: LogStore) -> dict[int, str]:
    return {
        version: digest(store.read(CommitName(version)) or b"") for version in store.list().commits
    }
