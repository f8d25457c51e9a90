"""The report as JUnit XML, for build servers: a suite per family, a case per rule."""

from __future__ import annotations

from xml.etree.ElementTree import Element, SubElement, indent, tostring

from mirror_assets.conformance.report import Report
from mirror_assets.conformance.rulebook import rulebook
from mirror_assets.findings import Finding, Severity


def junit_xml(report: Report) -> bytes:
    """One document; errors are failures, everything milder is output of its case."""
    root = Element("testsuites", name=report.table or report.location)
    for family, findings in report.by_family().items():
        rules = [rule for rule in report.rules if rule.rpartition("-")[0] == family]
        rules += sorted({f.rule for f in findings} - set(rules))
        failed = {f.rule for f in findings if f.severity is Severity.ERROR}
        suite = SubElement(
            root, "testsuite", name=family, tests=str(len(rules)), failures=str(len(failed))
        )
        for rule in rules:
            _case(suite, rule, [finding for finding in findings if finding.rule == rule])
    indent(root)
    document: bytes = tostring(root, encoding="utf-8", xml_declaration=True)
    return document + b"\n"


def _case(suite: Element, rule: str, findings: list[Finding]) -> None:
    case = SubElement(suite, "testcase", classname=suite.get("name", ""), name=rule)
    errors = [finding for finding in findings if finding.severity is Severity.ERROR]
    if errors:
        known = rulebook().get(rule)
        failure = SubElement(case, "failure", message=_plain(errors[0].message))
        told = [] if known is None else [known.says, ""]
        failure.text = _plain("\n".join([*told, *map(_line, errors), "", errors[0].remedy]))
    milder = [finding for finding in findings if finding.severity is not Severity.ERROR]
    if milder:
        SubElement(case, "system-out").text = _plain("\n".join(map(_line, milder)))


def _line(finding: Finding) -> str:
    place = " ".join(
        f"{word} {value}"
        for word, value in (
            ("version", finding.version),
            ("file", finding.file),
            ("line", finding.line),
        )
        if value is not None
    )
    return f"{finding.severity}: {finding.message}" + (f" ({place})" if place else "")


def _plain(text: str) -> str:
    """What XML may hold: names in a log may have control characters."""
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)
