"""Both lanes of an import give the same rows, and so does the text of COPY."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror_assets.delta.commit_file import decode_line, encode_action
from mirror_assets.metastore.plain_lines import PlainMaps, Scratch, Window
from mirror_assets.metastore.plain_rows import (
    COPY_NULL,
    SHAPES,
    CopyText,
    find_plain_files,
    rows_of,
)
from mirror_assets.metastore.rows import to_row
from mirror_assets_tests.delta.samples import a_remove, an_add
from mirror_assets_tests.strategies import actions

PLACE = (7, 12, 100)
STATS = json.dumps({"numRecords": 3, "minValues": {"name": "a/b", "x": 1.5}})
PLAIN = [
    an_add("p=1/a.parquet", partition_values={"p": "1", "q": None}, stats=STATS),
    an_add("b%20c.parquet", size=0, data_change=False, stats='{"numRecords":0}'),
    an_add("é😀.parquet", partition_values={"ключ": "значение"}),
    an_add("no-stats", size=10**17),
    a_remove("gone", partition_values={"p": "x"}, extended_file_metadata=True, size=3),
]


def _line(path=b"ab", values=b"{}", size=b"1", change=b"true", rest=b"") -> bytes:
    return (
        b'{"add":{"path":"%b","partitionValues":%b,"size":%b,"modificationTime":1,"dataChange":%b%b}}'
        % (path, values, size, change, rest)
    )


#: lines that look plain, or nearly so, and are not
ODD = [
    _line(size=b"01"),
    _line(size=b"-1"),
    _line(size=b"1.0"),
    _line(size=b""),
    _line(size=b"99999999999999999999"),
    _line(values=b'{"a":1}'),
    _line(values=b'{"a": "1"}'),
    _line(values=b'{"a":"\\"1"}'),
    _line(values=b"null"),
    _line(path=b'a\\"b'),
    _line(path=b"a"),
    _line(path=b""),
    _line(path=b"a\tb"),
    _line(change=b"null"),
    _line(change=b"truefalse"),
    _line(rest=b',"stats":"-"'),
    _line(rest=b',"stats":"\\u0041b"'),
    _line(rest=b',"stats":"a\\\\"'),
    _line(rest=b',"stats":"a"b"'),
    _line(rest=b',"stats":"x","tags":{}'),
    _line(rest=b',"stats":null'),
    _line() + b"\r",
    _line() + b" ",
    b" " + _line(),
    b'{"add":{"path":"ab","size":1,"partitionValues":{},"modificationTime":1,"dataChange":true}}',
    b'{"remove":{"path":"ab","deletionTimestamp":1,"dataChange":true}}',
    b"",
    b"{}",
]


def _lines_taken(data: bytes):
    """Rows and rows of COPY by line, of the lines that the fast lane takes."""
    window = Window(memoryview(data), Scratch())
    copy = CopyText()
    taken = {}
    for shape, files in find_plain_files(window, PlainMaps()):
        rows = rows_of(shape, files, PLACE)
        text = copy.render(shape, files, PLACE)
        copied = [_row_of_copy(shape, line) for line in text.decode().split("\n")[:-1]]
        assert len(rows) == len(copied) == len(files.lines) == len(files.paths)
        keys = zip(files.lines.tolist(), rows, copied, files.paths, files.sizes, strict=True)
        for line, row, from_copy, path, size in keys:
            assert path.decode() == row[3]
            assert size in row
            taken[line] = (shape.table, row, from_copy)
    assert sorted(taken) == [i for i, free in enumerate(window.free) if not free]
    return taken


def _row_of_copy(shape, line: str):
    """What PostgreSQL makes of a line of COPY, by its documentation."""
    values = dict(zip(shape.copied, line.split("\t"), strict=True))
    row = []
    for column in shape.table.columns:
        text = values.get(column.name, COPY_NULL)
        kind = column.type.python_type
        if text == COPY_NULL:
            row.append(None)
        elif kind is bool:
            row.append({"true": True, "false": False}[text.strip(" ")])
        elif kind is int:
            row.append(int(text.strip(" ")))
        else:
            row.append(re.sub(r"\\(.)", r"\1", text))
    return tuple(row)


def _row_by_decoding(piece: bytes, line: int):
    decoded = decode_line(piece)
    table_id, version, first = PLACE
    return decoded.raw, to_row(decoded.action, (table_id, version, first + line), decoded.raw)


def test_plain_lines_take_the_fast_lane():
    data = b"".join(encode_action(action) + b"\n" for action in PLAIN)

    assert len(_lines_taken(data)) == len(PLAIN)


@pytest.mark.parametrize("piece", ODD)
@pytest.mark.parametrize("beside", ["before", "after", "alone"])
def test_lines_that_are_not_plain_are_left_alone(piece, beside):
    plain = encode_action(PLAIN[0])
    lines = {"before": [piece, plain], "after": [plain, piece], "alone": [piece]}[beside]

    taken = _lines_taken(b"\n".join(lines))

    assert len(taken) == len(lines) - 1


def test_bytes_that_are_not_utf8_leave_the_whole_window_alone():
    assert not _lines_taken(_line() + b"\n" + _line(path=b"a\xff") + b"\n" + _line())


@given(st.lists(actions | st.sampled_from(PLAIN), min_size=1, max_size=6), st.booleans())
def test_both_lanes_give_the_same_rows(given_actions, final_newline):
    pieces = [encode_action(action) for action in given_actions]
    data = b"\n".join(pieces) + (b"\n" if final_newline else b"")

    for line, (table, row, from_copy) in _lines_taken(data).items():
        raw, expected = _row_by_decoding(pieces[line], line)
        assert raw is None
        assert (table, row) == expected
        assert from_copy == row


@given(st.data())
def test_a_damaged_line_is_never_taken_for_another(data):
    piece = encode_action(data.draw(st.sampled_from(PLAIN)))
    at = data.draw(st.integers(0, len(piece) - 1))
    damage = data.draw(st.sampled_from([b"", b"\\", b'"', b",", b"}", b" ", b"0", b"\xff", b"\t"]))
    damaged = piece[:at] + damage + piece[at + 1 :]

    for table, row, from_copy in _lines_taken(damaged + b"\n").values():
        raw, expected = _row_by_decoding(damaged, 0)
        assert raw is None
        assert (table, row) == expected
        assert from_copy == row


@pytest.mark.parametrize("shape", SHAPES)
def test_what_overwrites_a_literal_is_as_long_as_it(shape):
    for text, literal in zip(shape.overwriting, shape.shape.literals, strict=True):
        for place in ((1, 0), (10**8 - 1, 10**15 - 1)):
            assert len(text.format(table_id=place[0], version=place[1])) == len(literal)
