"""Reports: JUnit XML and the page."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from xml.etree.ElementTree import fromstring

from mirror_assets.conformance.html import html_page
from mirror_assets.conformance.junit import junit_xml
from mirror_assets.conformance.page_parts import coverage, family_rows, groups_of
from mirror_assets.conformance.report import Growth, ReaderVerdict, Report
from mirror_assets.conformance.rulebook import Profile, rulebook
from mirror_assets.conformance.validator import verify_log
from mirror_assets_tests.conformance.damage import DAMAGES
from mirror_assets_tests.conformance.healthy import healthy
from mirror_assets_tests.conformance.shapes import SHAPES


def damaged(*kinds: str) -> Report:
    log = healthy(SHAPES[2])
    for kind in kinds:
        DAMAGES[kind][1](log)
    return verify_log(log, profile=Profile.STRICT, table="sales.<orders>")


class Page(HTMLParser):
    """Collects the text, and what the page would load."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.text, self.loads = "", []
        self.feed(source)

    def handle_data(self, data: str) -> None:
        self.text += data

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        del tag
        self.loads += [value for name, value in attrs if name in ("src", "href")]


def test_junit_has_a_case_per_rule_and_a_failure_per_broken_one() -> None:
    report = damaged("a_commit_begins_with_a_byte_order_mark", "a_strange_file_lies_in_the_log")
    root = fromstring(junit_xml(report))
    cases = {case.get("name"): case for case in root.iter("testcase")}
    assert cases.keys() == set(report.rules)
    failed = {name for name, case in cases.items() if case.find("failure") is not None}
    assert failed == {"DL-CMT-01"}
    assert "README.txt" in cases["DL-FILE-15"].findtext("system-out", "")
    assert sum(int(suite.get("failures", "0")) for suite in root) == 1


def test_junit_survives_control_characters_in_names() -> None:
    log = healthy(SHAPES[0])
    log.files["a\x00\x1b.txt"] = b""
    fromstring(junit_xml(verify_log(log)))


def test_the_page_shows_everything_escaped_and_loads_nothing() -> None:
    report = damaged("a_checkpoint_lacks_a_file", "the_pointer_counts_wrong")
    verdict = ReaderVerdict(reader="duckdb", version=6, outcome="agrees", detail="50 rows")
    source = html_page(report.with_readers((verdict,)), made_at="2026-01-31 10:00 UTC")
    page = Page(source)
    assert page.loads == []
    assert "url(" not in source
    assert "sales.<orders>" in page.text
    for word in ("DL-CP-01", "DL-LCP-03", "duckdb", "50 rows", "Protocol: Checkpoints"):
        assert word in page.text
    assert len(re.findall("<polyline", source)) == 2


def test_the_matrix_of_readers_has_a_column_for_each_and_a_colour_for_each_outcome() -> None:
    outcomes = {
        "deltalake": ("agrees", "50 rows"),
        "sail": ("refuses", "no <answer> within 300 s"),
        "deltalake-0.25": ("differs", "49 rows, by the log 50"),
        "chdb": ("limit", "it has no time travel (noted 2026-11-18): Code: 1."),
    }
    verdicts = tuple(
        ReaderVerdict(reader=reader, version=version, outcome=outcome, detail=detail)
        for version in (3, 6)
        for reader, (outcome, detail) in outcomes.items()
    )
    source = html_page(damaged().with_readers(verdicts), made_at="now")
    page = Page(source)
    colours = dict(re.findall(r"\.(agrees|limit) \{ background: (#\w+)", source))
    colours["differs"] = re.findall(r"\.differs, \.refuses \{ background: (#\w+)", source)[0]
    assert len(set(colours.values())) == 3
    for reader, (outcome, detail) in outcomes.items():
        assert source.count(f"<th>{reader}</th>") == 1
        assert source.count(f'<span class="tag {outcome}">') == 2
        assert page.text.count(detail) == 2


def test_the_page_of_a_sound_log_says_so() -> None:
    text = Page(html_page(damaged(), made_at="now")).text
    assert "No rule is broken." in text
    assert "None." in text


def test_findings_of_one_rule_stand_together() -> None:
    log = healthy(SHAPES[0])
    for name in [name for name in log.files if name.endswith(".json")]:
        log.files[name] = log.files[name][:-1]
    (group,) = groups_of(verify_log(log, table="orders"))
    assert group.rule == "DL-CMT-12"
    assert len(group.told) + len(group.folded) == 7
    text = Page(html_page(verify_log(log), made_at="now")).text
    assert "7 times" in text
    assert text.count("What to do.") == 1


def test_the_map_shows_every_rule_of_the_book_and_what_became_of_it() -> None:
    rows = family_rows(damaged("a_commit_begins_with_a_byte_order_mark"))
    states = {cell.rule: cell.state for row in rows for cell in row.cells}
    assert states.keys() == rulebook().keys()
    assert states["DL-CMT-01"] == "error"
    assert states["DL-CMT-02"] == "kept"
    assert states["DL-CMT-16"] == "kept", "found as another that is asked"
    assert states["DL-SCH-10"] == "ours"
    assert states["DL-META-06"] == "unasked"
    assert coverage(rows)["error"] == 1
    assert sum(coverage(rows).values()) == len(rulebook())


def test_rules_that_a_profile_does_not_mind_are_not_asked() -> None:
    report = verify_log(healthy(SHAPES[0]), profile=Profile.READ)
    states = {cell.rule: cell.state for row in family_rows(report) for cell in row.cells}
    assert states["DL-CMT-01"] == "kept"
    assert states["DL-BYTE-01"] == "unasked"


def test_versions_with_errors_are_marked_in_the_charts() -> None:
    sound, broken = damaged(), damaged("a_commit_begins_with_a_byte_order_mark")
    marks = [html_page(report, made_at="now").count('class="mark"') for report in (sound, broken)]
    assert marks == [0, 2], "one in each of two charts"


def test_a_long_history_makes_a_small_chart() -> None:
    growth = tuple(Growth(version, version, version * 10, None) for version in range(2000))
    report = Report(location="file:///t", profile=Profile.FOREIGN, growth=growth)
    assert len(html_page(report, made_at="now")) < 200_000
