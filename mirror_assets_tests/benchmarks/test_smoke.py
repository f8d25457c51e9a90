"""The benchmarks still run; how fast is not asked here, for tests share the machine."""

from __future__ import annotations

import pytest

from benchmarks import bulk_commit, encoding, publishing, reconciling, reporting
from benchmarks.bench import open_bench


@pytest.mark.postgres
@pytest.mark.slow
def test_a_quick_benchmark_measures_every_engine_against_its_peer():
    with open_bench(quick=True) as bench:
        results = list(bulk_commit.run(bench))

    assert [r.what for r in results if r.bound is not None] == [
        f"commit of 1,000 adds, {engine}, wall" for engine in ("Postgres", "SQLite", "DuckDB")
    ]
    assert all(r.ours > 0 and r.theirs > 0 for r in results)


@pytest.mark.postgres
@pytest.mark.slow
@pytest.mark.xdist_group("seaweedfs")
def test_the_benchmarks_of_the_mirror_run_on_both_stores():
    with open_bench(quick=True) as bench:
        results = [*publishing.run(bench), *reconciling.run(bench), *encoding.run(bench)]

    assert [r.goal for r in results] == ["9", "9", "10", "10", "18", "18", "11"]
    assert all(r.ours > 0 and r.theirs > 0 for r in results)


@pytest.mark.parametrize(
    ("ours", "theirs", "bound", "at_least", "is_met"),
    [
        (1, 20, 1 / 15, False, True),
        (2, 20, 1 / 15, False, False),
        (3, 1, 3, True, True),
        (2, 1, 3, True, False),
        (0, 0, 1, False, True),
        (1, 0, 1, False, False),
        (1, 1, None, False, None),
    ],
)
def test_a_result_keeps_its_bound(ours, theirs, bound, at_least, is_met):
    result = reporting.Result(
        goal="1",
        what="a commit",
        unit="ms",
        ours=ours,
        against="a peer",
        theirs=theirs,
        bound=bound,
        at_least=at_least,
    )

    assert result.is_met is is_met


def test_the_page_keeps_what_stands_outside_its_markers(tmp_path, monkeypatch):
    page = tmp_path / "docs" / "benchmarks.md"
    page.parent.mkdir()
    page.write_text(f"before\n{reporting.BEGIN}\nold\n{reporting.END}\nafter\n")
    monkeypatch.setattr(reporting, "ROOT", tmp_path)
    result = reporting.Result(
        goal="1", what="a commit", unit="ms", ours=1, against="a peer", theirs=20, bound=1 / 15
    )
    report = reporting.Report(
        subject="commit", began="now", seconds=1, load_before=0, load_after=0, results=[result]
    )

    reporting.save(report, quick=True)
    assert "old" in page.read_text()
    reporting.save(report, quick=False)

    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "old" not in text
    assert "| 1 | a commit | 1.00 ms | 20.0 ms (a peer) | 1/20 | ≤ 1/15 | yes |" in text
