"""`diff`: a commit in SQL beside its file in the log, action by action.

Actions are told apart by what the protocol tells them apart by: files by path and deletion vector,
transactions by application, domains by name, the rest by their kind. Equal lines are never decoded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

import orjson

from mirror_assets.delta.log_paths import CommitName, LogListing
from mirror_assets.errors import VersionNotFoundError
from mirror_assets.findings import Finding, Severity
from mirror_assets.metastore.database import Metastore
from mirror_assets.metastore.log_facts import LogFacts, read_facts
from mirror_assets.metastore.log_reader import LogReader
from mirror_assets.mirror.inspection import missing_versions
from mirror_assets.mirror.log_digests import differing
from mirror_assets.storage.log_store import LogStore

#: findings of one version; the rest is counted
_SHOWN: Final = 100
#: differences told in one line
_SUMMARISED: Final = 3
_TEXT: Final = 200
_RULE: Final = "DL-FILE-02"


def diff_log(
    metastore: Metastore, store: LogStore, name: str, version: int | None = None
) -> list[Finding]:
    """What differs at a version; at the first one that does, if none is given.

    Raises TableNotFoundError, and VersionNotFoundError for a version of which neither SQL nor the
    log has a commit.
    """
    listing = store.list()
    facts = read_facts(metastore, name)
    if version is None:
        version = _first_diverging(store, listing, facts)
        if version is None:
            return []
    in_sql, in_log = version in facts.commits, store.read(CommitName(version))
    if not in_sql and in_log is None:
        message = "neither SQL nor the log has a commit of this version"
        raise VersionNotFoundError(message, table=name, version=version)
    if in_log is None:
        return _absent(listing, facts, version)
    data = _sql_bytes(metastore, facts, version) if in_sql else b""
    found = [_located(finding, name, version) for finding in diff_commit(data, in_log)]
    return _first(found, name, version)


def diff_commit(in_sql: bytes, in_log: bytes) -> Iterator[Finding]:
    """The differences of two commit files: only here, only there, or another member."""
    if in_sql == in_log:
        return
    ours, theirs = _lines(in_sql), _lines(in_log)
    left, right = _keyed(ours - theirs), _keyed(theirs - ours)
    if not left and not right:
        yield _finding("the actions are the same, the bytes are not", Severity.WARNING)
    for key, body in left.items():
        if key not in right:
            yield _finding(f"{_named(key)} is only in SQL")
        else:
            yield from _diff_members(key, body, right[key])
    for key in right:
        if key not in left:
            yield _finding(f"{_named(key)} is only in the log")


def summarise(in_sql: bytes, in_log: bytes) -> str:
    """The first differences of two commit files in one line, and how many more there are.

    Who made them comes last: that two commits have different times tells nothing.
    """
    found = [finding.message for finding in diff_commit(in_sql, in_log)]
    found.sort(key=lambda message: message.startswith("commitInfo"))
    more = f" and {len(found) - _SUMMARISED} more" if len(found) > _SUMMARISED else ""
    return "; ".join(found[:_SUMMARISED]) + more


def describe_commit(data: bytes) -> str:
    """Who made a commit file, and what is in it, in a few words."""
    actions = [_decoded(line) for line in _lines(data).elements()]
    info = next((body for kind, body in actions if kind == "commitInfo"), None)
    said: Mapping[str, Any] = info if isinstance(info, Mapping) else {}
    made = " by ".join(str(said[key]) for key in ("operation", "engineInfo") if said.get(key))
    counts = Counter(kind for kind, _ in actions if kind != "commitInfo")
    held = ", ".join(f"{count} {kind}" for kind, count in counts.items()) or "no actions"
    return _shown(f"{made or 'of an unknown writer'}: {held}")


def _first_diverging(store: LogStore, listing: LogListing, facts: LogFacts) -> int | None:
    """The oldest version that is missing, other, or unknown to SQL."""
    bases = {version: found[0] for version, found in listing.checkpoints.items()}
    files = [(e, facts.commits[v]) for v, e in listing.commits.items() if v in facts.commits]
    other = next((commit.version for _, commit in differing(store, files)), None)
    ahead = next((v for v in listing.commits if v > facts.table.head_version), None)
    missing = next(iter(missing_versions(listing, facts, bases)), None)
    found = [version for version in (other, ahead, missing) if version is not None]
    return min(found, default=None)


def _absent(listing: LogListing, facts: LogFacts, version: int) -> list[Finding]:
    bases = {at: found[0] for at, found in listing.checkpoints.items()}
    name = facts.table.name
    if version > facts.table.mirrored_version:
        message, severity = "the commit is not published yet", Severity.INFO
        rule, remedy = "MA-404", f"`mirror-assets mirror {name}` publishes it"
    elif version in missing_versions(listing, facts, bases):
        message, severity = "the commit is only in SQL: its file is missing", Severity.ERROR
        rule, remedy = "DL-FILE-03", f"`mirror-assets reconcile {name} --mode smart --apply`"
    else:
        message, severity = "the log begins later: a cleanup removed the file", Severity.INFO
        rule, remedy = "DL-CLN-04", ""
    finding = Finding(rule=rule, severity=severity, message=message, remedy=remedy)
    return [_located(finding, name, version)]


def _sql_bytes(metastore: Metastore, facts: LogFacts, version: int) -> bytes:
    name = facts.table.name
    return next(LogReader(metastore).commits(name, version, version)).encode(name)


def _first(found: list[Finding], name: str, version: int) -> list[Finding]:
    if len(found) <= _SHOWN:
        return found
    rest = _finding(f"{len(found) - _SHOWN} more differences")
    return [*found[:_SHOWN], _located(rest, name, version)]


_Key = tuple[str, ...]


def _lines(data: bytes) -> Counter[bytes]:
    return Counter(line for line in data.split(b"\n") if line.strip())


def _keyed(lines: Counter[bytes]) -> dict[_Key, Any]:
    """The actions by identity; one that comes again is told apart by its number."""
    found: dict[_Key, Any] = {}
    for line in lines.elements():
        kind, body = _decoded(line)
        key = (kind, *_identity(kind, body))
        number = 2
        while key in found:
            key = (kind, *_identity(kind, body), f"number {number}")
            number += 1
        found[key] = body
    return found


def _decoded(line: bytes) -> tuple[str, Any]:
    try:
        action = orjson.loads(line)
    except orjson.JSONDecodeError:
        return "line without JSON", _shown(line.decode(errors="replace"))
    if isinstance(action, dict) and len(action) == 1:
        return next(iter(action.items()))
    return "line without one action", action


def _identity(kind: str, body: Any) -> _Key:
    if not isinstance(body, Mapping):
        return (_shown(body),)
    match kind:
        case "add" | "remove" | "cdc":
            vector = body.get("deletionVector") or {}
            unique = vector.get("pathOrInlineDv") if isinstance(vector, Mapping) else vector
            path = str(body.get("path"))
            return (path,) if unique is None else (path, f"deletion vector {unique}")
        case "txn":
            return (str(body.get("appId")),)
        case "domainMetadata":
            return (str(body.get("domain")),)
        case _:
            return ()


def _diff_members(key: _Key, ours: Any, theirs: Any) -> Iterator[Finding]:
    if not isinstance(ours, Mapping) or not isinstance(theirs, Mapping):
        yield _finding(f"{_named(key)}: {_shown(ours)} in SQL, {_shown(theirs)} in the log")
        return
    names = [name for name in {**ours, **theirs} if ours.get(name) != theirs.get(name)]
    for name in names:
        here = _shown(ours[name]) if name in ours else "absent"
        there = _shown(theirs[name]) if name in theirs else "absent"
        yield _finding(f"{_named(key)}: {name} is {here} in SQL, {there} in the log")
    if not names:
        message = f"{_named(key)}: the same members, written in other bytes"
        yield _finding(message, Severity.WARNING)


def _named(key: _Key) -> str:
    return " ".join(key)


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else orjson.dumps(value).decode()
    return text if len(text) <= _TEXT else f"{text[:_TEXT]}..."


def _finding(message: str, severity: Severity = Severity.ERROR) -> Finding:
    return Finding(rule=_RULE, severity=severity, message=message)


def _located(finding: Finding, table: str, version: int) -> Finding:
    return Finding(
        rule=finding.rule,
        severity=finding.severity,
        message=finding.message,
        remedy=finding.remedy,
        table=table,
        version=version,
        file=CommitName(version).name,
    )
