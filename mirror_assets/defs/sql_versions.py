"""The sensor `sql_versions`: SQL's heads become partitions, and somebody publishes them.

Dagster reads the annotations of what it runs as objects, so they are not postponed here.
"""

import time
from typing import Any, Final

import dagster as dg
import orjson

from mirror_assets.defs.access import MirrorAccess
from mirror_assets.defs.follow import follow
from mirror_assets.defs.heartbeats import LagBeats
from mirror_assets.defs.keys import FOLLOWER, NOT_ENDED, ROLE_TAG, TABLE_TAG, TableKeys
from mirror_assets.defs.partition_keys import add_new_keys, prune_keys
from mirror_assets.defs.registry import Registry
from mirror_assets.defs.reporting import RunlessEvents, report
from mirror_assets.defs.supervision import supervise
from mirror_assets.errors import MirrorAssetsError
from mirror_assets.metastore.database import Metastore
from mirror_assets.metastore.followers import read_followers
from mirror_assets.metastore.mirror_state import MirrorState, read_mirror_states
from mirror_assets.settings import Settings

#: the daemon looks every five seconds, whatever is asked for
_INTERVAL_S: Final = 5
#: versions over those kept at which a table is pruned, and how many keys go in one tick
_PRUNE_OVER: Final = 200
_PRUNED: Final = 100
#: events stored in one go, and seconds of a tick for each kind of work that may be long
_REPORTED: Final = 20
_SECONDS: Final = 0.8
#: how long after a run of a table another one is asked for the same versions
_AGAIN_S: Final = 60.0
_RANGE_START: Final = "dagster/asset_partition_range_start"
_RANGE_END: Final = "dagster/asset_partition_range_end"


def sql_versions_sensor(registry: Registry) -> dg.SensorDefinition:
    """The sensor for the way in which the settings drive the mirror."""
    drives_runs = registry.settings.drive == "runs"
    commits = [TableKeys(table.name).commits for table in registry.tables]
    target: dict[str, Any] = {"job": follow}
    if drives_runs:
        target = {"asset_selection": commits} if commits else {}

    @dg.sensor(
        name="sql_versions",
        minimum_interval_seconds=_INTERVAL_S,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=(
            "Compares the heads in SQL with the logs: adds a partition per version, and "
            + ("asks for runs that publish them." if drives_runs else "keeps two followers alive.")
        ),
        **target,
    )
    def sql_versions(
        context: dg.SensorEvaluationContext, access: MirrorAccess
    ) -> dg.SensorResult | dg.SkipReason:
        memory = _Memory(context.cursor)
        try:
            with access.metastore() as metastore:
                states = read_mirror_states(metastore, percentiles=False)
                memory.keys = add_new_keys(context.instance, states, memory.keys)
                memory.pruned = _prune(context.instance, states, memory.pruned)
                if drives_runs:
                    requests, words = _runs(context, metastore, states, memory, access.settings)
                else:
                    requests, words = _followers(context, metastore, memory)
        except MirrorAssetsError as error:
            return dg.SkipReason(f"the metastore does not answer: {error}")
        context.update_cursor(memory.as_text())
        waiting = sum(state.lag_versions for state in states)
        head = f"{len(states)} tables, {waiting} versions waiting; {words}"
        if not requests:
            return dg.SkipReason(head)
        return dg.SensorResult(run_requests=requests)

    return sql_versions


class _Memory:
    """What a tick leaves to the next; only a hint, SQL is asked each time."""

    def __init__(self, text: str | None) -> None:
        found = orjson.loads(text) if text else {}
        self.keys: dict[str, int] = found.get("keys", {})
        self.pruned: dict[str, int] = found.get("pruned", {})
        self.silent: dict[str, float] = found.get("silent", {})
        #: by table, the first version asked for and when
        self.asked: dict[str, tuple[int, float]] = found.get("asked", {})
        #: by table, when its next heartbeat is due
        self.beats_due: dict[str, float] = found.get("beats_due", {})

    def as_text(self) -> str:
        return orjson.dumps(vars(self)).decode()


def _prune(
    instance: dg.DagsterInstance, states: list[MirrorState], pruned: dict[str, int]
) -> dict[str, int]:
    """Look at the keys of a table each time its head has gone on by some hundreds."""
    deadline = time.monotonic() + _SECONDS
    for state in states:
        if time.monotonic() >= deadline:
            break
        if state.head_version - pruned.get(state.table, 0) < _PRUNE_OVER:
            continue
        if len(prune_keys(instance, state, at_most=_PRUNED)) < _PRUNED:
            pruned[state.table] = state.head_version
    names = {state.table for state in states}
    return {table: version for table, version in pruned.items() if table in names}


def _followers(
    context: dg.SensorEvaluationContext, metastore: Metastore, memory: _Memory
) -> tuple[list[dg.RunRequest], str]:
    now_s = time.time()
    found = supervise(context.instance, read_followers(metastore), memory.silent, now_s)
    memory.silent = found.silent
    requests = [dg.RunRequest(tags={ROLE_TAG: FOLLOWER}) for _ in range(found.missing)]
    return requests, str(found)


def _runs(
    context: dg.SensorEvaluationContext,
    metastore: Metastore,
    states: list[MirrorState],
    memory: _Memory,
    settings: Settings,
) -> tuple[list[dg.RunRequest], str]:
    """A run per table that waits and has none; reports and heartbeats, as no follower does it."""
    record = context.instance.report_runless_asset_event
    beats = LagBeats(settings, record, clock=time.time, due=memory.beats_due)
    beats.beat(metastore, seconds=_SECONDS)
    memory.beats_due = beats.due
    busy = _busy_tables(context.instance)
    _report_a_while(context, metastore, busy)
    waiting = [state for state in states if state.lag_versions and not state.is_stopped]
    known = {".".join(key.path[:-1]) for key in _defined(context)}
    requests = []
    for state in waiting:
        first = state.mirrored_version + 1
        asked, at_s = memory.asked.get(state.table, (-1, 0.0))
        is_again = asked == first and time.time() - at_s < _AGAIN_S
        last = memory.keys[state.table]
        if state.table in busy or state.table not in known or is_again or last < first:
            continue
        memory.asked[state.table] = (first, time.time())
        requests.append(_range_request(state.table, first, last))
    return requests, f"{len(busy)} tables have a run"


def _report_a_while(
    context: dg.SensorEvaluationContext, metastore: Metastore, busy: set[str]
) -> None:
    """A run that is under way reports what it publishes itself."""
    events, deadline = RunlessEvents(context.instance), time.monotonic() + _SECONDS
    while report(metastore, events, at_most=_REPORTED, skip=busy) and time.monotonic() < deadline:
        pass


def _defined(context: dg.SensorEvaluationContext) -> set[dg.AssetKey]:
    repository = context.repository_def
    keys = repository.asset_graph.get_all_asset_keys() if repository is not None else set()
    return {key for key in keys if key.path[-1] == "commits"}


def _busy_tables(instance: dg.DagsterInstance) -> set[str]:
    runs = instance.get_runs(dg.RunsFilter(statuses=NOT_ENDED))
    return {run.tags[TABLE_TAG] for run in runs if TABLE_TAG in run.tags}


def _range_request(table: str, first: int, last: int) -> dg.RunRequest:
    tags = {TABLE_TAG: table, _RANGE_START: str(first), _RANGE_END: str(last)}
    return dg.RunRequest(asset_selection=[TableKeys(table).commits], tags=tags)
