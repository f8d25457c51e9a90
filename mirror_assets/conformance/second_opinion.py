"""A reader that cannot live beside the others, as a program of its own.

Run by the Python of an environment of `make readers`, which has nothing of this project; so it is
one file, and imports nothing of ours. It answers requests on stdin, a JSON document per line:

    {"place": "/lake/orders", "version": 3, "rows": "/tmp/rows.arrow", "store": {...}}
    {"version": 3, "files": ["a.parquet"]}    or    {"refused": "DeltaProtocolError: ..."}

The rows themselves go to the file, as an Arrow stream: one judge compares the rows of all readers.
"""

# ruff: noqa: PLC0415 - each library is there in one environment only

from __future__ import annotations

import json
import os
import re
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa

Request = dict[str, Any]
Answer = dict[str, Any]
Read = Callable[[Request], Answer]


def main(name: str) -> None:
    """Answer until stdin ends."""
    # What libraries print must not get among the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    warnings.simplefilter("ignore")
    read = READERS[name]()
    for line in sys.stdin:
        answers.write(json.dumps(_answer(read, json.loads(line))) + "\n")
        answers.flush()


def deltalake() -> Read:
    """delta-rs as it was when it replayed logs itself, with its scanner of pyarrow."""
    from deltalake import DeltaTable

    # It has members that today's types do not know
    open_table: Any = DeltaTable

    def read(request: Request) -> Answer:
        place = request["place"]
        settings = _object_store(request["store"]) if place.startswith("s3:") else None
        table = open_table(place, version=request["version"], storage_options=settings)
        reader = table.to_pyarrow_dataset().scanner().to_reader()
        _write(request, reader.schema, reader)
        return {"version": table.version(), "files": table.files()}

    return read


def sail() -> Read:
    """Sail, with a log replay and a scan of its own, behind Spark's client."""
    # Both are read when the server starts.
    os.environ.setdefault("RUST_LOG", "error")
    running: list[tuple[Any, Any]] = []

    def read(request: Request) -> Answer:
        if not running:
            os.environ.update(_object_store(request["store"]))
            running.append(_sail())
        # The server ends with the last reference to it.
        _server, session = running[0]
        table = f"delta.`{request['place'].replace('`', '``')}` VERSION AS OF {request['version']}"
        found = session.sql(f"SELECT * FROM {table}").toArrow()  # noqa: S608 - quoted
        (plan,) = session.sql(f"EXPLAIN FORMATTED SELECT * FROM {table}").toArrow()["plan"]  # noqa: S608 - quoted
        _write(request, found.schema, found.to_batches())
        return {"version": request["version"], "files": _planned(str(plan), request["place"])}

    return read


def chdb() -> Read:
    """ClickHouse in this process, with its own reader and not delta-kernel-rs."""
    # It reads local files only below the directory that it was started in.
    os.chdir("/")
    import chdb as clickhouse

    def rows(query: str, **settings: Any) -> pa.Table:
        # Texts may be any bytes there.
        told = {"output_format_arrow_string_as_string": 0, "session_timezone": "'UTC'", **settings}
        listed = ", ".join(f"{name} = {value}" for name, value in told.items())
        return clickhouse.query(f"{query} SETTINGS {listed}", "ArrowTable")

    def newest(request: Request) -> int:
        names = _log_names(request)
        if names is None:
            where = _clickhouse_s3(request["place"], request["store"], "_delta_log/*.json")
            # The format reads none of the files.
            found = rows(f"SELECT DISTINCT _file FROM s3({where}, 'One')")  # noqa: S608 - quoted
            names = [name.decode() for name in found.column(0).to_pylist()]
        return max(int(name[:20]) for name in names if re.fullmatch(r"\d{20}\.json", name))

    def read(request: Request) -> Answer:
        version = newest(request)
        # Else it is given the newest without asking.
        older = request["version"] != version
        asked = {"delta_lake_snapshot_version": request["version"]} if older else {}
        where = _clickhouse_table(request["place"], request["store"])
        query = f"SELECT *, _path FROM {where}"  # noqa: S608 - quoted
        found = rows(query, allow_experimental_delta_kernel_rs=0, **asked)
        paths = [path.decode() for path in found["_path"].unique().to_pylist()]
        # In S3 they begin with the bucket.
        bucket = urlsplit(request["place"]).netloc
        files = {path.removeprefix(bucket) for path in paths}
        columns = found.drop_columns(["_path"])
        _write(request, columns.schema, columns.to_batches())
        return {"version": request["version"], "files": sorted(files)}

    return read


READERS: dict[str, Callable[[], Read]] = {
    "sail": sail,
    "deltalake-0.25": deltalake,
    "chdb": chdb,
}


def _answer(read: Read, request: Request) -> Answer:
    try:
        return read(request)
    except BaseException as exc:  # a panic of Rust is no Exception
        if isinstance(exc, KeyboardInterrupt | SystemExit):
            raise
        return {"refused": f"{type(exc).__name__}: {exc}"}


def _write(request: Request, schema: pa.Schema, batches: Any) -> None:
    with pa.OSFile(request["rows"], "wb") as file, pa.ipc.new_stream(file, schema) as stream:
        for batch in batches:
            stream.write_batch(batch)


def _object_store(store: dict[str, Any]) -> dict[str, str]:
    """In the words of the Rust crate of that name."""
    endpoint = store.get("endpoint")
    words = {
        "AWS_ACCESS_KEY_ID": store.get("access_key_id"),
        "AWS_SECRET_ACCESS_KEY": store.get("secret_access_key"),
        "AWS_SESSION_TOKEN": store.get("session_token"),
        "AWS_REGION": store.get("region"),
        "AWS_ENDPOINT": endpoint,
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ALLOW_HTTP": "true" if endpoint and endpoint.startswith("http:") else None,
        "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": None if store.get("path_style") else "true",
        "AWS_SKIP_SIGNATURE": "true" if store.get("anonymous") else None,
    }
    return {name: value for name, value in words.items() if value is not None}


def _sail() -> tuple[Any, Any]:
    from pysail.spark import SparkConnectServer
    from pyspark.sql import SparkSession

    server = SparkConnectServer("127.0.0.1", 0)
    server.start(background=True)
    host, port = server.listening_address
    session = SparkSession.builder.remote(f"sc://{host}:{port}").getOrCreate()
    session.conf.set("spark.sql.session.timeZone", "UTC")
    return server, session


def _planned(plan: str, place: str) -> list[str] | None:
    """The files that Sail's physical plan names; None if it does not name them all."""
    root = urlsplit(place).path.strip("/") + "/" if "://" in place else place.strip("/") + "/"
    groups = re.findall(r"file_groups=\{\d+ groups?: \[\[(.*?)\]\]\}", plan, re.DOTALL)
    listed = ", ".join(groups).replace(f"], [{root}", f", {root}").split(f", {root}")
    if not groups or any(name.endswith("...") for name in listed):
        return None
    return sorted({re.sub(r":\d+\.\.\d+$", "", n.removeprefix(root)) for n in listed if n})


def _log_names(request: Request) -> list[str] | None:
    if request["place"].startswith("s3:"):
        return None
    return [file.name for file in Path(request["place"], "_delta_log").iterdir()]


def _clickhouse_table(place: str, store: dict[str, Any]) -> str:
    if place.startswith("s3:"):
        return f"deltaLake({_clickhouse_s3(place, store, '')})"
    return f"deltaLakeLocal({_quoted(place)})"


def _clickhouse_s3(place: str, store: dict[str, Any], names: str) -> str:
    where, endpoint = urlsplit(place), store.get("endpoint")
    root = f"https://{where.netloc}.s3.{store.get('region') or 'us-east-1'}.amazonaws.com"
    if endpoint is not None:
        root = f"{endpoint.rstrip('/')}/{where.netloc}"
    url = _quoted(f"{root}{unquote(where.path)}/{names}")
    if store.get("anonymous"):
        return f"{url}, NOSIGN"
    keys = ("access_key_id", "secret_access_key", "session_token")
    return ", ".join([url, *(_quoted(store[name]) for name in keys if store.get(name))])


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main(sys.argv[1])
    # Threads that libraries left running do not end by themselves.
    os._exit(0)
