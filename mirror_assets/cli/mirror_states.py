"""`status`, `pause` and `resume`: how the mirror stands."""

# ruff: noqa: PLC0415 - heavy modules are imported when a command runs; session.py says why

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

import orjson
import typer

from mirror_assets.cli.documents import moment
from mirror_assets.cli.exits import ExitCode
from mirror_assets.cli.session import Session

if TYPE_CHECKING:
    from mirror_assets.metastore.mirror_state import MirrorState, VersionState

#: artifacts listed per table by `--versions`
_LISTED: Final = 1_000
ONLY_THE_LEASE: Final = (
    "{} is set as single_writer: only SQL's lease keeps writers apart there, and a foreign file "
    "that is written at the same moment is overwritten"
)
_Name = Annotated[str | None, typer.Argument(metavar="[NAME]", help="The table; all by default.")]


def status(
    session: Session,
    *,
    name: _Name = None,
    versions: Annotated[
        bool, typer.Option("--versions", help="List what is known of each version, too.")
    ] = False,
    fail_on_lag: Annotated[
        float | None,
        typer.Option(min=0, metavar="SECONDS", help="Exit 1 if a table lags more, or stopped."),
    ] = None,
) -> ExitCode:
    """Show how far each table's log is behind SQL, and why."""
    from mirror_assets.metastore.followers import read_followers
    from mirror_assets.metastore.mirror_state import read_mirror_states, read_version_states

    metastore = session.metastore
    states = read_mirror_states(metastore, None if name is None else [name])
    documents = [_state_document(state) for state in states]
    if versions:
        for document in documents:
            found = read_version_states(metastore, document["table"], limit=_LISTED)
            document["versions"] = [_version_document(version) for version in found]
    answer = {
        "tables": documents,
        "stores": _stores(session),
        "followers": [
            {
                "owner": heartbeat.owner,
                "heartbeat_age_seconds": heartbeat.age_ms / 1000,
                **orjson.loads(heartbeat.detail),
            }
            for heartbeat in read_followers(metastore)
        ],
    }
    _show(session, answer, with_versions=versions)
    is_late = fail_on_lag is not None and any(
        state.is_stopped or state.lag_ms > fail_on_lag * 1000 for state in states
    )
    return ExitCode.REFUSED if is_late else ExitCode.CLEAN


def pause(session: Session, *, name: _Name = None) -> ExitCode:
    """Publish a table no more, or none, until it is resumed; commits go on in SQL."""
    from mirror_assets.metastore import mirror_state

    states = mirror_state.pause(session.metastore, name, "paused by an operator")
    return _moved(session, name, states, mirror_state.PAUSED)


def resume(session: Session, *, name: _Name = None) -> ExitCode:
    """Publish a paused or stopped table again; without a name, all that are paused."""
    from mirror_assets.metastore import mirror_state

    states = mirror_state.resume(session.metastore, name)
    return _moved(session, name, states, mirror_state.OK)


def _stores(session: Session) -> list[dict[str, Any]]:
    """Every store that something is known of."""
    from mirror_assets.metastore.breaker_store import read_breakers
    from mirror_assets.metastore.store_facts import read_store_facts

    breakers = {row.store: row for row in read_breakers(session.metastore)}
    facts = read_store_facts(session.metastore)
    accepted = set(session.settings.single_writer)
    return [
        {
            "store": store,
            "breaker": breakers[store].state if store in breakers else "closed",
            "failures": breakers[store].failures if store in breakers else 0,
            "safe": facts[store].safe if store in facts else None,
            "single_writer": store in accepted,
        }
        for store in sorted(breakers.keys() | facts.keys() | accepted)
    ]


def _moved(session: Session, name: str | None, states: dict[str, str], wanted: str) -> ExitCode:
    others = {table: state for table, state in states.items() if state != wanted}
    document: dict[str, Any] = {"table": name, "state": states[name] if name else wanted}
    if name is None:
        document["tables"] = [{"table": t, "state": s} for t, s in states.items()]
    session.output.record(document, name or "all tables")
    for table, state in others.items():
        session.output.note(f"{table} is {state}, and stays so")
    return ExitCode.CLEAN


def _show(session: Session, answer: dict[str, Any], *, with_versions: bool) -> None:
    columns = (
        *("table", "state", "head_version", "mirrored_version", "checkpoint_version"),
        *("lag_versions", "lag_seconds", "reason", "last_error"),
    )
    shown = (*columns, "versions") if with_versions else columns
    empty = "no table is registered yet: `mirror-assets create` or `mirror-assets import`"
    session.output.rows(answer, "tables", shown, title="mirror", empty=empty)
    for store in answer["stores"]:
        if store["single_writer"]:
            session.output.note(ONLY_THE_LEASE.format(store["store"]))
        elif store["safe"] is False:
            session.output.note(f"the store {store['store']} is not safe, and refused")
        if store["breaker"] != "closed":
            session.output.note(
                f"the store {store['store']} is left alone for a while: "
                f"{store['failures']} failures in a row"
            )


def _state_document(state: MirrorState) -> dict[str, Any]:
    return {
        "table": state.table,
        "head_version": state.head_version,
        "mirrored_version": state.mirrored_version,
        "checkpoint_version": state.checkpoint_version,
        "state": state.state,
        "reason": state.reason,
        "lag_versions": state.lag_versions,
        "lag_seconds": state.lag_ms / 1000,
        "last_error": state.last_error,
        "attempts": state.attempts,
        "next_attempt_seconds": state.next_attempt_in_ms / 1000,
        "publish_p50_seconds": _seconds(state.publish_p50_ms),
        "publish_p95_seconds": _seconds(state.publish_p95_ms),
    }


def _version_document(version: VersionState) -> dict[str, Any]:
    next_ms, published_ms = version.next_attempt_at_ms, version.published_at_ms
    return {
        "version": version.version,
        "artifact": version.artifact,
        "status": version.status,
        "reason_code": version.reason_code,
        "attempts": version.attempts,
        "next_attempt_at": None if next_ms is None else moment(next_ms),
        "sha256": version.sha256,
        "resolved_by": version.resolved_by,
        "published_at": None if published_ms is None else moment(published_ms),
        "lag_seconds": _seconds(version.lag_ms),
        "last_error": version.last_error,
    }


def _seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000
