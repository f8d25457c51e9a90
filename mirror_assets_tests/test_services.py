"""The services the other tests stand on: started, isolated, and gone when their owner is."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import psycopg
import pytest
import sqlalchemy as sa

from mirror_assets_tests import services


def test_metastore_url_is_an_empty_database_that_takes_tables(metastore_url):
    engine = sa.create_engine(metastore_url)
    try:
        assert sa.inspect(engine).get_table_names() == []
        with engine.begin() as connection:
            connection.execute(sa.text("CREATE TABLE t (id INTEGER PRIMARY KEY)"))
        assert sa.inspect(engine).get_table_names() == ["t"]
    finally:
        engine.dispose()


def test_postgres_url_gives_separate_databases(postgres_url):
    first, second = sa.create_engine(postgres_url()), sa.create_engine(postgres_url())
    with first.begin() as connection:
        connection.execute(sa.text("CREATE TABLE only_here (id INTEGER)"))
    assert sa.inspect(second).get_table_names() == []
    first.dispose()
    second.dispose()


@pytest.mark.postgres
@pytest.mark.slow
def test_postgres_of_the_wheel_starts_durable_and_stops():
    (programs,) = services.wheel_postgres_programs()
    with services.start_postgres(programs, durable=True) as server:
        dsn = server.url.set(drivername="postgresql").render_as_string(hide_password=False)
        with psycopg.connect(dsn) as connection:
            assert connection.execute("SHOW fsync").fetchone() == ("on",)
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(dsn, connect_timeout=5)


def test_failed_start_says_what_the_program_said():
    def start():
        with services.guarded_process(["sh", "-c", "echo no such luck; exit 3"]) as process:
            assert process.wait(timeout=20) == 3
            raise services.ServiceError("ended")

    with pytest.raises(services.ServiceError) as caught:
        start()
    assert "no such luck" in caught.value.__notes__[0]


def test_guarded_process_ends_when_its_owner_is_killed(tmp_path):
    pid_file, directory = tmp_path / "pid", tmp_path / "scratch"
    directory.mkdir()
    owner = textwrap.dedent(f"""
        import time
        from pathlib import Path
        from mirror_assets_tests import services
        command = ["sh", "-c", "echo $$ > {pid_file}.new; mv {pid_file}.new {pid_file}; sleep 600"]
        with services.guarded_process(command, directory=Path({str(directory)!r})):
            time.sleep(600)
    """)
    with subprocess.Popen([sys.executable, "-c", owner]) as process:
        wait_until(pid_file.exists)
        process.send_signal(signal.SIGKILL)
    pid = int(pid_file.read_text())
    wait_until(lambda: not is_running(pid) and not directory.exists())


def wait_until(condition, seconds=20):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def is_running(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
