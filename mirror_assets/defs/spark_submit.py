"""Bulk jobs by `spark-submit`, through Dagster Pipes: with memory, logs and a life of their own."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import dagster as dg
from dagster._core.errors import DagsterExecutionInterruptedError

from mirror_assets.defs.submitted import spark_job
from mirror_assets.errors import ConfigurationError, SparkJobError
from mirror_assets.settings import Settings

#: how long a driver that was told to stop may take
_STOPPING_S: Final = 30.0
#: on this machine alone, whatever its name resolves to
_LOCAL: Final = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


def submit(
    context: dg.OpExecutionContext, settings: Settings, job: str, words: Sequence[str]
) -> dict[str, Any]:
    """The job's answer; SparkJobError if the driver ended without one.

    What the driver logs is in the run's log, what Spark says in the run's output. A run that is
    terminated takes the driver along.
    """
    command = submit_command(settings)
    context.log.info("submits %s: %s", job, shlex.join(command))
    with dg.open_pipes_session(
        context=context,
        context_injector=dg.PipesTempFileContextInjector(),
        message_reader=dg.PipesTempFileMessageReader(),
        extras={"job": job, "words": list(words)},
    ) as session:
        told = [word for pair in session.get_bootstrap_cli_arguments().items() for word in pair]
        driver = subprocess.Popen(  # noqa: S603 - the operator's own command
            [*command, *told], start_new_session=True
        )
        try:
            code = driver.wait()
        except DagsterExecutionInterruptedError:
            context.log.info("told to stop: so is the driver")
            _stop(driver)
            raise
    answers = session.get_custom_messages()
    if code != 0 or not answers:
        message = f"`{command[0]}` ended with code {code}, and without an answer"
        raise SparkJobError(message, remedy="the run's stderr has what Spark said")
    answer: dict[str, Any] = answers[-1]
    return answer


def submit_command(settings: Settings) -> list[str]:
    """The command of the settings, the master, and the file that it runs.

    A `--master` in the command itself wins, as for a cluster that the driver does not know.
    """
    given = shlex.split(settings.spark_submit or "")
    master = settings.spark_master
    if not given:
        raise ConfigurationError("spark_submit is empty", remedy="say `spark-submit`, or unset it")
    if "--master" in given:
        master = ""
    elif master.startswith("sc://"):
        remedy = "set spark_master to the cluster's master, or unset spark_submit"
        raise ConfigurationError(f"spark-submit does not go to {master}", remedy=remedy)
    options = ["--master", master] if master else []
    settings_of_driver = {"spark.pyspark.driver.python": sys.executable}
    if master.startswith("local"):
        settings_of_driver |= _LOCAL
    options += [w for pair in settings_of_driver.items() for w in ("--conf", "=".join(pair))]
    return [_found(given[0]), *options, *given[1:], spark_job.__file__]


def _found(program: str) -> str:
    """On the path, or in PySpark's own folder, where it finds its home whatever `python3` is."""
    spec = find_spec("pyspark")
    own = str(Path(spec.origin).parent / "bin") if spec is not None and spec.origin else ""
    found = shutil.which(program) or shutil.which(program, path=own)
    if found is None:
        remedy = "give its path in spark_submit"
        raise ConfigurationError(f"there is no command {program}", remedy=remedy)
    return found


def _stop(driver: subprocess.Popen[bytes]) -> None:
    """The whole group: the shell script, the JVM, and the Python below it."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(driver.pid, number)
        with suppress(subprocess.TimeoutExpired):
            driver.wait(_STOPPING_S)
