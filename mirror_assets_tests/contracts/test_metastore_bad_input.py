"""Bad input to the metastore: one clear error, nothing half written, on every engine."""

from __future__ import annotations

import pytest

from mirror_assets.delta.actions import CommitInfo
from mirror_assets.errors import (
    ConfigurationError,
    MirrorAssetsError,
    PermanentError,
    RuleViolationError,
    TableNotFoundError,
    UnsupportedTableError,
    VersionNotFoundError,
)
from mirror_assets.metastore.outcomes import CommitRequest
from mirror_assets_tests.builders import a_table, add, changed, commit, remove, txn, unknown
from mirror_assets_tests.delta.samples import a_domain, a_metadata, a_protocol

NOT_A_NAME = ["a\x00b", "\ud800", "'; drop table dl_tables; --", "<script>", "", "é" * 5000]


@pytest.mark.parametrize(
    ("rule", "actions"),
    [
        ("DL-REC-02", [add("a"), add("a")]),
        ("DL-REC-02", [remove("a"), remove("a")]),
        ("DL-REC-03", [add("a"), remove("a")]),
        ("DL-CMT-07", [a_metadata(), a_metadata()]),
        ("DL-CMT-08", [a_protocol(), a_protocol()]),
        ("DL-CMT-09", [txn("app", 1), txn("app", 2)]),
        ("DL-ADD-07", [add("a", partition_values={"p": "1"})]),
        ("DL-ADD-01", [add("a", size=-1)]),
        ("DL-ADD-01", [add("a", size=2**63)]),
        ("DL-STAT-01", [add("a", stats='{"numRecords":NaN}')]),
        ("DL-TXN-01", [txn("a\x00b")]),
        ("DL-TXN-01", [txn("\ud800")]),
        ("DL-TXN-01", [txn("app", 2**63)]),
        ("DL-REM-01", [remove("a\x00b")]),
        ("DL-ADD-03", [add("a\tb")]),
        ("DL-ADD-02", [add("../a")]),
        ("DL-ADD-02", [add("a/%2e%2e/b")]),
        ("DL-DOM-02", [a_domain()]),
        ("DL-META-08", [a_metadata(id="00000000-0000-0000-0000-000000000000")]),
        ("DL-CMT-03", [unknown("add", {})]),
    ],
)
def test_a_commit_that_breaks_a_rule_writes_nothing(metastore, writer, reader, rule, actions):
    table = a_table(metastore)
    with pytest.raises(RuleViolationError) as caught:
        writer.commit(table, [add("fine"), *actions])
    error = caught.value
    assert (error.rule, error.table, error.version) == (rule, table, 1)
    assert error.remedy
    assert reader.table(table).head_version == 0
    assert list(reader.live_files(table)) == []


def test_a_protocol_that_nobody_here_can_write_is_refused(metastore, writer, reader):
    table = a_table(metastore)
    protocol = reader.summary(table).protocol
    features = [*(protocol.writer_features or ()), "somethingUnheardOf"]
    with pytest.raises((UnsupportedTableError, RuleViolationError)) as caught:
        writer.commit(table, [a_protocol(*features)])
    assert "somethingUnheardOf" in str(caught.value)
    assert reader.table(table).head_version == 0


@pytest.mark.parametrize(
    "fields",
    [
        {"operation": {"a": 1}},
        {"operation": True},
        {"operation": "a\x00b"},
        {"tags": "no map"},
        {"tags": ["no map"]},
        {"isBlindAppend": "maybe"},
        {"inCommitTimestamp": 1, "readVersion": "x", "txnId": 7, "timestamp": "now"},
    ],
)
def test_a_free_form_commit_info_is_kept_or_refused_but_never_breaks(metastore, writer, fields):
    """It is free-form by the protocol: what the writer does not need is carried through."""
    tables = [a_table(metastore) for _ in range(2)]
    requests = [CommitRequest(table=t, actions=[CommitInfo(fields), add("a")]) for t in tables]
    for several in (requests[:1], requests):
        try:
            writer.commit_all(several)
        except PermanentError as error:
            assert error.rule  # noqa: PT017 - either outcome is right


@pytest.mark.parametrize("name", NOT_A_NAME)
def test_a_name_that_no_table_can_have_is_not_found(metastore, writer, reader, name):
    with pytest.raises((TableNotFoundError, ConfigurationError)):
        writer.commit(name, [add("a")])
    with pytest.raises((TableNotFoundError, ConfigurationError)):
        reader.table(name)
    with pytest.raises((TableNotFoundError, ConfigurationError)):
        list(reader.live_files(name))


@pytest.mark.parametrize("commit_id", ["a\x00b", "\ud800"])
def test_a_commit_id_that_sql_cannot_hold_is_refused(metastore, writer, reader, commit_id):
    table = a_table(metastore)
    with pytest.raises(MirrorAssetsError) as caught:
        writer.commit(table, [add("a")], commit_id=commit_id)
    assert caught.value.remedy
    assert reader.table(table).head_version == 0


@pytest.mark.parametrize("timestamp_ms", [2**63, 2**70, -(2**70)])
def test_a_time_beyond_64_bits_is_no_time(metastore, reader, timestamp_ms):
    table = a_table(metastore)
    try:
        assert reader.version_at(table, timestamp_ms) == 0
    except VersionNotFoundError as error:
        assert error.table == table  # noqa: PT017 - right for times before the first version


@pytest.mark.parametrize("level", ["serializable", "SnapshotIsolation", ""])
def test_an_isolation_level_that_delta_does_not_know_is_refused(metastore, writer, reader, level):
    table = a_table(metastore)
    metadata = changed(reader.summary(table).metadata, **{"delta.isolationLevel": level})
    with pytest.raises(RuleViolationError):
        writer.commit(table, [metadata])
    commit(metastore, table, add("a"))


@pytest.mark.parametrize("read_version", [-1, 1, 2**70])
def test_a_read_version_that_the_table_does_not_have_is_refused(
    metastore, writer, reader, read_version
):
    table = a_table(metastore)
    with pytest.raises(VersionNotFoundError) as caught:
        writer.commit(table, [add("a")], read_version=read_version)
    assert caught.value.table == table
    assert reader.table(table).head_version == 0
