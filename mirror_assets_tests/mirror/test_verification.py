"""`verify NAME`: what the mirror publishes is sound, and what is damaged since is found."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
import pytest
from sqlalchemy import update

from mirror_assets.delta.log_paths import ClassicCheckpoint, CommitName
from mirror_assets.findings import Severity
from mirror_assets.metastore.tables import dl_table_versions
from mirror_assets.mirror.verification import verify_table
from mirror_assets.storage.table_files import table_files
from mirror_assets_tests.builders import commit, txn
from mirror_assets_tests.delta.samples import a_domain, a_field
from mirror_assets_tests.mirror.lake import removal
from mirror_assets_tests.mirror.published import commit_file, publish

if TYPE_CHECKING:
    from mirror_assets.conformance.report import Report
    from mirror_assets_tests.mirror.lake import Lake


def verified(lake: Lake) -> Report:
    return verify_table(
        lake.metastore, lake.store, lake.name, read_data=table_files(lake.store.location)
    )


def rules(report: Report, severity: Severity = Severity.ERROR) -> set[str]:
    return {finding.rule for finding in report.findings if finding.severity is severity}


@pytest.mark.parametrize("features", [(), ("v2Checkpoint",)], ids=["classic", "v2"])
def test_what_the_mirror_publishes_has_no_errors(lake: Lake, features: tuple[str, ...]) -> None:
    publish(lake, 6, checkpoints=(3, 5), features=features)
    report = verified(lake)
    assert [(f.rule, f.message) for f in report.findings if f.severity != "info"] == []
    assert report.versions == 7


def test_deletion_vectors_transactions_and_domains_are_sound_too(lake: Lake) -> None:
    lake.create(
        a_field("id"),
        features=("deletionVectors", "domainMetadata"),
        configuration={"delta.enableDeletionVectors": "true"},
    )
    whole = lake.file(pa.table({"id": [1, 2, 3, 4]}))
    lake.commit(whole, txn("app", 3), a_domain("mine"))
    holed = msgspec.structs.replace(whole, deletion_vector=lake.delete_rows([1, 3]))
    version = lake.commit(removal(whole), holed)
    lake.checkpoint(version)
    assert rules(verified(lake)) == set()


def test_a_changed_byte_is_found(lake: Lake) -> None:
    publish(lake, 3)
    file = commit_file(lake, 2)
    file.write_bytes(file.read_bytes().replace(b'"dataChange":true', b'"dataChange":false'))
    assert "DL-FILE-02" in rules(verified(lake))


def test_a_missing_commit_is_found(lake: Lake) -> None:
    publish(lake, 3)
    commit_file(lake, 2).unlink()
    assert "DL-FILE-03" in rules(verified(lake))


def test_a_foreign_commit_is_found(lake: Lake) -> None:
    publish(lake, 3)
    (lake.log / CommitName(4).name).write_bytes(commit_file(lake, 3).read_bytes())
    assert "DL-CAT-04" in rules(verified(lake))


def test_totals_that_differ_from_sql_are_found(lake: Lake) -> None:
    publish(lake, 3)
    with lake.metastore.write() as connection:
        connection.execute(
            update(dl_table_versions).where(dl_table_versions.c.version == 2).values(num_files=99)
        )
    assert "DL-REC-10" in rules(verified(lake))


def test_a_checkpoint_of_other_files_is_found(lake: Lake) -> None:
    publish(lake, 6, checkpoints=(3, 5))
    wrong = lake.log / ClassicCheckpoint(3).name
    wrong.write_bytes((lake.log / ClassicCheckpoint(5).name).read_bytes())
    assert "DL-CP-01" in rules(verified(lake))


def test_versions_that_wait_to_be_published_are_no_error(lake: Lake) -> None:
    publish(lake, 2)
    commit(lake.metastore, lake.name, lake.file(pa.table({"id": [9]})))
    report = verified(lake)
    assert rules(report) == set()
    assert "MA-404" in rules(report, Severity.INFO)
