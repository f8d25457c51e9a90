from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror_assets.delta.locations import normalise_location, within
from mirror_assets.errors import LocationError

segments = st.text(
    st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"], exclude_characters="/\\%"),
    min_size=1,
    max_size=12,
).filter(lambda text: text not in (".", ".."))
local_paths = st.lists(segments, min_size=1, max_size=4).map(lambda parts: "/" + "/".join(parts))


@pytest.mark.parametrize(
    ("spellings", "uri"),
    [
        (
            [
                "/a/b",
                "/a/b/",
                "file:///a/b",
                "file:/a/b",
                "file:///a/b/",
                "FILE:///a/b",
                "file://localhost/a/b",
                "file:///a/%62",
            ],
            "file:///a/b",
        ),
        (["/a b", "file:///a%20b", "file:///a b"], "file:///a%20b"),
        (["/ü", "file:///%C3%BC", "file:///%c3%bc"], "file:///%C3%BC"),
        (["/100%", "file:///100%25"], "file:///100%25"),
        (["/what?#", "file:///what%3F%23"], "file:///what%3F%23"),
        (["s3://b/a", "s3a://b/a", "S3A://B/a/", "s3://b/%61"], "s3://b/a"),
        (["s3://bucket", "s3://bucket/"], "s3://bucket/"),
        (["gs://b/a", "GS://b/a/"], "gs://b/a"),
        (["az://container/a"], "az://container/a"),
        (
            ["abfss://c@acc.dfs.core.windows.net/a", "abfs://C@ACC.dfs.core.windows.net/a/"],
            "abfss://c@acc.dfs.core.windows.net/a",
        ),
        (["memory:///a", "memory:///a/"], "memory:///a"),
        (["memory://x/a"], "memory://x/a"),
        (["/", "file:///"], "file:///"),
    ],
)
def test_all_spellings_of_a_place_become_one_location(spellings: list[str], uri: str) -> None:
    assert {normalise_location(text).uri for text in spellings} == {uri}
    assert len({normalise_location(text) for text in spellings}) == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("/a/b", "/a/bc"),
        ("/a/B", "/a/b"),
        ("s3://b/A", "s3://b/a"),
        ("s3://b/a", "gs://b/a"),
        ("/b/a", "s3://b/a"),
        ("/a%20b", "file:///a%20b"),
        ("memory:///a", "memory://a"),
    ],
)
def test_different_places_have_different_keys(one: str, other: str) -> None:
    assert normalise_location(one).key != normalise_location(other).key


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a/b",
        "./a",
        "../a",
        "~/a",
        "C:/a",
        "/a/../b",
        "/a/./b",
        "/..",
        "/a/..",
        "/a//b",
        "//a/b",
        "/a/b//",
        "/a\\b",
        "/a\0b",
        "/a\nb",
        "/a\x7fb",
        "/a\x85b",
        "/a\u2028b",
        "/a\ud800b",
        "/a/%2e%2e/b",
        "/a/%2E./b",
        "/a%2Fb",
        "/a%5cb",
        "/a%252e",
        "file:///a/%2e%2e/b",
        "file:///a%2fb",
        "file:///a%252fb",
        "file:///a%00b",
        "file:///a%0ab",
        "file:///a%zz",
        "file:///a%",
        "file:///a%ff",
        "file:///a?x=1",
        "file:///a#x",
        "file://host/a",
        "file:a/b",
        "file:",
        "s3://b/a?versionId=1",
        "s3://b/a/../c",
        "s3://b//a",
        "s3:///a",
        "s3:/a",
        "s3:b/a",
        "s3://b:9000/a",
        "s3://key:secret@b/a",
        "s3://b_-/a",
        "s3://%62/a",
        "abfss://container/a",
        "memory:a",
        "http://host/a",
        "hdfs://host/a",
        "dbfs:/a",
        " /a",
    ],
)
def test_what_could_leave_its_root_or_be_read_twice_is_refused(text: str) -> None:
    with pytest.raises(LocationError):
        normalise_location(text)


def test_a_refusal_does_not_repeat_a_password() -> None:
    with pytest.raises(LocationError) as refusal:
        normalise_location("s3://key:secret@bucket/a")

    assert "secret" not in str(refusal.value)


@given(local_paths)
def test_the_uri_of_a_location_names_the_same_place(path: str) -> None:
    location = normalise_location(path)

    assert normalise_location(location.uri) == location
    assert location.path == path
    assert set(location.uri) <= set(string.ascii_letters + string.digits + "/-._~!$&'()*+,;=:@%")


@given(st.text(st.sampled_from("./%2eE5cC\\fF\0a~"), max_size=20))
def test_no_accepted_path_has_a_segment_that_climbs(tail: str) -> None:
    for head in ("/root/", "file:///root/", "s3://bucket/root/"):
        try:
            location = normalise_location(head + tail)
        except LocationError:
            continue
        root = normalise_location(head)
        assert within(root.key, location.key)
        assert not {"", ".", ".."} & set(location.path.split("/")[1:])
        assert "\\" not in location.path


@pytest.mark.parametrize(
    ("root", "place", "expected"),
    [
        ("/a/b", "/a/b", True),
        ("/a/b", "/a/b/c", True),
        ("/a/b", "/a/bc", False),
        ("/a/b", "/a", False),
        ("/", "/a", True),
        ("s3://b", "s3://b/a", True),
        ("s3://b", "s3://bc/a", False),
        ("s3://b/a", "gs://b/a", False),
    ],
)
def test_a_place_lies_within_a_root_only_at_a_segment(
    root: str, place: str, expected: bool
) -> None:
    assert within(normalise_location(root).key, normalise_location(place).key) is expected
