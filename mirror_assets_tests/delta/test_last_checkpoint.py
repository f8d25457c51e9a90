from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror_assets.delta.last_checkpoint import (
    CheckpointHint,
    ChecksumVerdict,
    UnusableHint,
    checksums,
    encode_hint,
    parse_last_checkpoint,
    verify_checksum,
)

if TYPE_CHECKING:
    from pathlib import Path

SPECIFIED = (
    b'{"k0":"\'v 0\'", "checksum": "adsaskfljadfkjadfkj", "k1":{"k2": 2, "k3": '
    b'["v3", [1, 2], {"k4": "v4", "k5": ["v5", "v6", "v7"]}]}}'
)
hints = st.builds(
    CheckpointHint,
    version=st.integers(0, 2**63 - 1),
    size=st.integers(0, 2**63 - 1),
    parts=st.none() | st.integers(2, 100),
    size_in_bytes=st.none() | st.integers(0, 2**63 - 1),
    num_of_add_files=st.none() | st.integers(0, 2**63 - 1),
    checkpoint_schema=st.none() | st.just({"type": "struct", "fields": []}),
    v2_checkpoint=st.none()
    | st.fixed_dictionaries({"path": st.text(), "nonFileActions": st.lists(st.text())}),
    tags=st.none() | st.dictionaries(st.text(), st.text()),
)


def test_both_checksums_of_the_protocols_example_are_the_published_one() -> None:
    sums = checksums(SPECIFIED)

    assert (sums.protocol, sums.spark) == ("6a92d155a59bf2eecbd4b4ec7fd1f875",) * 2


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (b'{"a":1,"b":2}', b'{ "b": 2, "a": 1 }'),
        (b'{"a":1,"checksum":"x"}', b'{"a":1}'),
        (b'{"a":1,"b":[],"c":{}}', b'{"a":1}'),
        (b'{"a":"\\u00e4"}', '{"a":"ä"}'.encode()),
    ],
)
def test_order_blanks_escapes_and_empty_members_do_not_count(one: bytes, other: bytes) -> None:
    assert checksums(one) == checksums(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (b'{"a":1}', b'{"a":"1"}'),
        (b'{"a":1}', b'{"a":1.0}'),
        (b'{"a":null}', b"{}"),
        (b'{"a":{"checksum":1}}', b'{"a":{}}'),
        (b'{"a":true}', b'{"a":"true"}'),
    ],
)
def test_types_number_texts_and_nulls_count(one: bytes, other: bytes) -> None:
    assert checksums(one) != checksums(other)


def test_a_checksum_is_left_out_where_the_two_orders_differ() -> None:
    features = [f"feature{i}" for i in range(12)]
    hint = CheckpointHint(
        version=1, size=3, v2_checkpoint={"nonFileActions": [{"protocol": features}]}
    )

    data = encode_hint(hint)
    sums = checksums(data)

    assert sums.protocol != sums.spark
    assert verify_checksum(data) is ChecksumVerdict.ABSENT
    for checksum in (sums.protocol, sums.spark):
        signed = json.dumps(json.loads(data) | {"checksum": checksum}).encode()
        assert verify_checksum(signed) is ChecksumVerdict.VALID


def test_a_changed_file_has_an_invalid_checksum() -> None:
    data = encode_hint(CheckpointHint(version=1, size=3))

    assert verify_checksum(data) is ChecksumVerdict.VALID
    assert verify_checksum(data.replace(b":1,", b":2,")) is ChecksumVerdict.INVALID


@pytest.mark.parametrize("data", [b"", b"[]", b'{"version":1,"version":2,"size":1}'])
def test_verifying_refuses_what_is_not_one_object_with_unique_members(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        verify_checksum(data)


def test_a_hint_is_written_in_sparks_order_with_a_final_newline() -> None:
    hint = CheckpointHint(version=10, size=13, size_in_bytes=99, num_of_add_files=11)

    assert encode_hint(hint).startswith(
        b'{"version":10,"size":13,"sizeInBytes":99,"numOfAddFiles":11,"checksum":"'
    )
    assert encode_hint(hint).endswith(b'"}\n')


@given(hints)
def test_a_hint_survives_writing_and_reading(hint: CheckpointHint) -> None:
    data = encode_hint(hint)
    again = parse_last_checkpoint(data)

    assert isinstance(again, CheckpointHint)
    assert encode_hint(again) == data
    assert again.version == hint.version
    assert again.v2_checkpoint == hint.v2_checkpoint
    assert verify_checksum(data) is not ChecksumVerdict.INVALID


@pytest.mark.parametrize(
    ("document", "members"),
    [
        ({"size": 5, "version": 2, "parts": None}, {"size": 5, "version": 2, "parts": None}),
        ({"size": 5, "size_in_bytes": 7, "version": 2}, {"size_in_bytes": 7}),
        ({"size": 5, "version": 2, "unheardOf": {}}, {"version": 2}),
        ({"size": "5", "version": "2"}, {"size": 5, "version": 2}),
    ],
)
def test_old_and_unknown_members_are_tolerated(
    document: dict[str, Any], members: dict[str, Any]
) -> None:
    hint = parse_last_checkpoint(json.dumps(document).encode())

    assert isinstance(hint, CheckpointHint)
    assert {name: getattr(hint, name) for name in members} == members


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x00\xff",
        b"[1]",
        b"{}",
        b'{"version":-1,"size":1}',
        b'{"version":null,"size":1}',
        b'{"version":1,"si',
        b"[" * 100_000,
    ],
)
def test_a_broken_hint_is_unusable_and_says_why(data: bytes) -> None:
    hint = parse_last_checkpoint(data)

    assert isinstance(hint, UnusableHint)
    assert hint.reason


@pytest.mark.corpora
def test_every_checksum_of_the_corpora_verifies_and_is_written_again(corpora: Path) -> None:
    files = sorted(corpora.rglob("_delta_log/_last_checkpoint"))
    signed = 0
    for file in files:
        data = file.read_bytes()
        hint = parse_last_checkpoint(data)
        if isinstance(hint, UnusableHint):
            assert not data.strip(), file
            continue
        verdict = verify_checksum(data)
        assert verdict is not ChecksumVerdict.INVALID, file
        if verdict is ChecksumVerdict.VALID:
            signed += 1
            assert encode_hint(hint).rstrip(b"\n") == data.rstrip(b"\n"), file
    assert signed
