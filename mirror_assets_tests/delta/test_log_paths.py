from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror_assets.delta.log_paths import (
    ClassicCheckpoint,
    CommitName,
    Compaction,
    CutName,
    LastCheckpoint,
    LogListing,
    LogPath,
    MultiPartCheckpoint,
    SidecarName,
    StagedCommit,
    Unknown,
    V2Checkpoint,
    VersionChecksum,
    parse_log_path,
    sidecar_name,
)

UUID = "80a083e8-7026-4e79-81be-64bd76c43a11"
OTHER_UUID = "90a083e8-7026-4e79-81be-64bd76c43a11"

versions = st.integers(0, 2**63 - 1)
uuids = st.uuids().map(str)
paths: st.SearchStrategy[LogPath] = st.one_of(
    st.builds(CommitName, versions),
    st.builds(ClassicCheckpoint, versions),
    st.builds(VersionChecksum, versions),
    st.tuples(versions, st.integers(1, 10**10 - 1), st.integers(1, 10**10 - 1)).map(
        lambda t: MultiPartCheckpoint(t[0], min(t[1:]), max(t[1:]))
    ),
    st.builds(V2Checkpoint, versions, uuids, st.sampled_from(["json", "parquet"])),
    st.tuples(versions, versions)
    .filter(lambda t: t[0] != t[1])
    .map(lambda t: Compaction(min(t), max(t))),
    st.builds(StagedCommit, versions, uuids),
    st.builds(SidecarName, uuids.map(lambda uuid: f"{uuid}.parquet")),
    st.just(LastCheckpoint()),
    st.builds(CutName, versions),
)


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("00000000000000000007.json", CommitName(7)),
        ("00000000000000000007.crc", VersionChecksum(7)),
        ("00000000000000000007.checkpoint.parquet", ClassicCheckpoint(7)),
        (
            "00000000000000000007.checkpoint.0000000001.0000000003.parquet",
            MultiPartCheckpoint(7, 1, 3),
        ),
        (f"00000000000000000007.checkpoint.{UUID}.json", V2Checkpoint(7, UUID, "json")),
        (f"00000000000000000007.checkpoint.{UUID}.parquet", V2Checkpoint(7, UUID, "parquet")),
        ("00000000000000000007.00000000000000000009.compacted.json", Compaction(7, 9)),
        ("_last_checkpoint", LastCheckpoint()),
        ("_cuts/cut-00000000000000000007.json", CutName(7)),
        ("_sidecars/a.parquet", SidecarName("a.parquet")),
        (f"_staged_commits/00000000000000000007.{UUID}.json", StagedCommit(7, UUID)),
    ],
)
def test_each_kind_of_file_is_told_by_its_name(name: str, path: LogPath) -> None:
    assert parse_log_path(name) == path
    assert str(path) == name


@given(paths)
def test_parsing_a_name_gives_back_what_made_it(path: LogPath) -> None:
    assert parse_log_path(path.name) == path


@given(st.text() | st.from_regex(r"[0-9]{18,22}\.[a-z0-9.]{0,30}", fullmatch=True))
def test_any_text_is_a_name_that_is_kept(text: str) -> None:
    assert parse_log_path(text).name == text


@pytest.mark.parametrize(
    "name",
    [
        ".00000000000000000007.json.crc",
        f".00000000000000000007.json.{UUID}.tmp",
        "00000000000000000007.json.tmp",
        "00000000000000000007.json\n",
        "\u0660" * 20 + ".json",
        "00000000000000000007.JSON",
        "00000000000000000007.checkpoint.0000000000.0000000003.parquet",
        "00000000000000000007.checkpoint.0000000004.0000000003.parquet",
        "00000000000000000007.checkpoint.1.3.parquet",
        "00000000000000000007.checkpoint.token.parquet",
        "00000000000000000009.00000000000000000007.compacted.json",
        "00000000000000000007.00000000000000000007.compacted.json",
        "_sidecars/.a.parquet.crc",
        "_sidecars/a.json",
        "_sidecars/b/a.parquet",
        "_sidecars/",
        f"_staged_commits/7.{UUID}.json",
        "_staged_commits/00000000000000000007.json",
        ".tmp/00000000000000000007.json",
        "sub/00000000000000000007.json",
        "/00000000000000000007.json",
        "_last_checkpoint.bak",
        "",
    ],
)
def test_names_beside_the_protocol_are_unknown(name: str) -> None:
    assert parse_log_path(name) == Unknown(name)


@pytest.mark.parametrize(
    "name", ["7.json", "00007.json", "000000000000000000007.json", "99999999999999999999.json"]
)
def test_a_commit_with_another_number_of_digits_is_unknown_but_recognised(name: str) -> None:
    path = parse_log_path(name)

    assert isinstance(path, Unknown)
    assert path.looks_like_commit


def test_a_sidecar_is_found_by_its_last_segment_whatever_stands_before_it() -> None:
    found = {
        sidecar_name(path).name
        for path in (
            "a%20b.parquet",
            "s3://bucket/table/_delta_log/_sidecars/a%20b.parquet",
            "file:/table/_delta_log/_sidecars/a%20b.parquet",
        )
    }

    assert found == {"_sidecars/a b.parquet"}


def listing(*names: str, empty: tuple[str, ...] = ()) -> LogListing:
    return LogListing.of((name, 0 if name in empty else 10, 5) for name in names)


def commits(*numbers: int) -> list[str]:
    return [CommitName(number).name for number in numbers]


def test_a_listing_sorts_files_by_kind_whatever_their_order() -> None:
    names = [
        *commits(1, 0, 1),
        "00000000000000000001.crc",
        "_last_checkpoint",
        "00000000000000000000.00000000000000000001.compacted.json",
        "_sidecars/a.parquet",
        f"_staged_commits/00000000000000000002.{UUID}.json",
        "00002.json",
        "info.txt",
    ]

    log = listing(*names)

    assert list(log.commits) == [0, 1]
    assert (log.first_commit, log.last_commit) == (0, 1)
    assert (log.commits[1].size, log.commits[1].mtime_ms) == (10, 5)
    assert list(log.checksums) == [1]
    assert log.last_checkpoint is not None
    assert [entry.path for entry in log.compactions] == [Compaction(0, 1)]
    assert list(log.sidecars) == ["_sidecars/a.parquet"]
    assert [entry.path for entry in log.staged_commits] == [StagedCommit(2, UUID)]
    assert [entry.name for entry in log.unknown] == ["00002.json", "info.txt"]
    assert [entry.name for entry in log.misnamed_commits] == ["00002.json"]


def test_an_empty_listing_has_no_versions() -> None:
    log = listing()

    assert log.is_empty
    assert log.first_commit is None
    assert log.last_commit is None
    assert log.newest_checkpoint() is None
    assert log.oldest_reconstructible() is None


def test_gaps_are_the_versions_missing_between_commits() -> None:
    assert listing(*commits(2, 3, 5, 9)).gaps() == (range(4, 5), range(6, 9))
    assert listing(*commits(2, 3)).gaps() == ()


def test_a_multi_part_checkpoint_counts_only_with_all_its_parts() -> None:
    parts = [MultiPartCheckpoint(4, part, 3).name for part in (3, 1, 2)]

    complete, torn = listing(*parts), listing(*parts[:2])

    assert [c.names for c in complete.checkpoints[4]] == [tuple(sorted(parts))]
    assert not torn.checkpoints
    assert [c.names for c in torn.incomplete_checkpoints] == [tuple(sorted(parts[:2]))]


def test_an_empty_checkpoint_file_is_no_checkpoint() -> None:
    name = ClassicCheckpoint(4).name

    log = listing(name, empty=(name,))

    assert log.newest_checkpoint() is None
    assert [c.version for c in log.incomplete_checkpoints] == [4]


def test_at_one_version_v2_is_preferred_to_multi_part_to_classic() -> None:
    classic = ClassicCheckpoint(4)
    parts = [MultiPartCheckpoint(4, part, 2) for part in (1, 2)]
    v2 = [V2Checkpoint(4, UUID, "json"), V2Checkpoint(4, OTHER_UUID, "parquet")]

    log = listing(*(path.name for path in (classic, *parts, *v2)))

    assert [c.files[0].path for c in log.checkpoints[4]] == [v2[1], v2[0], parts[0], classic]


@pytest.mark.parametrize(
    ("at_or_below", "expected"), [(None, 8), (9, 8), (8, 8), (7, 3), (3, 3), (2, None)]
)
def test_the_newest_checkpoint_may_be_bounded(
    at_or_below: int | None, expected: int | None
) -> None:
    found = listing(ClassicCheckpoint(8).name, ClassicCheckpoint(3).name).newest_checkpoint(
        at_or_below
    )

    assert (found.version if found else None) == expected


@pytest.mark.parametrize(
    ("commit_versions", "checkpoint_versions", "expected"),
    [
        ([0, 1, 2], [], (range(3),)),
        ([1, 2], [], ()),
        ([5, 6], [4], (range(4, 7),)),
        ([6, 7], [4], (range(4, 5),)),
        ([0, 1, 3, 4], [3], (range(2), range(3, 5))),
        ([0, 1, 3, 4], [2], (range(5),)),
        ([0, 1, 3, 4], [], (range(2),)),
        ([], [108], (range(108, 109),)),
    ],
)
def test_reconstructible_versions_start_at_commit_0_or_a_checkpoint_and_go_on_without_a_gap(
    commit_versions: list[int], checkpoint_versions: list[int], expected: tuple[range, ...]
) -> None:
    names = [ClassicCheckpoint(version).name for version in checkpoint_versions]

    log = listing(*commits(*commit_versions), *names)

    assert log.reconstructible() == expected
    assert log.oldest_reconstructible() == (expected[0].start if expected else None)
