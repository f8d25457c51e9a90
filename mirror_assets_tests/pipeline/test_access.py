"""How tasks reach the metastore: once a process, and nothing stays open behind it."""

from __future__ import annotations

import pytest
from sqlalchemy import text

from mirror_assets.pipeline.access import Access
from mirror_assets_tests.builders import a_metastore, a_table


@pytest.mark.postgres
def test_a_metastore_that_gives_way_to_others_leaves_no_connection_open(postgres_url, tmp_path):
    url = postgres_url()
    with a_metastore(url) as watching:
        a_table(watching)
        with Access.to(url).metastore().read() as connection:
            pid = connection.scalar(text("select pg_backend_pid()"))
        backends = text("select count(*) from pg_stat_activity where pid = :pid")
        with watching.read() as connection:
            assert connection.scalar(backends, {"pid": pid}) == 1
        for number in range(16):
            Access.to(f"sqlite:///{tmp_path / f'{number}.db'}").metastore()
        with watching.read() as connection:
            connection.execute(text("select pg_sleep(0.2)"))
            assert connection.scalar(backends, {"pid": pid}) == 0


def test_a_process_opens_one_metastore_for_a_url(tmp_path):
    access = Access.to(f"sqlite:///{tmp_path / 'metastore.db'}")
    assert access.metastore() is access.metastore()
