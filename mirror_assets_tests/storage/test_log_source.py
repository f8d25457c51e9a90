from __future__ import annotations

import io
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import obstore
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from moto.server import ThreadedMotoServer
from obstore.store import S3Store

from mirror_assets.delta.checkpoint import checkpoint_schema, read_checkpoint_batches
from mirror_assets.errors import LocationError, StorageError
from mirror_assets.storage.log_source import LogSource, memory_store, open_log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from obstore.store import ObjectStore

COMMIT = "00000000000000000000.json"
CHECKPOINT = "00000000000000000000.checkpoint.parquet"
NAMES = (
    COMMIT,
    "00000000000000000001.json",
    "_last_checkpoint",
    "_sidecars/a.parquet",
    "_staged_commits/00000000000000000002.80a083e8-7026-4e79-81be-64bd76c43a11.json",
    ".00000000000000000000.json.crc",
    "notes and more.txt",
)


@dataclass(frozen=True)
class Place:
    """A location of a test's own, and how to put files below it."""

    location: str
    options: dict[str, str]
    put_below: Callable[[str, bytes], object]

    def put(self, name: str, data: bytes) -> None:
        self.put_below(f"_delta_log/{name}", data)

    def open(self) -> LogSource:
        return open_log(self.location, options=self.options)


@pytest.fixture(scope="module")
def s3_options() -> Iterator[dict[str, str]]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield {
        "endpoint": f"http://{host}:{port}",
        "access_key_id": "test",
        "secret_access_key": "test",
        "region": "us-east-1",
        "allow_http": "true",
    }
    server.stop()


@pytest.fixture(params=["local", "memory", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    name = f"t-{uuid.uuid4()}"
    if request.param == "local":
        root = tmp_path / "a b%c"
        return Place(str(root), {}, lambda file, data: put_local(root, file, data))
    if request.param == "memory":
        store: ObjectStore = memory_store("tests")
        return Place(f"memory://tests/a b/{name}", {}, putter(store, f"a b/{name}"))
    options: dict[str, str] = request.getfixturevalue("s3_options")
    make_bucket(options, name)
    store = s3_store(options, name)
    return Place(f"s3a://{name}/a b/t", options, putter(store, "a b/t"))


def put_local(root: Path, file: str, data: bytes) -> None:
    path = root / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def putter(store: ObjectStore, root: str) -> Callable[[str, bytes], object]:
    return lambda file, data: obstore.put(store, f"{root}/{file}", data)


def s3_store(options: dict[str, str], bucket: str) -> S3Store:
    config = {key: value for key, value in options.items() if key != "allow_http"}
    return S3Store(bucket, config=config, client_options={"allow_http": True})


def make_bucket(options: dict[str, str], bucket: str) -> None:
    client = boto3_client(options)
    client.create_bucket(Bucket=bucket)


def boto3_client(options: dict[str, str]):
    import boto3  # noqa: PLC0415 - slow to import, and only one backend needs it

    return boto3.client(
        "s3",
        endpoint_url=options["endpoint"],
        aws_access_key_id="test",
        aws_secret_access_key="test",
        region_name="us-east-1",
    )


def test_a_listing_has_every_file_once_with_size_and_time(place: Place) -> None:
    for name in NAMES:
        place.put(name, b"12345")

    log = place.open().list()

    assert list(log.commits) == [0, 1]
    assert log.last_checkpoint is not None
    assert list(log.sidecars) == ["_sidecars/a.parquet"]
    assert [entry.name for entry in log.staged_commits] == [NAMES[4]]
    assert [entry.name for entry in log.unknown] == [NAMES[5], NAMES[6]]
    assert log.commits[0].size == 5
    assert 1_600_000_000_000 < log.commits[0].mtime_ms < 10_000_000_000_000


def test_files_outside_the_log_are_not_listed(place: Place) -> None:
    place.put(COMMIT, b"x")
    place.put_below(f"_delta_log_old/{COMMIT}", b"x")
    place.put_below(f"nested/_delta_log/{COMMIT}", b"x")

    log = place.open().list()

    assert list(log.commits) == [0]
    assert not log.unknown


@pytest.mark.parametrize("name", [COMMIT, "_sidecars/a.parquet", "notes and more.txt"])
def test_a_file_is_read_whole(place: Place, name: str) -> None:
    place.put(name, b"some bytes")

    assert place.open().read(name) == b"some bytes"


def test_a_stream_can_be_read_anywhere(place: Place) -> None:
    data = bytes(range(256)) * 20_000
    place.put(COMMIT, data)

    with place.open().open(COMMIT) as stream:
        assert stream.read(3) == data[:3]
        assert stream.seek(-5, io.SEEK_END) == len(data) - 5
        assert stream.read() == data[-5:]
        assert stream.read() == b""
        stream.seek(4_000_000)
        stream.seek(7, io.SEEK_CUR)
        assert stream.read(100) == data[4_000_007:4_000_107]
        stream.seek(0)
        assert stream.read() == data


def test_a_checkpoint_is_streamed_from_the_store(place: Place) -> None:
    add = {"path": "p", "partitionValues": [], "size": 1, "modificationTime": 2}
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist([{"add": add}] * 5, checkpoint_schema()), sink)
    place.put(CHECKPOINT, sink.getvalue().to_pybytes())

    with place.open().open(CHECKPOINT) as stream:
        assert sum(len(batch) for batch in read_checkpoint_batches(stream)) == 5


def test_a_place_without_a_log_is_said_to_have_no_table(place: Place) -> None:
    with pytest.raises(StorageError, match="no Delta table at") as failure:
        place.open().list()

    assert "_delta_log" in failure.value.remedy


@pytest.mark.parametrize("opens", [False, True])
def test_a_missing_file_is_a_storage_error_that_names_it(place: Place, opens: bool) -> None:
    place.put(COMMIT, b"x")
    source = place.open()

    with pytest.raises(StorageError, match=r"00000000000000000009\.json") as failure:
        (source.open if opens else source.read)("00000000000000000009.json")

    assert isinstance(failure.value.__cause__, FileNotFoundError)
    assert source.location.uri in failure.value.message


@pytest.mark.parametrize("name", ["../secret", "_sidecars/../../secret", "/etc/passwd", "", "a\\b"])
def test_a_name_that_leaves_the_log_is_refused(place: Place, name: str) -> None:
    place.put(COMMIT, b"x")

    with pytest.raises(StorageError):
        place.open().read(name)


def test_a_local_log_with_links_and_strange_names_is_listed(tmp_path: Path) -> None:
    put_local(tmp_path, f"_delta_log/{COMMIT}", b"x")
    log = tmp_path / "_delta_log"
    (log / "dangling").symlink_to(tmp_path / "nowhere")
    (log / "loop").symlink_to(log)
    (log / "line\nbreak").touch()
    (log / "x#1").touch()

    listing = open_log(str(tmp_path)).list()

    assert list(listing.commits) == [0]
    assert [entry.name for entry in listing.unknown] == ["line\nbreak", "x#1"]


def test_a_file_in_the_place_of_the_log_is_no_table(tmp_path: Path) -> None:
    (tmp_path / "_delta_log").touch()

    with pytest.raises(StorageError, match="no Delta table"):
        open_log(str(tmp_path)).list()


def test_a_relative_location_is_refused() -> None:
    with pytest.raises(LocationError):
        open_log("some/table")


def test_an_unknown_option_is_a_storage_error() -> None:
    with pytest.raises(StorageError, match="nonsense"):
        open_log("s3://bucket/t", options={"nonsense": "1"})


def test_a_store_that_does_not_answer_is_a_storage_error() -> None:
    options = {"endpoint": "http://127.0.0.1:9", "skip_signature": "true", "allow_http": "true"}

    with pytest.raises(StorageError, match="s3://bucket/t"):
        open_log("s3://bucket/t", options=options).list()


def test_a_missing_bucket_is_a_storage_error(s3_options: dict[str, str]) -> None:
    with pytest.raises(StorageError, match="s3://no-such-bucket/t"):
        open_log("s3://no-such-bucket/t", options=s3_options).list()


def test_a_denied_file_says_how_to_get_access(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_local(tmp_path, f"_delta_log/{COMMIT}", b"x")

    def deny(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    # tests may run as root, who is denied nothing
    monkeypatch.setattr("mirror_assets.storage.log_source.os.open", deny)
    with pytest.raises(StorageError) as failure:
        open_log(str(tmp_path)).read(COMMIT)

    assert "read access" in failure.value.remedy
