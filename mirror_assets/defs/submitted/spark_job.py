"""A bulk job as `spark-submit` runs it for Dagster: its answer goes back through Pipes.

The job's name and words come with Dagster's context. Where that is stands on the command line: not
every cluster passes an environment on. The process ends well when it has answered, with an error
of ours too: the run, which reads the answer, then fails by it.
"""

from __future__ import annotations

from dagster_pipes import PipesCliArgsParamsLoader, open_dagster_pipes

from mirror_assets.errors import MirrorAssetsError
from mirror_assets.jobs import backfill, checkpoints, compare, imports, rebuild, reconcile
from mirror_assets.jobs.submitting import Document
from mirror_assets.pipeline.session import SparkOptions, open_session

MAINS = {
    "backfill": backfill.main,
    "checkpoints": checkpoints.main,
    "compare": compare.main,
    "imports": imports.main,
    "rebuild": rebuild.main,
    "reconcile": reconcile.main,
}


def main() -> None:
    """Open the session that `spark-submit` was told of, run the job, and tell what it answers."""
    where = PipesCliArgsParamsLoader()  # type: ignore[no-untyped-call] # it has no annotation
    with open_dagster_pipes(params_loader=where) as pipes:
        job, words = pipes.get_extra("job"), pipes.get_extra("words")
        try:
            spark = open_session(SparkOptions(master=None, app_name=f"mirror-assets {job}"))
            try:
                master, number = spark.conf.get("spark.master"), spark.conf.get("spark.app.id")
                pipes.log.info("%s runs on %s as %s", job, master, number)
                document: Document = MAINS[job](spark, words)
            finally:
                spark.stop()
        except MirrorAssetsError as error:
            document = {"ok": False, "job": job, "error": error.as_dict()}
        pipes.report_custom_message(document)


if __name__ == "__main__":
    main()
