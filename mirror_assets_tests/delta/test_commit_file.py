"""Commit files: nothing is lost between actions and bytes, in both directions."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror_assets.delta import commit_file
from mirror_assets.delta.actions import (
    AddFile,
    CommitInfo,
    RemoveFile,
    TableProtocol,
    UnknownAction,
)
from mirror_assets.errors import MalformedActionError
from mirror_assets_tests import strategies
from mirror_assets_tests.builders import add, remove, txn
from mirror_assets_tests.delta.samples import a_metadata, a_vector

COMMIT_FILE = re.compile(r"[0-9]{20}\.json")
#: written by hand, with unknown members beside the actions on a line
WITH_SIBLINGS = "delta__transaction_log_schema_evolvability"


@given(st.lists(strategies.actions, max_size=4), st.booleans())
def test_what_is_encoded_is_decoded_again(actions, strict):
    assert commit_file.decode(commit_file.encode(actions), strict=strict).actions == actions


@given(strategies.actions)
def test_the_canonical_line_needs_no_raw_copy(action):
    line = commit_file.encode_action(action)
    assert commit_file.decode_line(line) == commit_file.Line(action)
    assert b"\n" not in line


@given(strategies.actions, st.sampled_from([": ", ":"]), st.booleans())
def test_a_line_in_another_form_is_given_back_as_it_was(action, colon, ascii_only):
    """Other writers put blanks, escapes and nulls where the canonical form has none."""
    value = json.loads(commit_file.encode_action(action))
    text = json.dumps(value, separators=(",", colon), ensure_ascii=ascii_only)
    piece = text.encode()
    line = commit_file.decode_line(piece)
    assert line.encode() == piece
    assert line.action == action


@pytest.mark.parametrize(
    ("action", "line"),
    [
        (
            add("é/a b", partition_values={"p": None}, tags={}),
            (
                '{"add":{"path":"é/a b","partitionValues":{"p":null},"size":1000,'
                '"modificationTime":1760000000000,"dataChange":true,"tags":{}}}'
            ),
        ),
        (
            add("a", deletion_vector=a_vector(offset=0), stats='{"n":1}', extra={"z": 1, "a": 2}),
            (
                '{"add":{"path":"a","partitionValues":{},"size":1000,'
                '"modificationTime":1760000000000,"dataChange":true,"stats":"{\\"n\\":1}",'
                '"deletionVector":{"storageType":"u","pathOrInlineDv":"ab^-aqEH.-t@S}K{vb[*k^",'
                '"offset":0,"sizeInBytes":36,"cardinality":2},"z":1,"a":2}}'
            ),
        ),
        (
            remove("a", stats="s", size=0, partition_values={}, extended_file_metadata=True),
            (
                '{"remove":{"path":"a","deletionTimestamp":1760000000000,"dataChange":true,'
                '"extendedFileMetadata":true,"partitionValues":{},"size":0,"stats":"s"}}'
            ),
        ),
        (
            CommitInfo({"zeta": None, "engineInfo": "e", "operation": "W", "timestamp": 1}),
            '{"commitInfo":{"timestamp":1,"operation":"W","engineInfo":"e","zeta":null}}',
        ),
        (
            TableProtocol(min_reader_version=3, min_writer_version=7, reader_features=[]),
            '{"protocol":{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":[]}}',
        ),
        (txn("\x00\x1f\x7f\b/<", 1, last_updated=None), None),
    ],
)
def test_canonical_lines_have_the_reference_writer_s_order_and_escapes(action, line):
    expected = line or '{"txn":{"appId":"\\u0000\\u001F\x7f\\b/<","version":1}}'
    assert commit_file.encode_action(action).decode() == expected


def test_a_metadata_line_has_the_reference_writer_s_order():
    action = a_metadata(configuration={"z": "1", "a": "2"}, created_time=5, name="n")
    members = json.loads(commit_file.encode_action(action))["metaData"]
    assert [*members] == [
        *("id", "name", "format", "schemaString"),
        *("partitionColumns", "configuration", "createdTime"),
    ]
    assert [*members["configuration"]] == ["z", "a"]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b'{"txn":{"appId":"a","version":1}}',
        b'{"txn":{"appId":"a","version":1}}\n\n  \n{"x":1}\n',
        b'{\n  "txn": {\n "appId": "a",\n "version": 1 }\n}\n{"x":1}',
        b'\xef\xbb\xbf{"txn":{"appId":"a","version":1}}\n',
        b'{"txn":{"appId":"a","version":1}}x\n',
        b'{"txn":{"version":1,"appId":"a","lastUpdated":null}}\r\n',
        b'{"add":null,"txn":{"appId":"a","version":1}}\n',
        (
            b'{"add":{"path":"a","partitionValues":null,"size":"7","modificationTime":1.0,'
            b'"dataChange":true,"stats":{"numRecords":1}}}\n'
        ),
    ],
)
def test_a_file_of_another_writer_is_given_back_byte_for_byte(data):
    assert commit_file.decode(data).encode() == data


def test_what_readers_accept_beyond_the_protocol_is_understood():
    data = (
        b'{"add":{"path":"a","partitionValues":null,"size":"7","modificationTime":1.0,'
        b'"dataChange":true,"stats":{"numRecords":1}}}'
    )
    (action,) = commit_file.decode(data).actions
    assert action == AddFile(
        path="a",
        partition_values={},
        size=7,
        modification_time=1,
        data_change=True,
        stats='{"numRecords":1}',
    )
    with pytest.raises(MalformedActionError):
        commit_file.decode(data, strict=True)


@pytest.mark.parametrize(
    "line",
    [
        b"not json",
        b"[]",
        b"{}",
        b'{"add":null}',
        b'{"add":{"path":"a"}}',
        b'{"add":{"path":"a","partitionValues":{},"size":NaN,"modificationTime":1,"dataChange":true}}',
        b'{"add":{"path":"a","partitionValues":{"p":1},"size":1,"modificationTime":1,"dataChange":true}}',
        b'{"txn":{"appId":"a","version":9223372036854775808}}',
        b'{"txn":{"appId":"a","version":1,"more":123456789012345678901}}',
        b'{"commitInfo":{"x":-9223372036854775809}}',
        b'{"commitInfo":{"x":9223372036854775808}}',
        b'{"commitInfo":[]}',
        b'{"txn":{"appId":"a","version":1},"add":{}}',
        b'{"txn":{"appId":"a","version":1},"beside":1}',
        b'{"txn":{"appId":"a","version":1}} trailing',
        b'{"txn":{"appId":"\\ud800","version":1}}',
        b'{"txn":{"appId":"\xff","version":1}}',
        b'{"txn":{"appId":"a","version":1,"version":2}}',
        b'{"txn":{"appId":"a"\n,"version":1}}',
        b'{"add":' * 2000,
    ],
)
def test_a_malformed_line_is_refused_with_its_number_and_rule(line):
    with pytest.raises(MalformedActionError) as caught:
        commit_file.decode(b'{"txn":{"appId":"a","version":1}}\n' + line, strict=True)
    assert "line 2: " in str(caught.value)
    assert caught.value.rule
    assert caught.value.remedy


@pytest.mark.parametrize(
    "action",
    [
        txn("\ud800"),
        CommitInfo({"x": "\udfff"}),
        CommitInfo({"x": 2**64}),
        UnknownAction(fields={"x": {1: 2}}),
        add("a", extra={"x": object()}),
    ],
)
def test_what_json_cannot_say_is_refused(action):
    with pytest.raises(MalformedActionError) as caught:
        commit_file.encode_action(action)
    assert caught.value.rule


def test_vectors_with_offset_none_and_0_are_different_files():
    none, zero = (remove("a", deletion_vector=a_vector(offset=offset)) for offset in (None, 0))
    assert none.dv_id != zero.dv_id
    decoded = commit_file.decode(commit_file.encode([none, zero]), strict=True).actions
    assert [a.dv_id for a in decoded if isinstance(a, RemoveFile)] == [none.dv_id, zero.dv_id]


def test_every_commit_file_of_the_corpora_is_given_back_byte_for_byte(corpora):
    files = [path for path in corpora.rglob("*.json") if COMMIT_FILE.fullmatch(path.name)]
    assert len(files) > 600
    refused = []
    for path in files:
        data = path.read_bytes()
        try:
            decoded = commit_file.decode(data)
        except MalformedActionError:
            refused.append(path.relative_to(corpora).as_posix())
        else:
            assert decoded.encode() == data, path
    assert refused == []


@pytest.mark.parametrize("family", ["golden", "spark", "kernel"])
def test_canonical_order_reproduces_every_line_of_the_reference_writer(corpora, family):
    for path in (corpora / family).rglob("*.json"):
        if COMMIT_FILE.fullmatch(path.name) and WITH_SIBLINGS not in path.parts:
            for line in commit_file.decode(path.read_bytes()).lines:
                assert line.raw is None, path


def test_a_line_with_unknown_siblings_is_kept_as_it_was(corpora):
    (path,) = (corpora / "spark" / WITH_SIBLINGS).rglob("00000000000000000005.json")
    kept = [line for line in commit_file.decode(path.read_bytes()).lines if line.raw is not None]
    assert [type(line.action) for line in kept] == [CommitInfo, AddFile, AddFile]
    assert all("some_new_action_alongside" in (line.raw or "") for line in kept)
