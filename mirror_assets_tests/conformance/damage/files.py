"""Damage to names and places of files."""

from __future__ import annotations

from mirror_assets.delta.log_paths import ClassicCheckpoint, CommitName
from mirror_assets_tests.conformance.damage.kinds import LAST, damage
from mirror_assets_tests.conformance.logs import CHECKPOINT, HEAD, MemoryLog


@damage("DL-FILE-03")
def a_commit_is_missing_in_the_middle(log: MemoryLog) -> None:
    del log.files[CommitName(HEAD - 1).name]


@damage("DL-FILE-04")
def the_first_commit_is_missing(log: MemoryLog) -> bool:
    without = not any(".checkpoint." in name for name in log.files)
    return without and log.files.pop(CommitName(0).name, None) is not None


@damage("DL-FILE-01")
def a_commit_has_five_digits(log: MemoryLog) -> None:
    log.files["00007.json"] = log.files[LAST]


@damage("DL-FILE-05")
def a_checkpoint_has_too_few_digits(log: MemoryLog) -> bool:
    log.files["4.checkpoint.parquet"] = b"PAR1"
    return True


@damage("DL-FILE-06")
def a_part_is_missing(log: MemoryLog) -> bool:
    names = [name for name in log.files if ".0000000002.0000000002." in name]
    for name in names:
        del log.files[name]
    return bool(names)


@damage("DL-FILE-07")
def a_v2_checkpoint_has_no_uuid(log: MemoryLog) -> None:
    log.files[f"{CHECKPOINT:020d}.checkpoint.mine.parquet"] = b"PAR1"


@damage("DL-FILE-08")
def a_sidecar_is_no_parquet(log: MemoryLog) -> None:
    log.files["_sidecars/notes.txt"] = b"x"


@damage("DL-FILE-09")
def a_compaction_runs_backwards(log: MemoryLog) -> None:
    log.files[f"{5:020d}.{2:020d}.compacted.json"] = b"{}\n"


@damage("DL-FILE-10")
def a_checksum_has_too_few_digits(log: MemoryLog) -> None:
    log.files["6.crc"] = b"{}"


@damage("DL-FILE-11")
def a_staged_commit_has_no_uuid(log: MemoryLog) -> None:
    log.files["_staged_commits/7.json"] = b"{}"


@damage("DL-FILE-13")
def a_checkpoint_is_empty(log: MemoryLog) -> bool:
    return _replaced(log, b"")


@damage("DL-FILE-13")
def a_checkpoint_is_torn(log: MemoryLog) -> bool:
    name = log.checkpoint_name()
    return name is not None and _replaced(log, log.files[name][:-20])


@damage("DL-FILE-13")
def a_checkpoint_is_garbage(log: MemoryLog) -> bool:
    return _replaced(log, b"not parquet at all" * 10)


@damage("DL-FILE-14")
def a_checkpoint_is_ahead_of_the_commits(log: MemoryLog) -> bool:
    name = ClassicCheckpoint(CHECKPOINT).name
    if name not in log.files:
        return False
    log.files[ClassicCheckpoint(HEAD + 3).name] = log.files[name]
    return True


@damage("DL-FILE-15")
def a_strange_file_lies_in_the_log(log: MemoryLog) -> None:
    log.files["README.txt"] = b"hello"


@damage("DL-CLN-03")
def cleanup_took_the_commit_of_the_checkpoint(log: MemoryLog) -> bool:
    return CommitName(0).name not in log.files and bool(
        log.files.pop(CommitName(CHECKPOINT).name, None)
    )


@damage("DL-CLN-08")
def commits_lie_below_the_first_checkpoint(log: MemoryLog) -> bool:
    if CommitName(0).name in log.files:
        return False
    log.files[CommitName(CHECKPOINT - 1).name] = log.commit(HEAD)
    return True


def _replaced(log: MemoryLog, data: bytes) -> bool:
    name = log.checkpoint_name()
    if name is not None:
        log.files[name] = data
    return name is not None
