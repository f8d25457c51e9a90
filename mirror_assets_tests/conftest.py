"""Fixtures that every part of the suite shares: databases, stores, corpora, hypothesis.

A metastore test asks for `metastore_url` and runs on every engine. PostgreSQL is started once
per test process, when the first test asks for it; databases are per test.
"""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from mirror_assets.metastore.database import Metastore
from mirror_assets.metastore.log_reader import LogReader
from mirror_assets.metastore.log_writer import SqlTxnLogWriter
from mirror_assets.storage.options import StoreOptions
from mirror_assets_tests.builders import a_metastore
from mirror_assets_tests.cloud_stand_ins import Azure, Cloud, Gcs, running
from mirror_assets_tests.services import PostgresServer, postgres_server
from mirror_assets_tests.spark_session import spark_session
from mirror_assets_tests.store_services import (
    S3Server,
    StorePlace,
    start_moto,
    start_rclone,
    start_seaweedfs,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

CORPORA = Path(__file__).resolve().parents[2] / "shared" / "corpora"
#: what `make readers` makes
READERS_HOME = Path(__file__).resolve().parents[1] / ".readers"

settings.register_profile("dev", deadline=None, print_blob=True)
settings.register_profile("ci", deadline=None, print_blob=True, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "dev")


def pytest_report_header() -> list[str]:
    corpora = "absent, because ../shared/corpora is not beside this checkout"
    readers = "absent; `make readers` makes what they need"
    return [
        f"corpora tests: {'run' if CORPORA.is_dir() else corpora}",
        f"readers tests: {'run' if READERS_HOME.is_dir() else readers}",
    ]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark tests by the fixtures they use; take out those whose corpora or readers are absent."""
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        if "corpora" in fixtures:
            item.add_marker(pytest.mark.corpora)
        if "spark" in fixtures:
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.slow)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(900))
            item.add_marker(pytest.mark.xdist_group("spark"))
        if "postgres_url" in fixtures or "postgres" in fixtures:
            item.add_marker(pytest.mark.postgres)
    for marker, needed in (("corpora", CORPORA), ("readers", READERS_HOME)):
        absent = [item for item in items if item.get_closest_marker(marker)]
        if absent and not needed.is_dir():
            config.hook.pytest_deselected(items=absent)
            items[:] = [item for item in items if not item.get_closest_marker(marker)]


@pytest.fixture(scope="session")
def corpora() -> Path:
    """The folder with real Delta logs; tests that use it are marked `corpora`."""
    return CORPORA


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    with postgres_server() as server:
        yield server


@pytest.fixture
def postgres_url(postgres: PostgresServer) -> Iterator[Callable[[], str]]:
    """Call it for the SQLAlchemy URL of a fresh, empty database, as often as needed."""
    created = []

    def create() -> str:
        created.append(postgres.create_database())
        return created[-1].render_as_string(hide_password=False)

    yield create
    for url in created:
        postgres.drop_database(url)


@pytest.fixture(params=["sqlite", "duckdb", pytest.param("postgresql", marks=pytest.mark.postgres)])
def metastore_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The SQLAlchemy URL of a fresh, empty database, on each engine in turn."""
    match request.param:
        case "sqlite":
            return f"sqlite:///{tmp_path / 'metastore.db'}"
        case "duckdb":
            return f"duckdb:///{tmp_path / 'metastore.duckdb'}"
        case "postgresql":
            return request.getfixturevalue("postgres_url")()
        case unknown:
            raise ValueError(unknown)


@pytest.fixture
def metastore(metastore_url: str) -> Iterator[Metastore]:
    """A metastore without tables, on each engine in turn."""
    with a_metastore(metastore_url) as opened:
        yield opened


@pytest.fixture
def writer(metastore: Metastore) -> SqlTxnLogWriter:
    return SqlTxnLogWriter(metastore)


@pytest.fixture
def reader(metastore: Metastore) -> LogReader:
    return LogReader(metastore)


@pytest.fixture(scope="session")
def moto_s3() -> Iterator[S3Server]:
    """A fast S3 server whose conditional writes are atomic."""
    with start_moto() as server:
        yield server


@pytest.fixture(scope="session")
def seaweedfs() -> Iterator[S3Server]:
    """The real S3 server; tests that use it stay in one test process."""
    with start_seaweedfs() as server:
        yield server


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Spark with Delta; tests that use it stay in one test process, because a JVM is large."""
    with spark_session() as session:
        yield session


@pytest.fixture(scope="session")
def rclone_s3() -> Iterator[S3Server]:
    """An S3 server that ignores conditions."""
    with start_rclone() as server:
        yield server


@pytest.fixture(scope="session")
def azure() -> Iterator[Cloud]:
    """What speaks Azure's protocol."""
    with running(Azure()) as cloud:
        yield cloud


@pytest.fixture(scope="session")
def gcs() -> Iterator[Cloud]:
    """What speaks Google's protocol."""
    with running(Gcs()) as cloud:
        yield cloud


@pytest.fixture(
    params=[
        "memory",
        "local",
        "moto",
        "azure",
        "gcs",
        pytest.param("seaweedfs", marks=pytest.mark.xdist_group("seaweedfs")),
    ]
)
def store_place(request: pytest.FixtureRequest, tmp_path: Path) -> StorePlace:
    """A place for one table, in each kind of store in turn."""
    match request.param:
        case "memory":
            return StorePlace(location=f"memory://tests/{uuid.uuid4()}", options=StoreOptions())
        case "local":
            return StorePlace(location=str(tmp_path / "a b" / "t"), options=StoreOptions())
        case "azure" | "gcs":
            location, options = request.getfixturevalue(request.param).place(f"{uuid.uuid4()}/a b")
            return StorePlace(location=location, options=options)
        case "moto":
            return request.getfixturevalue("moto_s3").place()
        case "seaweedfs":
            return request.getfixturevalue("seaweedfs").place()
        case unknown:
            raise ValueError(unknown)
