"""Lines of commits: the quick way and the careful way understand the same."""

from __future__ import annotations

import pytest
from hypothesis import given

from mirror_assets.conformance.commit_lines import read_lines
from mirror_assets.delta.actions import Action, CommitInfo, UnknownAction
from mirror_assets.delta.commit_file import decode_line, encode_action
from mirror_assets_tests.strategies import actions


@given(actions.filter(lambda action: not isinstance(action, UnknownAction)))
def test_a_canonical_line_has_no_findings(action: Action) -> None:
    content = read_lines(encode_action(action) + b"\n")
    assert content.lines == [(1, action)]
    assert content.found == []


@pytest.mark.parametrize(
    ("info", "rule"),
    [
        (b'{"operation":"WRITE","timestamp":1}', "DL-BYTE-01"),
        (b'{"timestamp":1, "operation":"WRITE"}', "DL-BYTE-01"),
        (b'{"timestamp":1,"userId":null}', "DL-BYTE-01"),
        (b'{"timestamp":1,"operation":"WR\\/ITE"}', "DL-BYTE-02"),
        (b'{"timestamp":1,"timestamp":1}', "DL-CMT-13"),
        (b'{"timestamp":1},"txn":null', "DL-CMT-03"),
        (b'{"timestamp":1}}x', "DL-CMT-02"),
        (b'{"timestamp":1}}\r', "DL-CMT-12"),
    ],
)
def test_a_commit_info_that_is_not_canonical_is_found(info: bytes, rule: str) -> None:
    piece = b'{"commitInfo":' + info + (b"" if b"}}" in info else b"}")
    content = read_lines(piece + b"\n")
    assert rule in {found.rule for found in content.found}
    assert [action for _, action in content.lines] == [decode_line(piece).action]


def test_a_commit_info_may_have_any_members_behind_those_of_the_protocol() -> None:
    info = CommitInfo({"timestamp": 1, "operation": "WRITE", "zebra": 1.5, "apple": {"b": [1]}})
    content = read_lines(encode_action(info) + b"\n")
    assert (content.lines, content.found) == ([(1, info)], [])
