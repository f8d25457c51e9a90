"""Every table of the corpora: no crash, and those that are broken on purpose are found."""

from __future__ import annotations

from pathlib import Path

import pytest

from mirror_assets.conformance.report import Report
from mirror_assets.conformance.rulebook import Profile
from mirror_assets.conformance.validator import verify_log
from mirror_assets.findings import Severity
from mirror_assets.storage.log_source import open_log
from mirror_assets.storage.table_files import table_files

FOLDERS = ("delta-rs", "golden", "kernel", "spark")
#: the errors of each table that has any, looked at by hand: each is true of the files
ERRORS = {
    "delta-rs/cdc_ict_table": {"DL-CRC-03", "DL-ICT-04"},
    "delta-rs/delta-live-table": {"DL-META-01"},
    "delta-rs/latest_not_checkpointed": {"DL-LCP-03"},
    "delta-rs/simple_table_features": {"DL-PROT-02", "DL-RT-01", "DL-STAT-02"},
    "delta-rs/table_failed_last_checkpoint_update": {"DL-LCP-03", "DL-LCP-05"},
    "golden/canonicalized-paths-normal-a": {"DL-META-01"},
    "golden/canonicalized-paths-normal-b": {"DL-META-01"},
    "golden/canonicalized-paths-special-a": {"DL-META-01"},
    "golden/canonicalized-paths-special-b": {"DL-META-01"},
    "golden/corrupted-last-checkpoint": {"DL-META-01"},
    "golden/corrupted-last-checkpoint-kernel": {"DL-LCP-01"},
    "golden/data-reader-absolute-paths-escaped-chars": {"DL-CMT-06", "DL-REC-05"},
    "golden/deltalog-commit-info": {"DL-META-01"},
    # cdc actions under writer version 2
    "golden/deltalog-getChanges": {"DL-CDC-04"},
    "golden/deltalog-invalid-protocol-version": {"DL-PROT-02"},
    "golden/deltalog-state-reconstruction-from-checkpoint-missing-metadata": {
        "DL-CP-04",
        "DL-LCP-03",
        "DL-META-01",
    },
    "golden/deltalog-state-reconstruction-from-checkpoint-missing-protocol": {
        "DL-CP-04",
        "DL-LCP-03",
        "DL-META-01",
    },
    "golden/deltalog-state-reconstruction-without-metadata": {"DL-CMT-06", "DL-REC-05"},
    "golden/deltalog-state-reconstruction-without-protocol": {"DL-CMT-06", "DL-REC-05"},
    "golden/update-deleted-directory": {"DL-META-01"},
    "golden/versions-not-contiguous": {"DL-FILE-03", "DL-FILE-04", "DL-META-01"},
    "kernel/basic_catalog_managed__delta": {"DL-ICT-03"},
    "spark/delta__dbr_8_0_non_generated_columns": {"DL-SCH-08"},
    "spark/delta__identity_test_written_by_version_5": {"DL-SCH-08"},
    # the vectors' files have the test prefix of Delta Spark in their names
    "spark/delta__partitioned-table-with-dv-large": {"DL-DV-05"},
    "spark/delta__table-with-dv-gigantic": {"DL-DV-05"},
    "spark/delta__table-with-dv-large": {"DL-DV-05"},
    "spark/delta__table-with-dv-small": {"DL-DV-05"},
}


def tables(corpora: Path, folder: str) -> list[Path]:
    return sorted(path.parent for path in (corpora / folder).rglob("_delta_log"))


def verified(table: Path, profile: Profile = Profile.FOREIGN) -> Report:
    source = open_log(str(table))
    return verify_log(source, profile=profile, read_data=table_files(source.location))


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_errors_of_every_table_are_the_known_ones(corpora: Path, folder: str) -> None:
    found = {}
    for table in tables(corpora, folder):
        errors = {f.rule for f in verified(table).findings if f.severity is Severity.ERROR}
        if errors:
            found[table.relative_to(corpora).as_posix()] = errors
    assert found == {name: rules for name, rules in ERRORS.items() if name.startswith(folder)}


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_profile_goes_through_without_a_crash(corpora: Path, folder: str) -> None:
    for table in tables(corpora, folder):
        for profile in (Profile.STRICT, Profile.READ):
            report = verified(table, profile)
            assert all(finding.message and finding.remedy for finding in report.findings)
