"""What a command loads before it answers."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

#: each costs a start a tenth of a second or more, Spark and Dagster several
HEAVY = ("alembic", "dagster", "deltalake", "duckdb", "numpy", "psycopg", "pyarrow", "pyspark")
PROGRAM = f"""
import sys
from mirror_assets.cli.app import main
try:
    main()
finally:
    print("loaded:", *(name for name in {HEAVY!r} if name in sys.modules), file=sys.stderr)
"""


def test_a_look_at_an_embedded_metastore_loads_no_other_driver(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'metastore.db'}"
    made = _run("init", url)
    assert "loaded: alembic" in made.stderr, "the probe sees what a command does load"
    shown = _run("tables", url)
    assert shown.returncode == 0, shown.stderr
    assert shown.stderr.splitlines()[-1].strip() == "loaded:"


def _run(command: str, url: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, command, "--metastore", url],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
