from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path


def demo(home: Path, *words: str, timeout: int) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "mirror_assets.demo", *words],
        cwd=home,
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
    )
    assert done.returncode == 0, done.stderr
    assert "│ NO" not in done.stdout
    assert [path.name for path in home.iterdir()] == [".demo"]
    return done


def test_the_demo_runs_twice_and_shows_every_outcome(home: Path) -> None:
    for _ in range(2):
        done = demo(home, "--without-spark", timeout=120)
        assert done.stderr == ""
    for word in ("committed", "already version 5", "conflict with version 6", "neither", "PENDING"):
        assert word in done.stdout
    for word in ("checkpoint of version 7", "0 versions behind", "│ yes"):
        assert word in done.stdout


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.xdist_group("spark")
@pytest.mark.timeout(900)
def test_the_demo_ends_with_rows_of_spark_that_three_readers_count(home: Path) -> None:
    done = demo(home, timeout=800)
    words = done.stdout.split("Three readers", 1)[1].replace("│", " ").split()
    assert words.count("10000") == 3
    assert "yes" in words
