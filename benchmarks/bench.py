"""What the subjects share: a directory, a PostgreSQL server that is durable, how much to do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from benchmarks.measuring import PostgresCpu
from benchmarks.samples import a_metastore
from mirror_assets.metastore.database import Metastore
from mirror_assets.storage.options import StoreOptions
from mirror_assets_tests.services import (
    PostgresServer,
    find_postgres_programs,
    start_postgres,
)
from mirror_assets_tests.store_services import S3Server, start_seaweedfs

_NUMBERS: Final = count(1)


@dataclass
class Bench:
    """One run."""

    quick: bool
    directory: Path
    stack: ExitStack = field(repr=False)

    @property
    def rounds(self) -> int:
        """How often the contenders take their turns: many short ones find a calm moment."""
        return 1 if self.quick else 12

    def of(self, full: int, quick: int) -> int:
        """A size, by the kind of run."""
        return quick if self.quick else full

    @cached_property
    def server(self) -> PostgresServer:
        """A server of our own with fsync on, started when first asked for."""
        return self.stack.enter_context(start_postgres(find_postgres_programs(), durable=True))

    @cached_property
    def server_cpu(self) -> PostgresCpu:
        """What the server spends."""
        dsn = self.server.url.set(drivername="postgresql")
        return PostgresCpu.of(dsn.render_as_string(hide_password=False))

    @cached_property
    def s3(self) -> S3Server:
        """A real S3 server of our own, started when first asked for."""
        return self.stack.enter_context(start_seaweedfs())

    def place(self, kind: str) -> tuple[str, StoreOptions]:
        """A new place in a kind of store, `local` or `S3`, as durable as in production."""
        if kind == "local":
            return str(self.path("lake")), StoreOptions()
        return f"s3://{self.s3.bucket}/{next(_NUMBERS)}", self.s3.options()

    def path(self, name: str) -> Path:
        """A path that nothing lies at yet."""
        return self.directory / f"{next(_NUMBERS)}-{name}"

    def url(self, engine: str) -> str:
        """The address of a new database."""
        if engine == "postgresql":
            return self.server.create_database().render_as_string(hide_password=False)
        return f"{engine}:///{self.path(engine)}.db"

    def metastore(self, engine: str) -> Metastore:
        """A metastore in a new database, closed with the run."""
        return self.opened(self.url(engine))

    def opened(self, url: str) -> Metastore:
        """A metastore in the empty database of a URL, closed with the run."""
        metastore = a_metastore(url)
        self.stack.callback(metastore.close)
        return metastore


@contextmanager
def open_bench(*, quick: bool) -> Iterator[Bench]:
    """Make ready; afterwards nothing is left."""
    with TemporaryDirectory(prefix="mirror-assets-bench-") as directory, ExitStack() as stack:
        yield Bench(quick, Path(directory), stack)
