"""Publishing checkpoints: what they hold, what becomes visible when, what is refused."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import msgspec
import pyarrow.parquet as pq
import pytest

from mirror_assets.delta.checkpoint import (
    checkpoint_schema,
    read_checkpoint_batches,
)
from mirror_assets.delta.last_checkpoint import (
    ChecksumVerdict,
    parse_last_checkpoint,
    verify_checksum,
)
from mirror_assets.delta.log_paths import ClassicCheckpoint, LastCheckpoint, V2Checkpoint
from mirror_assets.delta.table_properties import DAY_MS
from mirror_assets.delta.table_state import TableState, state_at
from mirror_assets.delta.version_checksum import TableSummary, parse_version_checksum
from mirror_assets.errors import (
    CheckpointMismatchError,
    TableStateError,
    UnsupportedTableError,
)
from mirror_assets.metastore import arrow_reader, tables
from mirror_assets.metastore.checkpoint_source import CheckpointSource
from mirror_assets.metastore.log_reader import LogReader
from mirror_assets.mirror.checkpoint_audit import read_sidecars
from mirror_assets.mirror.checkpointer import publish_version_checksum
from mirror_assets.storage.log_store import Created, Identical
from mirror_assets_tests.builders import add, changed, commit, state_in_sql, txn
from mirror_assets_tests.delta.samples import a_domain, a_field, a_vector, stats_of
from mirror_assets_tests.mirror.lake import NOW_MS, Lake, removal

if TYPE_CHECKING:
    from pathlib import Path

    from mirror_assets.delta.actions import Action
    from mirror_assets.metastore.database import Metastore
    from mirror_assets.mirror.checkpointer import PublishedCheckpoint


def actions_in(lake: Lake, published: PublishedCheckpoint) -> list[Action]:
    """All actions of a checkpoint, those of its sidecars too."""
    files = [lake.log / published.name.name]
    if isinstance(published.name, V2Checkpoint):
        sidecars = read_sidecars(lake.store, published.name)
        files += [lake.log / "_sidecars" / sidecar.path for sidecar in sidecars]
    found: list[Action] = []
    for file in files:
        with file.open("rb") as stream:
            found += [action for batch in read_checkpoint_batches(stream) for action in batch]
    return found


def without_change(state: TableState) -> TableState:
    """As a checkpoint tells it: no data change, tombstones without tags and statistics."""
    replace = msgspec.structs.replace
    files = {k: replace(add, data_change=False) for k, add in state.files.items()}
    tombstones = {
        k: replace(remove, data_change=False, tags=None, stats=None)
        for k, remove in state.tombstones.items()
    }
    return TableState(
        version=state.version,
        protocol=state.protocol,
        metadata=state.metadata,
        files=files,
        tombstones=tombstones,
        txns=state.txns,
        domains=state.domains,
    )


@pytest.mark.parametrize(
    ("v2", "vectors", "bulk"),
    [(False, False, True), (False, True, False), (True, False, False), (True, True, True)],
)
def test_a_checkpoint_holds_the_state_of_its_version_on_every_engine(
    metastore: Metastore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    v2: bool,
    vectors: bool,
    bulk: bool,
) -> None:
    if bulk:
        monkeypatch.setattr(arrow_reader, "_FEW", -1)
    lake = Lake(metastore, tmp_path / "table")
    optional = {"deletionVectors": vectors, "v2Checkpoint": v2}
    wanted = ("domainMetadata", *(name for name, is_wanted in optional.items() if is_wanted))
    lake.create(a_field("id"), a_field("p", "string"), partition_columns=["p"], features=wanted)
    files = [
        add(
            f"p=x/{number}.parquet",
            partition_values={"p": [None, "x", 'a "quoted" 😀'][number % 3]},
            stats=stats_of(number) if number else None,
            tags={"t": None} if number == 1 else None,
            base_row_id=number if number == 2 else None,
            default_row_commit_version=1 if number == 2 else None,
            clustering_provider="liquid" if number == 3 else None,
            deletion_vector=a_vector(cardinality=1, offset=None)
            if vectors and number == 4
            else None,
        )
        for number in range(6)
    ]
    lake.commit(*files, txn("app", 1), a_domain("kept"))
    lake.commit(removal(files[0]), removal(files[4]), txn("app", 2), a_domain("gone"))
    version = lake.commit(
        a_domain("gone", removed=True), add("last.parquet", partition_values={"p": ""})
    )
    commit(metastore, lake.name, removal(files[5]))

    published = lake.checkpoint(version)

    told = state_at(version, actions_in(lake, published))
    assert told == without_change(state_in_sql(metastore, lake.name, version))
    assert published.content.removes == 2


def test_the_file_has_delta_sparks_schema_to_the_letter(lake: Lake) -> None:
    lake.create(a_field("id"))
    version = lake.commit(add("a.parquet"), add("b.parquet"))
    version = lake.commit(removal(add("a.parquet")))

    published = lake.checkpoint(version)

    file = pq.ParquetFile(lake.log / published.name.name)
    assert file.schema_arrow.equals(checkpoint_schema())
    leaves = [file.schema.column(number) for number in range(len(file.schema))]
    required = {leaf.path for leaf in leaves if leaf.max_definition_level < leaf.path.count(".")}
    assert all("key_value" in path or "list" in path for path in required)
    assert file.metadata.metadata is None
    types = {leaf.path: leaf.physical_type for leaf in leaves}
    assert types["protocol.minReaderVersion"] == types["add.deletionVector.offset"] == "INT32"
    assert types["add.size"] == types["txn.version"] == "INT64"
    group = file.metadata.row_group(1)
    assert not any(group.column(n).has_column_index for n in range(group.num_columns))
    assert {group.column(n).compression for n in range(group.num_columns)} == {"ZSTD"}


def test_adds_and_removes_never_share_a_row_group(lake: Lake) -> None:
    lake.create(a_field("id"))
    lake.commit(add("a.parquet"), add("b.parquet"))
    version = lake.commit(removal(add("a.parquet")))

    file = pq.ParquetFile(lake.log / lake.checkpoint(version).name.name)

    for number in range(file.num_row_groups):
        rows = file.read_row_group(number).to_pylist()
        assert len({name for row in rows for name in ("add", "remove") if row[name]}) <= 1


def test_tombstones_leave_when_their_retention_has_passed(lake: Lake) -> None:
    lake.create(
        a_field("id"), configuration={"delta.deletedFileRetentionDuration": "interval 24 hours"}
    )
    lake.commit(add("a.parquet"), add("b.parquet"), add("c.parquet"))
    old, young = NOW_MS - DAY_MS, NOW_MS - DAY_MS + 1
    absent = msgspec.structs.replace(removal(add("c.parquet")), deletion_timestamp=None)
    version = lake.commit(removal(add("a.parquet"), old), removal(add("b.parquet"), young), absent)

    published = lake.checkpoint(version)

    removed = [a.path for a in actions_in(lake, published) if hasattr(a, "deletion_timestamp")]
    assert removed == ["b.parquet"]


def test_transactions_expire_only_if_the_table_says_so(lake: Lake) -> None:
    lake.create(a_field("id"))
    version = lake.commit(
        txn("old", 1, last_updated=NOW_MS - DAY_MS), txn("untold", 2, last_updated=None)
    )
    assert lake.checkpoint(version).content.txns == 2

    metadata = LogReader(lake.metastore).summary(lake.name).metadata
    retention = {"delta.setTransactionRetentionDuration": "interval 1 day"}
    version = lake.commit(changed(metadata, **retention))

    told = actions_in(lake, lake.checkpoint(version))
    assert [a.app_id for a in told if hasattr(a, "app_id")] == ["untold"]


def test_the_pointer_tells_the_truth_and_carries_a_valid_checksum(lake: Lake) -> None:
    lake.create(a_field("id"))
    version = lake.commit(add("a.parquet"), txn("app", 1))

    published = lake.checkpoint(version)

    data = (lake.log / LastCheckpoint().name).read_bytes()
    assert verify_checksum(data) is ChecksumVerdict.VALID
    hint = parse_last_checkpoint(data)
    size = (lake.log / published.name.name).stat().st_size
    assert (hint.version, hint.size, hint.num_of_add_files) == (version, 4, 1)
    assert (hint.size_in_bytes, hint.parts, hint.v2_checkpoint) == (size, None, None)


def test_the_pointer_never_goes_back(lake: Lake) -> None:
    lake.create(a_field("id"))
    first = lake.commit(add("a.parquet"))
    second = lake.commit(add("b.parquet"))
    assert lake.checkpoint(second).pointer_moved
    before = lake.store.read(LastCheckpoint())

    published = lake.checkpoint(first)

    assert published.is_new
    assert not published.pointer_moved
    assert lake.store.read(LastCheckpoint()) == before


@pytest.mark.parametrize("broken", [b"", b"garbage", b'{"version":"x"}'])
def test_an_unreadable_pointer_is_replaced(lake: Lake, broken: bytes) -> None:
    lake.create(a_field("id"))
    version = lake.commit(add("a.parquet"))
    (lake.log / LastCheckpoint().name).write_bytes(broken)

    assert lake.checkpoint(version).pointer_moved


@pytest.mark.parametrize("features", [(), ("v2Checkpoint",)], ids=["classic", "v2"])
def test_a_checkpoint_that_is_there_is_verified_and_adopted(
    lake: Lake, features: tuple[str, ...]
) -> None:
    lake.create(a_field("id"), features=features)
    lake.commit(add("a.parquet"), add("b.parquet"))
    version = lake.commit(removal(add("a.parquet")))
    first = lake.checkpoint(version)
    (lake.log / LastCheckpoint().name).unlink()

    again = lake.checkpoint(version, now_ms=NOW_MS + 30 * DAY_MS)

    assert (again.name, again.is_new, again.pointer_moved) == (first.name, False, True)
    assert again.content == first.content
    assert again.size_bytes == first.size_bytes


def test_a_foreign_checkpoint_that_differs_is_neither_overwritten_nor_pointed_at(
    lake: Lake,
) -> None:
    lake.create(a_field("id"))
    first = lake.commit(add("a.parquet"))
    version = lake.commit(add("b.parquet"))
    wrong = (lake.log / lake.checkpoint(first).name.name).read_bytes()
    (lake.log / ClassicCheckpoint(version).name).write_bytes(wrong)

    with pytest.raises(CheckpointMismatchError, match="adds 1 instead of 2"):
        lake.checkpoint(version)

    assert (lake.log / ClassicCheckpoint(version).name).read_bytes() == wrong
    assert parse_last_checkpoint(lake.store.read(LastCheckpoint()) or b"").version == first


def test_a_torn_checkpoint_is_refused(lake: Lake) -> None:
    lake.create(a_field("id"))
    version = lake.commit(add("a.parquet"))
    (lake.log / ClassicCheckpoint(version).name).write_bytes(b"PAR1 torn")

    with pytest.raises(CheckpointMismatchError, match="cannot be decoded"):
        lake.checkpoint(version)


def test_nothing_is_uploaded_if_the_count_differs_from_sql(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.create(a_field("id"))
    version = lake.commit(add("a.parquet"))
    monkeypatch.setattr(CheckpointSource, "adds", lambda *_, **__: iter(()))

    with pytest.raises(CheckpointMismatchError, match="adds 0 instead of 1"):
        lake.checkpoint(version)

    assert not list(lake.log.glob("*checkpoint*"))


def test_a_version_that_is_not_published_gets_no_checkpoint(lake: Lake) -> None:
    lake.create(a_field("id"))
    lake.mirror()
    version = commit(lake.metastore, lake.name, add("a.parquet")).version

    with pytest.raises(TableStateError, match="not published"):
        lake.checkpoint(version)


def test_a_protected_version_gets_no_checkpoint(lake: Lake) -> None:
    lake.create(a_field("id"), features=("checkpointProtection",))
    version = lake.commit(add("a.parquet"))
    metadata = LogReader(lake.metastore).summary(lake.name).metadata
    guard = {"delta.requireCheckpointProtectionBeforeVersion": "2"}
    lake.commit(changed(metadata, **guard))

    with pytest.raises(UnsupportedTableError, match="protected"):
        lake.checkpoint(version)
    assert lake.checkpoint(version + 1).is_new


def test_a_table_with_an_unknown_feature_gets_no_checkpoint(lake: Lake) -> None:
    lake.create(a_field("id"))
    version = lake.commit(add("a.parquet"))
    with lake.metastore.write() as connection:
        strange = {"min_writer_version": 7, "writer_features": '["newer"]'}
        connection.execute(tables.dl_protocol_updates.update().values(strange))

    with pytest.raises(UnsupportedTableError, match="'newer'"):
        lake.checkpoint(version)


def test_the_version_checksum_sums_up_sqls_state(lake: Lake) -> None:
    lake.create(a_field("id"), features=("domainMetadata",))
    version = lake.commit(add("a.parquet", size=7), txn("app", 3), a_domain("kept"))

    outcome = publish_version_checksum(lake.metastore, lake.store, lake.name, version)

    assert isinstance(outcome, Created)
    data = (lake.log / f"{version:020d}.crc").read_bytes()
    summary = parse_version_checksum(data)
    assert isinstance(summary, TableSummary)
    state = state_in_sql(lake.metastore, lake.name, version)
    assert (summary.num_files, summary.table_size_bytes) == (1, 7)
    assert (summary.num_metadata, summary.num_protocol) == (1, 1)
    assert (summary.metadata, summary.protocol) == (state.metadata, state.protocol)
    assert summary.set_transactions == list(state.txns.values())
    assert summary.domain_metadata == list(state.domains.values())
    info = json.loads((lake.log / f"{version:020d}.json").read_text().splitlines()[0])
    assert summary.in_commit_timestamp == info["commitInfo"]["inCommitTimestamp"]
    again = publish_version_checksum(lake.metastore, lake.store, lake.name, version)
    assert isinstance(again, Identical)


def test_transactions_that_may_expire_are_not_listed_in_the_checksum(lake: Lake) -> None:
    retention = {"delta.setTransactionRetentionDuration": "interval 1 day"}
    lake.create(a_field("id"), configuration=retention)
    version = lake.commit(txn("app", 1))

    publish_version_checksum(lake.metastore, lake.store, lake.name, version)

    summary = parse_version_checksum((lake.log / f"{version:020d}.crc").read_bytes())
    assert summary.set_transactions is None
