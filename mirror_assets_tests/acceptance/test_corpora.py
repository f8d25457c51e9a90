"""Every table of the corpora, taken over by every engine, judged by deltalake.

For each table that is imported: its commit files, written again from SQL alone, are the originals
byte for byte; and its live files at every version are those that deltalake finds there. Where
deltalake does not open a version, the replay in memory is asked instead, and the number of such
versions is part of what the test expects.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from mirror_assets.delta.commit_file import decode
from mirror_assets.delta.table_state import TableState, replay, state_at
from mirror_assets.errors import ImportRefusedError
from mirror_assets.findings import Severity
from mirror_assets.metastore.import_source import checkpoint_actions
from mirror_assets.metastore.importer import import_table
from mirror_assets.metastore.log_reader import LogReader
from mirror_assets.storage.log_source import open_log
from mirror_assets_tests.acceptance.rebuilt import corpus_tables, table_name
from mirror_assets_tests.builders import a_metastore

#: the tables that are broken on purpose, and the rule that says how
REFUSED = {
    "delta-rs/simple_table_features": "DL-PROT-02",
    "golden/canonicalized-paths-normal-a": "DL-META-01",
    "golden/canonicalized-paths-normal-b": "DL-META-01",
    "golden/canonicalized-paths-special-a": "DL-META-01",
    "golden/canonicalized-paths-special-b": "DL-META-01",
    "golden/corrupted-last-checkpoint": "DL-META-01",
    "golden/data-reader-absolute-paths-escaped-chars": "DL-CMT-06",
    "golden/deltalog-commit-info": "DL-META-01",
    "golden/deltalog-invalid-protocol-version": "DL-PROT-02",
    "golden/deltalog-state-reconstruction-from-checkpoint-missing-metadata": "DL-META-01",
    "golden/deltalog-state-reconstruction-from-checkpoint-missing-protocol": "DL-META-01",
    "golden/deltalog-state-reconstruction-without-metadata": "DL-CMT-06",
    "golden/deltalog-state-reconstruction-without-protocol": "DL-CMT-06",
    "golden/update-deleted-directory": "DL-META-01",
    "golden/versions-not-contiguous": "DL-FILE-03",
    "kernel/basic_catalog_managed__delta": "DL-CAT-08",
    "kernel/resources__catalog-owned-preview": "DL-CAT-08",
}
FOLDERS = ("delta-rs", "golden", "kernel", "spark")
#: versions that deltalake does not open, by folder
NOT_OPENED = {"delta-rs": 1, "golden": 0, "kernel": 0, "spark": 0}


@dataclass(frozen=True)
class LiveFiles:
    """Path and size of the live files of a version, and who says so."""

    files: Counter[tuple[str, int]]
    by_deltalake: bool


def _commit_files(root: Path) -> dict[int, bytes]:
    found = (root / "_delta_log").glob("*.json")
    return {int(p.stem): p.read_bytes() for p in found if re.fullmatch(r"\d{20}", p.stem)}


@cache
def _live_files(root: Path, version: int) -> LiveFiles:
    try:
        actions = DeltaTable(str(root), version=version).get_add_actions(flatten=True)
    except DeltaError:
        files = _replayed(root, version).files.values()
        return LiveFiles(Counter((add.path, add.size) for add in files), by_deltalake=False)
    paths, sizes = (actions.column(name).to_pylist() for name in ("path", "size_bytes"))
    return LiveFiles(Counter(zip(paths, sizes, strict=True)), by_deltalake=True)


def _replayed(root: Path, version: int) -> TableState:
    source = open_log(str(root))
    listing = source.list()
    base = TableState()
    if 0 not in listing.commits:
        checkpoint = listing.checkpoints[min(listing.checkpoints)][0]
        batches = checkpoint_actions(source, checkpoint)
        base = state_at(checkpoint.version, [action for batch in batches for action in batch])
    wanted = range(base.version + 1, version + 1)
    return replay([(v, decode(source.read(f"{v:020}.json")).actions) for v in wanted], base=base)


@pytest.mark.xdist_group("corpora")
def test_the_refused_tables_are_those_that_no_reader_opens(corpora):
    said = {name for name, says in corpus_tables(corpora).items() if says.startswith("refused")}

    assert said == REFUSED.keys()


@pytest.mark.parametrize(("table", "rule"), REFUSED.items())
def test_what_a_refusal_says_is_in_the_files(corpora, table, rule):
    log = corpora / table / "_delta_log"
    commits = _commit_files(corpora / table)
    actions = [json.loads(line) for v in sorted(commits) for line in commits[v].splitlines()]
    metadata = [action["metaData"] for action in actions if "metaData" in action]
    protocols = [action["protocol"] for action in actions if "protocol" in action]

    match rule:
        case "DL-META-01":
            assert metadata
            assert all("schemaString" not in found for found in metadata)
        case "DL-CMT-06":
            assert not metadata or not protocols
        case "DL-PROT-02":
            assert protocols[-1]["minReaderVersion"] > 3
        case "DL-FILE-03":
            assert sorted(commits) != list(range(len(commits)))
        case "DL-CAT-08":
            assert list((log / "_staged_commits").iterdir())
            assert "catalogManaged" in protocols[-1]["readerFeatures"]


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "folder", [pytest.param(f, marks=pytest.mark.xdist_group(f)) for f in FOLDERS]
)
def test_tables_are_taken_over_without_losing_a_byte_or_a_file(corpora, metastore_url, folder):
    not_opened = 0
    refused = {}
    with a_metastore(metastore_url) as metastore, metastore.engine.connect():
        reader = LogReader(metastore)
        for table in corpus_tables(corpora):
            if not table.startswith(f"{folder}/"):
                continue
            root, name = corpora / table, table_name(table)
            try:
                report = import_table(metastore, open_log(str(root)), name)
            except ImportRefusedError as exc:
                refused[table] = exc
                continue
            written = {commit.version: commit.encode(name) for commit in reader.commits(name)}
            assert written == _commit_files(root), table
            for version in range(report.floor_version, report.version + 1):
                expected = _live_files(root, version)
                found = Counter((add.path, add.size) for add in reader.live_files(name, version))
                assert found == expected.files, (table, version)
                not_opened += not expected.by_deltalake
        registered = {record.name for record in reader.tables()}

    assert {table: exc.rule for table, exc in refused.items()} == {
        table: rule for table, rule in REFUSED.items() if table.startswith(f"{folder}/")
    }
    for table, exc in refused.items():
        assert any(found.severity is Severity.ERROR for found in exc.findings), table
        assert table_name(table) not in registered
    assert not_opened == NOT_OPENED[folder]
