"""Damage to the bytes and lines of commits."""

from __future__ import annotations

import json

from mirror_assets_tests.conformance.damage.kinds import (
    LAST,
    POINTER,
    damage,
    has_history,
    twice,
    without,
)
from mirror_assets_tests.conformance.logs import HEAD, NOW_MS, MemoryLog


@damage("DL-CMT-01")
def a_commit_begins_with_a_byte_order_mark(log: MemoryLog) -> None:
    log.files[LAST] = b"\xef\xbb\xbf" + log.files[LAST]


@damage("DL-CMT-01")
def a_commit_is_not_utf8(log: MemoryLog) -> None:
    log.files[LAST] = log.files[LAST].replace(b"WRITE", b"WR\xffTE")


@damage("DL-CMT-02")
def a_line_has_garbage_behind_it(log: MemoryLog) -> None:
    log.files[LAST] = log.files[LAST].replace(b"}\n", b"}x\n", 1)


@damage("DL-CMT-02")
def a_line_is_torn(log: MemoryLog) -> None:
    log.files[LAST] = log.files[LAST][:-40] + b"\n"


@damage("DL-CMT-02")
def actions_are_pretty_printed(log: MemoryLog) -> None:
    texts = [json.dumps(line, indent=2) for line in log.lines(HEAD)]
    log.files[LAST] = ("\n".join(texts) + "\n").encode()


@damage("DL-CMT-02")
def a_line_is_blank(log: MemoryLog) -> None:
    log.files[LAST] += b"\n"


@damage("DL-CMT-02")
def a_bit_of_a_brace_is_flipped(log: MemoryLog) -> None:
    log.files[LAST] = bytes([log.files[LAST][0] ^ 0x20]) + log.files[LAST][1:]


@damage("DL-CMT-03")
def two_actions_share_a_line(log: MemoryLog) -> None:
    lines = log.lines(HEAD)
    log.put(HEAD, [{**lines[0], **lines[1]}, *lines[2:]])


@damage("DL-CMT-03")
def null_siblings_stand_beside_an_action(log: MemoryLog) -> None:
    lines = log.lines(HEAD)
    log.put(HEAD, [{**line, "txn": None} for line in lines])


@damage("DL-CMT-04")
def an_action_is_unknown(log: MemoryLog) -> None:
    log.put(HEAD, [*log.lines(HEAD), {"somethingNew": {"a": 1}}])


@damage("DL-CMT-05")
def a_sidecar_action_is_in_a_commit(log: MemoryLog) -> None:
    sidecar = {"path": "x.parquet", "sizeInBytes": 1, "modificationTime": NOW_MS}
    log.put(HEAD, [*log.lines(HEAD), {"sidecar": sidecar}])


@damage("DL-CMT-06")
def version_0_has_no_protocol(log: MemoryLog) -> bool:
    return without(log, 0, "protocol")


@damage("DL-CMT-06")
def version_0_has_no_metadata(log: MemoryLog) -> bool:
    return without(log, 0, "metaData")


@damage("DL-CMT-07")
def metadata_is_there_twice(log: MemoryLog) -> bool:
    return twice(log, 0, "metaData")


@damage("DL-CMT-08")
def the_protocol_is_there_twice(log: MemoryLog) -> bool:
    return twice(log, 0, "protocol")


@damage("DL-CMT-09")
def an_application_commits_twice(log: MemoryLog) -> bool:
    return twice(log, 3, "txn")


@damage("DL-CMT-10")
def a_domain_is_there_twice(log: MemoryLog) -> bool:
    return twice(log, HEAD, "domainMetadata")


@damage("DL-CMT-11")
def provenance_comes_last(log: MemoryLog) -> None:
    lines = log.lines(HEAD)
    log.put(HEAD, [*lines[1:], lines[0]])


@damage("DL-CMT-12")
def the_last_newline_is_missing(log: MemoryLog) -> None:
    log.files[LAST] = log.files[LAST][:-1]


@damage("DL-CMT-12")
def lines_end_with_cr_and_lf(log: MemoryLog) -> None:
    log.files[LAST] = log.files[LAST].replace(b"\n", b"\r\n")


@damage("DL-CMT-13")
def a_member_is_there_twice(log: MemoryLog) -> None:
    log.files[LAST] = log.files[LAST].replace(b'"size":', b'"size":1,"size":', 1)


@damage("DL-CMT-15")
def a_commit_is_all_blanks(log: MemoryLog) -> None:
    log.files[LAST] = b"  \n \n\n"


@damage("DL-CMT-02")
def a_commit_ends_in_the_middle(log: MemoryLog) -> None:
    log.files[LAST] = log.files[LAST][: len(log.files[LAST]) // 2]


@damage("DL-CMT-02")
def a_line_is_an_array(log: MemoryLog) -> None:
    log.files[LAST] += b"[1,2]\n"


@damage("DL-CMT-02")
def zero_bytes_follow_a_commit(log: MemoryLog) -> None:
    log.files[LAST] += b"\0"


@damage("DL-CMT-07")
def a_later_commit_has_metadata_twice(log: MemoryLog) -> bool:
    if not has_history(log):
        return False
    metadata = next(line for line in log.lines(0) if "metaData" in line)
    log.put(HEAD, [*log.lines(HEAD), metadata, metadata])
    return True


@damage("DL-CMT-15")
def a_commit_is_empty(log: MemoryLog) -> None:
    log.files[LAST] = b""


@damage("DL-BYTE-01")
def members_are_in_another_order(log: MemoryLog) -> bool:
    lines = log.lines(HEAD)
    for line in lines:
        if "add" in line:
            line["add"] = dict(reversed(line["add"].items()))
    log.put(HEAD, lines)
    return True


@damage("DL-BYTE-02")
def slashes_are_escaped(log: MemoryLog) -> None:
    log.files[LAST] = log.files[LAST].replace(b'"WRITE"', b'"WRI\\/TE"')


@damage("DL-BYTE-05")
def the_pointer_lacks_its_newline(log: MemoryLog) -> bool:
    if POINTER in log.files:
        log.files[POINTER] = log.files[POINTER][:-1]
    return POINTER in log.files
