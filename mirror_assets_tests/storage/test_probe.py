"""`verify_store` passes stores that keep conditions, refuses those that do not, and cleans up."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import obstore
import pytest
import time_machine

from mirror_assets.delta.locations import normalise_location
from mirror_assets.errors import LocationError, StoreUnavailableError
from mirror_assets.findings import Severity
from mirror_assets.storage.clients import clients_of
from mirror_assets.storage.options import StoreOptions
from mirror_assets.storage.probe import RULES, ProbeReport, verify_store
from mirror_assets_tests.faults.http_proxy import Answer, fault_proxy

if TYPE_CHECKING:
    from mirror_assets_tests.store_services import S3Server, StorePlace


def rules(report: ProbeReport) -> set[str]:
    return {finding.rule for finding in report.findings}


def test_a_store_that_keeps_conditions_is_safe_and_left_clean(store_place: StorePlace) -> None:
    report = verify_store(store_place.location, store_place.options)

    assert report.safe
    assert report.findings == ()
    assert report.facts["race_bad_rounds"] == 0
    assert report.facts["create_over_existing_refused"] is True
    assert report.facts["clock_skew_s"] < 5
    if store_place.location.startswith("/"):
        assert list(Path(store_place.location).iterdir()) == []
    else:
        place = normalise_location(store_place.location)
        client = clients_of(place, store_place.options).reads
        assert list(obstore.list(client, place.path.lstrip("/"))) == []


def test_a_store_that_ignores_conditions_is_refused(rclone_s3: S3Server) -> None:
    place = rclone_s3.place()

    report = verify_store(place.location, place.options)

    assert not report.safe
    assert {"ST-01", "ST-02"} <= rules(report)
    assert all(finding.remedy for finding in report.findings)
    assert rules(report) <= RULES.keys()


def test_a_store_that_looks_before_it_writes_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Check, then act: right one by one, wrong in a race."""
    real = obstore.put
    together = threading.Barrier(8)

    def put(store: object, path: str, data: bytes, *, mode: object, use_multipart: bool) -> object:
        if mode == "create":
            is_taken = True
            try:
                obstore.head(store, path)
            except FileNotFoundError:
                is_taken = False
            if "00000000000000000000.json" not in path and not is_taken:
                with_others(together)
            mode = "create" if is_taken else "overwrite"
        return real(store, path, data, mode=mode, use_multipart=use_multipart)

    monkeypatch.setattr(obstore, "put", put)

    report = verify_store("memory://racy/t", StoreOptions())

    assert not report.safe
    assert "ST-02" in rules(report)
    assert "ST-01" not in rules(report)


def with_others(barrier: threading.Barrier) -> None:
    try:
        barrier.wait(0.3)
    except threading.BrokenBarrierError:
        barrier.reset()


@pytest.mark.parametrize(
    ("minutes", "severity"), [(2, Severity.WARNING), (10, Severity.ERROR), (-10, Severity.ERROR)]
)
def test_a_clock_that_is_off_is_found(moto_s3: S3Server, minutes: int, severity: Severity) -> None:
    place = moto_s3.place()
    with time_machine.travel(time.time() + minutes * 60, tick=True):
        report = verify_store(place.location, place.options, rounds=1)

    assert [(found.rule, found.severity) for found in report.findings] == [("ST-06", severity)]
    assert report.safe


def test_a_store_that_refuses_our_clock_is_a_finding(moto_s3: S3Server) -> None:
    place = moto_s3.place()
    with fault_proxy(moto_s3.endpoint) as proxy:
        proxy.script("PUT", *[Answer(status=403, code="RequestTimeTooSkewed")] * 3)
        report = verify_store(place.location, moto_s3.options(endpoint=proxy.endpoint))

    assert rules(report) == {"ST-06"}
    assert not report.safe  # nothing was proven


def test_a_store_that_does_not_answer_is_an_error(moto_s3: S3Server) -> None:
    with pytest.raises(StoreUnavailableError):
        verify_store("s3://tables/x", moto_s3.options(endpoint="http://127.0.0.1:1"))


def test_a_place_outside_of_the_roots_is_not_probed() -> None:
    with pytest.raises(LocationError):
        verify_store("memory://x/t", allowed_roots=["memory://y"])


def test_a_store_that_lets_nobody_delete_is_safe_but_said_so(moto_s3: S3Server) -> None:
    place = moto_s3.place()
    with fault_proxy(moto_s3.endpoint) as proxy:
        proxy.script("DELETE", *[Answer(status=403)] * 100)
        report = verify_store(place.location, moto_s3.options(endpoint=proxy.endpoint), rounds=1)

    assert report.safe
    assert rules(report) == {"ST-07"}
