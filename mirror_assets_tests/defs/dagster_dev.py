"""A real `dagster dev`, webserver, daemon and code server, asked by GraphQL."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
import time
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mirror_assets_tests.services import ServiceError, free_port, guarded_process

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).resolve().parents[2]
LOCATION = "mirror_assets.definitions"
START_SECONDS = 120
#: what is started from a background job ignores Ctrl-C, and hands that on
_AS_IN_A_TERMINAL = (
    "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); "
    "os.execv(sys.argv[1], sys.argv[1:])"
)


@dataclass
class DagsterDev:
    """What a test asks a running Dagster."""

    url: str
    home: Path

    def ask(self, query: str, **variables: Any) -> Any:
        body = json.dumps({"query": query, "variables": variables}).encode()
        request = urllib.request.Request(
            f"{self.url}/graphql", data=body, headers={"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            found = json.loads(answer.read())
        assert "errors" not in found, found["errors"]
        return found["data"]

    def assets(self) -> set[str]:
        found = self.ask("{ assetNodes { assetKey { path } } }")
        return {"/".join(node["assetKey"]["path"]) for node in found["assetNodes"]}

    def node(self, path: list[str]) -> dict[str, Any]:
        found = self.ask(
            """query Node($path: [String!]!) {
              assetNodeOrError(assetKey: {path: $path}) { ... on AssetNode {
                partitionStats { numMaterialized numPartitions }
                freshnessStatusInfo { freshnessStatus }
                assetMaterializations(limit: 500) { partition runId }
                latest: assetMaterializations(limit: 1) { metadataEntries { ...Entry } }
                assetChecksOrError { ... on AssetChecks { checks { name
                  executionForLatestMaterialization { status evaluation {
                    success description metadataEntries { ...Entry } } } } } }
              } }
            }
            fragment Entry on MetadataEntry {
              __typename label
              ... on FloatMetadataEntry { floatValue }
              ... on IntMetadataEntry { intValue }
              ... on TableMetadataEntry { table { records } }
            }""",
            path=path,
        )
        return found["assetNodeOrError"]

    def freshness(self, path: list[str]) -> str:
        return str(self.node(path)["freshnessStatusInfo"]["freshnessStatus"])

    def numbers(self, path: list[str]) -> dict[str, float]:
        """What the page of the asset plots."""
        entries = self.node(path)["latest"][0]["metadataEntries"]
        found = {e["label"]: e.get("floatValue", e.get("intValue")) for e in entries}
        return {label: value for label, value in found.items() if value is not None}

    def checks(self, path: list[str]) -> dict[str, dict[str, Any]]:
        """By name, what is known of the log as it was looked at last."""
        found = self.node(path)["assetChecksOrError"]["checks"]
        results = {c["name"]: c["executionForLatestMaterialization"] for c in found}
        return {name: result["evaluation"] for name, result in results.items()}

    def interrupt(self) -> None:
        """What Ctrl-C does in a terminal: everything that was started there gets the signal."""
        for group in {os.getpgid(pid) for pid in self.processes()}:
            os.killpg(group, signal.SIGINT)

    def processes(self) -> set[int]:
        """Everything that was started with this DAGSTER_HOME, whoever its parent is by now."""
        return _processes_of(self.home)

    def kill(self) -> int:
        """End webserver, daemon, code server and runs at once, as a power cut does; how many."""
        killed: set[int] = set()
        while found := _processes_of(self.home):
            for pid in found:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            killed |= found
        return len(killed)

    def runs(self, **tags: str) -> list[dict[str, Any]]:
        found = self.ask(
            """query Runs($tags: [ExecutionTag!]) {
              runsOrError(filter: {tags: $tags}, limit: 50) { ... on Runs {
                results { runId status jobName tags { key value } } } }
            }""",
            tags=[{"key": key.replace("__", "/"), "value": value} for key, value in tags.items()],
        )
        return found["runsOrError"]["results"]

    def ticks(self, sensor: str) -> list[dict[str, Any]]:
        selector = {
            "sensorName": sensor,
            "repositoryName": "__repository__",
            "repositoryLocationName": LOCATION,
        }
        found = self.ask(
            """query Ticks($selector: SensorSelector!) {
              sensorOrError(sensorSelector: $selector) { ... on Sensor {
                sensorState { ticks(limit: 50) {
                  status skipReason runIds error { message } } } } }
            }""",
            selector=selector,
        )
        return found["sensorOrError"]["sensorState"]["ticks"]

    def backfill(self, path: list[str], partitions: list[str]) -> str:
        found = self.ask(
            """mutation Backfill($params: LaunchBackfillParams!) {
              launchPartitionBackfill(backfillParams: $params) {
                __typename
                ... on LaunchBackfillSuccess { backfillId }
                ... on PythonError { message }
              }
            }""",
            params={
                "assetSelection": [{"path": path}],
                "partitionNames": partitions,
                "tags": [],
            },
        )
        return found["launchPartitionBackfill"]["backfillId"]

    def materialize(self, path: list[str]) -> str:
        """Launch a run of the asset; its id."""
        return self._launch("__ASSET_JOB", {}, assetSelection=[{"path": path}])

    def launch(self, job: str, config: dict[str, Any]) -> str:
        """Launch a run of the job; its id."""
        return self._launch(job, config)

    def _launch(self, job: str, config: dict[str, Any], **selection: Any) -> str:
        selector = {
            "pipelineName": job,
            "repositoryName": "__repository__",
            "repositoryLocationName": LOCATION,
            **selection,
        }
        found = self.ask(
            """mutation Launch($params: ExecutionParams!) {
              launchPipelineExecution(executionParams: $params) {
                __typename ... on LaunchRunSuccess { run { runId } }
                ... on PythonError { message }
              }
            }""",
            params={"selector": selector, "mode": "default", "runConfigData": config},
        )
        return found["launchPipelineExecution"]["run"]["runId"]

    def status(self, run_id: str) -> str:
        """STARTED, SUCCESS, ..."""
        found = self.ask(
            "query Run($id: ID!) { runOrError(runId: $id) { ... on Run { status } } }", id=run_id
        )
        return found["runOrError"]["status"]


def _processes_of(home: Path) -> set[int]:
    found = set()
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            variables = (place / "environ").read_bytes().split(b"\0")
            if f"DAGSTER_HOME={home}".encode() in variables:
                found.add(int(place.name))
    return found - {os.getpid()}


def wait_for(what: Callable[[], Any], seconds: float, doing: str) -> Any:
    """The first true answer; an assertion with what was waited for otherwise."""
    deadline = time.monotonic() + seconds
    found = None
    while time.monotonic() < deadline:
        try:
            found = what()
        except (OSError, TypeError, KeyError, AssertionError) as error:
            found, last = None, error
        else:
            last = found
        if found:
            return found
        time.sleep(0.5)
    raise AssertionError(f"{doing}: not within {seconds:g} s; last seen: {last!r}")


@contextmanager
def dagster_dev(
    home: Path, *, config: Path = ROOT / "dagster.yaml", **environment: str
) -> Iterator[DagsterDev]:
    """Started in `home`, which is also DAGSTER_HOME; everything ends with the block."""
    shutil.copy(config, home / "dagster.yaml")
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    variables = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "DAGSTER_HOME": str(home),
        "MIRROR_DAGSTER_URL": url,
        **environment,
    }
    command = [
        *(sys.executable, "-c", _AS_IN_A_TERMINAL),
        *(str(Path(sys.executable).parent / "dagster"), "dev"),
        *("--workspace", str(ROOT / "workspace.yaml"), "--host", "127.0.0.1", "--port", str(port)),
    ]
    with guarded_process(command, stop_signal="SIGTERM", env=variables) as process:
        dev = DagsterDev(url, home)
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                dev.ask("{ version }")
            except OSError as error:
                if process.poll() is not None or time.monotonic() > deadline:
                    raise ServiceError("dagster dev did not start") from error
                time.sleep(0.5)
            else:
                break
        yield dev
