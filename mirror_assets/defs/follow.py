"""The `follow` job: a run that publishes commits as they come.

Dagster reads the annotations of what it runs as objects, so they are not postponed here.
"""

from threading import Event
from typing import Final

import dagster as dg
from dagster._core.errors import DagsterExecutionInterruptedError

from mirror_assets.defs.access import MirrorAccess
from mirror_assets.defs.follower_run import FollowerName, FollowerRun
from mirror_assets.defs.heartbeats import LagBeats
from mirror_assets.defs.keys import FOLLOWER, ROLE_TAG
from mirror_assets.defs.reporting import RunEvents

#: a net only: a follower ends by itself long before
_MAX_RUNTIME_S: Final = 24 * 3_600


@dg.op(description="Publishes while it holds the role; stands by while another run does.")
def publish_as_commits_come(context: dg.OpExecutionContext, access: MirrorAccess) -> None:
    """Until its time is up, a signal comes, or the run is terminated."""
    owner = str(FollowerName.of_this_process(context.run_id))
    settings = access.settings
    with access.mirror(owner=owner) as mirror:
        run = FollowerRun(
            mirror,
            events=RunEvents(context),
            lag_beats=LagBeats(settings, context.instance.report_runless_asset_event),
            seconds=settings.follower_minutes * 60,
            say=context.log.info,
            is_wanted=lambda: _is_wanted(context.instance, context.run_id),
        )
        try:
            run.run(Event())
        except DagsterExecutionInterruptedError:
            context.log.info("told to stop: what was under way is finished and recorded")


def _is_wanted(instance: dg.DagsterInstance, run_id: str) -> bool:
    """Whether the run still goes on for Dagster; a store that fails says nothing against it."""
    try:
        run = instance.get_run_by_id(run_id)
    except Exception:  # noqa: BLE001 - whatever Dagster's store raises
        return True
    return run is not None and not run.is_finished


@dg.job(
    executor_def=dg.in_process_executor,
    description=(
        "Keeps all tables mirrored. Two of these runs are kept alive by the sensor `sql_versions`: "
        "one publishes, the other takes over within seconds when it ends or dies."
    ),
    tags={
        ROLE_TAG: FOLLOWER,
        "dagster/max_runtime": str(_MAX_RUNTIME_S),
        "dagster/max_retries": "0",
    },
)
def follow() -> None:
    """One op, without an end of its own choice."""
    publish_as_commits_come()
