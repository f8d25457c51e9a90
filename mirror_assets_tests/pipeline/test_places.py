"""The same calls on S3, on a cluster of separate processes, and over Spark Connect."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark
import pytest

from mirror_assets.mirror.service import Mirror
from mirror_assets.pipeline.access import Access
from mirror_assets.pipeline.rewriting import delete_rows
from mirror_assets.pipeline.table_reader import read_table
from mirror_assets.pipeline.table_writer import NewTable, write_table
from mirror_assets.pipeline.vacuum import vacuum
from mirror_assets_tests.acceptance import readers
from mirror_assets_tests.builders import a_metastore
from mirror_assets_tests.pipeline.lakehouse import by_deltalake, by_duckdb
from mirror_assets_tests.pipeline.remote_job import LATE
from mirror_assets_tests.services import ServiceError, free_port, guarded_process

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mirror_assets.storage.options import StoreOptions
    from mirror_assets_tests.store_services import S3Server

HOME = Path(pyspark.__file__).parent
ENVIRONMENT = {
    **os.environ,
    "PYSPARK_PYTHON": sys.executable,
    "PYTHONPATH": str(Path(__file__).resolve().parents[2]),
    "SPARK_LOCAL_IP": "127.0.0.1",
    "SPARK_HOME": str(HOME),
    "SPARK_DAEMON_MEMORY": "256m",
}
separate = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.xdist_group("spark"),
]


@pytest.mark.xdist_group("spark")
def test_a_table_on_s3_is_written_rewritten_and_read_by_three_readers(
    spark: SparkSession, seaweedfs: S3Server, tmp_path: Path
) -> None:
    for name, value in readers.s3a_options(seaweedfs).items():
        spark.conf.set(name, value)
    location = f"s3://{seaweedfs.bucket}/{tmp_path.name}/orders"

    def options() -> StoreOptions:
        return seaweedfs.options()

    url = f"sqlite:///{tmp_path / 'metastore.db'}"
    access = Access(metastore_url=Access.to(url).metastore_url, store_options=options)
    with a_metastore(url) as metastore:
        frame = spark.range(0, 100, 1, 2).selectExpr("id", "concat('p:', id % 2, ' %') as p")
        new = NewTable(location=location, partition_by=["p"])
        written = write_table(frame, "sales.orders", access=access, create=new)
        delete_rows(spark, "sales.orders", "id < 10", access=access)
        assert (written.rows, written.files) == (100, 4)
        assert read_table(spark, "sales.orders", access=access).count() == 90

        Mirror(metastore, options=options()).settle(patience_s=30)
        for reader in (
            readers.deltalake_reader(seaweedfs),
            readers.duckdb_reader(seaweedfs),
            readers.spark_reader(spark, seaweedfs),
        ):
            assert reader(location).count == 90
        assert vacuum("sales.orders", access=access).kept_files == 6


@pytest.mark.parametrize("kind", [pytest.param(k, marks=separate) for k in ("cluster", "connect")])
def test_the_same_job_runs_on_separate_processes(kind: str, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'metastore.db'}"
    with a_metastore(url), ExitStack() as stack:
        master = _cluster(stack, tmp_path) if kind == "cluster" else _connect(stack)
        done = subprocess.run(
            [sys.executable, "-m", f"{__package__}.remote_job", master, url, str(tmp_path)],
            env=ENVIRONMENT,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )
        assert done.returncode == 0, done.stderr[-4000:]
        answer: dict[str, Any] = json.loads(done.stdout)
        if kind == "cluster":
            assert answer["executors"] == 2
            assert answer["published"].pop(LATE) == 2
            _require_once(answer["late"], tmp_path / "late", Access.to(url))
    assert (answer["rows"], answer["read"], answer["checkpoint"]) == (1000, 900, 2)
    assert answer["published"] == {"sales.orders": 3}
    root = tmp_path / "orders"
    assert len(by_deltalake(root)) == len(by_duckdb(root)) == 900
    assert list((root / "_delta_log" / "_sidecars").iterdir())


def _require_once(written: dict[str, Any], place: Path, access: Access) -> None:
    """Both attempts at a partition ran; the rows are there once, and other files are known."""
    assert written == {"attempts": [0, 1], "rows": 200, "files": 2}
    for seen in (by_deltalake(place), by_duckdb(place)):
        assert sorted(seen) == [(number,) for number in range(200)]
    plan = vacuum(LATE, access=access, retain_ms=0, allow_short=True)
    found = {f.relative_to(place).as_posix() for f in place.rglob("*.parquet")}
    assert len(found) - len(plan.delete) == plan.kept_files == 2


def _cluster(stack: ExitStack, work: Path) -> str:
    """A master and two workers with one core each, on what look like two hosts to Spark.

    It gives a task no second attempt on the host of the first.
    """
    port, spark_class = free_port(), str(HOME / "bin" / "spark-class")
    deploy = "org.apache.spark.deploy"
    web = ["--webui-port", "0"]
    address = ["--host", "127.0.0.1", "--port", str(port)]
    command = [spark_class, f"{deploy}.master.Master", *address, *web]
    master = stack.enter_context(guarded_process(command, env=ENVIRONMENT))
    _wait(master, port)
    url = f"spark://127.0.0.1:{port}"
    for host in ("127.0.0.1", "127.0.0.2"):
        limits = ["--cores", "1", "--memory", "700m", "--work-dir", str(work / host)]
        command = [spark_class, f"{deploy}.worker.Worker", "--host", host, *web, *limits, url]
        environment = {**ENVIRONMENT, "SPARK_LOCAL_IP": host}
        stack.enter_context(guarded_process(command, env=environment))
    return url


def _connect(stack: ExitStack) -> str:
    """A server in its own process; the client has no JVM."""
    port = free_port()
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.ui.enabled": "false",
    }
    command = [
        *(str(HOME / "bin" / "spark-submit"), "--master", "local[2]"),
        *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer"),
        *(word for name, value in settings.items() for word in ("--conf", f"{name}={value}")),
        str(next((HOME / "jars").glob("spark-connect_*.jar"))),
    ]
    environment = {**ENVIRONMENT, "SPARK_DAEMON_MEMORY": "700m"}
    server = stack.enter_context(guarded_process(command, env=environment))
    _wait(server, port)
    return f"sc://127.0.0.1:{port}"


def _wait(process: subprocess.Popen, port: int) -> None:
    deadline = time.monotonic() + 180
    while time.monotonic() < deadline:
        with closing(socket.socket()) as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        if process.poll() is not None:
            break
        time.sleep(0.2)
    raise ServiceError("a process of Spark did not start")
