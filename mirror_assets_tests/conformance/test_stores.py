"""Logs in object stores: the same verdict, with many requests in flight."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from itertools import count
from threading import Barrier, Lock
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pyarrow as pa
import pytest

from mirror_assets.conformance.deltalake_reader import DeltalakeReader
from mirror_assets.conformance.readers import ask_readers, expected_of
from mirror_assets.conformance.rulebook import Profile
from mirror_assets.conformance.validator import verify_log
from mirror_assets.delta.locations import Location, normalise_location
from mirror_assets.storage.stores import open_store
from mirror_assets.storage.table_files import table_files
from mirror_assets_tests.builders import a_metastore
from mirror_assets_tests.conformance.damage import DAMAGES
from mirror_assets_tests.conformance.healthy import healthy
from mirror_assets_tests.conformance.logs import MemoryLog
from mirror_assets_tests.conformance.shapes import SHAPES, Shape
from mirror_assets_tests.delta.samples import a_field
from mirror_assets_tests.faults.http_proxy import Seen, fault_proxy
from mirror_assets_tests.mirror.lake import Lake

if TYPE_CHECKING:
    from pathlib import Path

    from mirror_assets_tests.store_services import S3Server, StorePlace


@dataclass
class SlowLog(MemoryLog):
    """Counts how many reads go on at once."""

    location: Location = field(default_factory=lambda: normalise_location("s3://bucket/t"))
    active: int = 0
    most: int = 0
    _lock: Lock = field(default_factory=Lock)

    def read(self, name: str) -> bytes:
        with self._lock:
            self.active += 1
            self.most = max(self.most, self.active)
        time.sleep(0.02)
        with self._lock:
            self.active -= 1
        return super().read(name)


def uploaded(log: MemoryLog, server: S3Server, place: StorePlace) -> None:
    prefix = normalise_location(place.location).path.lstrip("/")
    files = {f"_delta_log/{name}": data for name, data in log.files.items()} | log.data
    for name, data in files.items():
        bucket = urlsplit(place.location).netloc
        server.boto3().put_object(Bucket=bucket, Key=f"{prefix}/{name}", Body=data)


def test_at_least_eight_requests_are_in_flight() -> None:
    shape = next(shape for shape in SHAPES if shape.checksums)
    log = SlowLog(files=healthy(shape).files)
    assert verify_log(log).findings == ()
    assert log.most >= 8


def test_a_store_sees_eight_requests_at_once(moto_s3: S3Server) -> None:
    """The first eight reads are answered only when all of them have arrived."""
    log = healthy(next(shape for shape in SHAPES if shape.checksums))
    place = moto_s3.place()
    uploaded(log, moto_s3, place)
    eighth, reads = Barrier(8), count()
    with fault_proxy(moto_s3.endpoint) as proxy:
        forward = proxy.forward

        def together(request: Seen, body: bytes) -> Any:
            is_read = request.method == "GET" and "_delta_log/0" in request.path
            if is_read and next(reads) < eighth.parties:
                eighth.wait(20)
            return forward(request, body)

        proxy.forward = together
        options = replace(place.options, endpoint=proxy.endpoint)
        report = verify_log(open_store(place.location, options, allowed_roots=()).source)
    assert report.findings == ()
    assert next(reads) >= eighth.parties
    assert not eighth.broken


@pytest.mark.parametrize(
    "shape",
    [s for s in SHAPES if s.name in ("vectors", "v2-sidecars", "multi-part", "cleaned")],
    ids=lambda shape: shape.name,
)
def test_a_log_in_s3_is_judged_like_one_on_disk(moto_s3: S3Server, shape: Shape) -> None:
    sound, damaged = healthy(shape), healthy(shape)
    DAMAGES["the_pointer_counts_wrong"][1](damaged)
    for log, rules in ((sound, set()), (damaged, {"DL-LCP-03", "DL-LCP-09"})):
        place = moto_s3.place()
        uploaded(log, moto_s3, place)
        store = open_store(place.location, place.options, allowed_roots=())
        report = verify_log(
            store.source,
            profile=Profile.STRICT,
            read_data=table_files(store.location, place.options),
        )
        assert {f.rule for f in report.findings if f.severity == "error"} == rules


def test_deltalake_reads_a_table_in_s3_as_the_log_tells(moto_s3: S3Server, tmp_path: Path) -> None:
    with a_metastore(f"sqlite:///{tmp_path / 'metastore.db'}") as metastore:
        lake = Lake(metastore, tmp_path / "table")
        lake.create(a_field("id"))
        for number in range(3):
            lake.commit(lake.file(pa.table({"id": [number]})))
    place = moto_s3.place()
    root = normalise_location(place.location.removesuffix("/a b"))
    for file in (path for path in lake.root.rglob("*") if path.is_file()):
        key = f"{root.path.lstrip('/')}/{file.relative_to(lake.root)}"
        moto_s3.boto3().put_object(Bucket=root.host, Key=key, Body=file.read_bytes())
    report = verify_log(open_store(root, place.options, allowed_roots=()).source)
    verdicts = ask_readers(
        [DeltalakeReader()],
        root,
        expected_of(report.growth),
        features=report.features,
        options=place.options,
    )
    assert [(v.outcome, v.rows) for v in verdicts] == [("agrees", 0), ("agrees", 1), ("agrees", 3)]
