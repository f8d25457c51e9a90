"""Real object stores for tests: SeaweedFS, moto behind a lock, and rclone, which is unsafe.

All of them come from wheels, listen on 127.0.0.1, keep what they hold in a temporary directory,
and end with the tests that use them.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import shutil
import sys
import tempfile
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mirror_assets.storage.options import Secret, StoreOptions
from mirror_assets.storage.stores import open_store
from mirror_assets_tests.services import ServiceError, free_port, guarded_process

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator

    from mirror_assets.storage.log_store import LogStore

START_SECONDS = 90
#: how far above each of its ports SeaweedFS opens another for gRPC
GRPC_OFFSET = 10_000
#: run, not imported: moto takes a second to load
MOTO_LOCKED = Path(__file__).with_name("moto_locked.py")


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Server:
    """A server that speaks S3, and a bucket in it."""

    endpoint: str
    access_key: str
    secret_key: str
    bucket: str

    def options(self, **changes: Any) -> StoreOptions:
        """How to reach it; `changes` are other fields of StoreOptions."""
        fields: dict[str, Any] = {
            "endpoint": self.endpoint,
            "region": "us-east-1",
            "credentials": (
                ("access_key_id", Secret(self.access_key)),
                ("secret_access_key", Secret(self.secret_key)),
            ),
        }
        return StoreOptions(**fields | changes)

    def place(self, **changes: Any) -> StorePlace:
        """A place for a table of its own."""
        location = f"s3://{self.bucket}/{uuid.uuid4()}/a b"
        return StorePlace(location=location, options=self.options(**changes))

    def create_bucket(self) -> str:
        """Make a bucket under a new name."""
        name = f"test-{secrets.token_hex(8)}"
        self.boto3().create_bucket(Bucket=name)
        return name

    def boto3(self) -> Any:
        """A client of another make, to look behind ours."""
        import boto3  # noqa: PLC0415 - slow to import, and few tests need it
        from botocore.config import Config  # noqa: PLC0415 - the same

        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
            region_name="us-east-1",
            config=Config(s3={"addressing_style": "path"}, retries={"max_attempts": 1}),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StorePlace:
    """Where a test's table lives, and how its store is reached."""

    location: str
    options: StoreOptions

    def open(self) -> LogStore:
        return open_store(self.location, self.options, allowed_roots=())


@contextlib.contextmanager
def start_seaweedfs() -> Iterator[S3Server]:
    """The real server of the suite: conditions are atomic, signatures and clocks are checked.

    Use places in its one bucket, not more buckets: each takes volumes that it has few of.
    """
    directory = Path(tempfile.mkdtemp(prefix="mirror-assets-weed-"))
    access, secret = secrets.token_hex(8), secrets.token_hex(16)
    identity = {
        "name": "tests",
        "credentials": [{"accessKey": access, "secretKey": secret}],
        "actions": ["Admin", "Read", "Write", "List", "Tagging"],
    }
    (directory / "ids.json").write_text(json.dumps({"identities": [identity]}))
    s3, master, volume, filer = (free_port(beside=GRPC_OFFSET) for _ in range(4))
    command = [
        *(_program("weed"), "server", f"-dir={directory}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"),
        *("-master.telemetry=false", "-master.volumeSizeLimitMB=64", "-volume.max=20"),
        *(f"-master.port={master}", f"-volume.port={volume}", f"-filer.port={filer}"),
        *("-s3", f"-s3.port={s3}", f"-s3.config={directory / 'ids.json'}"),
        *("-s3.port.iceberg=0", "-s3.port.lance=0"),
    ]
    with guarded_process(command, stop_signal="SIGKILL", directory=directory) as process:
        yield _ready(process, s3, access, secret)


@contextlib.contextmanager
def start_moto() -> Iterator[S3Server]:
    """The fast server of the suite; it checks no signatures."""
    port = free_port()
    command = [sys.executable, str(MOTO_LOCKED), str(port)]
    with guarded_process(command) as process:
        yield _ready(process, port, "test", "test")


@contextlib.contextmanager
def start_rclone() -> Iterator[S3Server]:
    """A store that ignores conditions: every create wins."""
    directory = Path(tempfile.mkdtemp(prefix="mirror-assets-rclone-"))
    port = free_port()
    access, secret = secrets.token_hex(8), secrets.token_hex(16)
    command = [
        *(_program("rclone"), "serve", "s3", str(directory), "--addr", f"127.0.0.1:{port}"),
        *("--auth-key", f"{access},{secret}", "--config", str(directory / "none")),
    ]
    with guarded_process(command, directory=directory) as process:
        yield _ready(process, port, access, secret)


def _program(name: str) -> str:
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        raise ServiceError(f"no {name} for the tests: run `make setup` again")
    return found


def _ready(process: subprocess.Popen, port: int, access: str, secret: str) -> S3Server:
    """Wait until it takes a bucket and an object."""
    server = S3Server(
        endpoint=f"http://127.0.0.1:{port}", access_key=access, secret_key=secret, bucket="tables"
    )
    client = server.boto3()
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            with contextlib.suppress(client.exceptions.BucketAlreadyOwnedByYou):
                client.create_bucket(Bucket=server.bucket)
            client.put_object(Bucket=server.bucket, Key="ready", Body=b"yes")
            client.delete_object(Bucket=server.bucket, Key="ready")
        except Exception as error:
            if process.poll() is not None:
                raise ServiceError("the store ended while it was starting") from error
            if time.monotonic() > deadline:
                raise ServiceError(f"the store was not ready in {START_SECONDS} s") from error
            time.sleep(0.1)
        else:
            client.close()
            return server
