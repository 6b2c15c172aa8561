#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The comparison with peers: who is left out and why, medians, ratios and marks. Nothing is measured."""
import contextlib
import io
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.environ["PSRT_TEST_PEERS"])
import collectives  # noqa: E402

ROOT = pathlib.Path(__file__).parents[2]
KIB, MIB = 1 << 10, 1 << 20


def row(impl, us, buffers="user", collective="allreduce", ranks=2, size=4 * KIB, limit=None):
    return {"collective": collective, "bytes": size, "count": size // 4, "dtype": "f32", "redop": "sum",
            "ranks": ranks, "transport": "shm", "buffers": buffers, "impl": impl, "p50_us": us,
            "p99_us": 2 * us, "algbw_gbps": size / us / 1e3, "busbw_gbps": size / us / 1e3,
            "limit_us": limit, "wrong": 0}


def reached(rows):
    return {what: ok for what, _, ok in collectives.marks(rows)}


class Comparison(unittest.TestCase):
    ROWS = [row("psrt", 1, "psrt", limit=0.5), row("psrt", 2), row("openmpi", 6), row("mpich", 3),
            row("gloo", 100),
            row("psrt", 10, "psrt", size=MIB, limit=5), row("psrt", 60, size=MIB),
            row("openmpi", 50, size=MIB), row("mpich", 90, size=MIB), row("gloo", 200, size=MIB)]

    def test_ratios_are_to_the_better_mpi_at_each_size(self):
        table = collectives.Table(self.ROWS)
        self.assertEqual(table.ratios("allreduce", 2, table.mpi, "psrt"), {4 * KIB: 3.0, MIB: 5.0})
        self.assertEqual(table.ratios("allreduce", 2, table.mpi, "psrt", low=8 * KIB), {MIB: 5.0})
        self.assertEqual(table.ratios("allreduce", 4, table.mpi, "psrt"), {})
        self.assertAlmostEqual(collectives.geometric_mean([2, 8]), 4)

    def test_marks(self):
        marks = reached(self.ROWS)
        self.assertEqual(marks, {
            "allreduce, 2 ranks, psrt memory: 3 times MPI in the mean": True,
            "allreduce, 2 ranks, psrt memory: 8 times Gloo in the mean": True,
            "allreduce, 2 ranks, user memory: 2 times MPI in the mean": False,
            "allreduce, 2 ranks, user memory: not slower than MPI at any size": False})
        latency = [row("psrt", 0.24, "psrt", "latency", size=64),
                   row("openmpi", 0.23, collective="latency", size=64)]
        self.assertEqual(list(reached(latency).values()), [True, False])
        crowd = [row("psrt", 5, "psrt", ranks=8), row("psrt", 7, ranks=8), row("mpich", 6, ranks=8)]
        self.assertEqual(list(reached(crowd).values()), [True, False])

    def test_median_of_rounds(self):
        rows = [row("psrt", us, limit=us / 2) for us in (3, 1, 2)]
        rows[1]["wrong"] = 4
        median = collectives.median_row(rows)
        self.assertEqual((median["p50_us"], median["limit_us"], median["wrong"]), (2, 1, 4))
        self.assertIsNone(collectives.median_row([row("gloo", 1)])["limit_us"])

    def test_parts_of_a_comparison_are_merged(self):
        merged = collectives.merge(self.ROWS[:3], [row("psrt", 7), row("psrt", 9, ranks=4)])
        self.assertEqual([(r["impl"], r["buffers"], r["ranks"], r["p50_us"]) for r in merged],
                         [("psrt", "psrt", 2, 1), ("openmpi", "user", 2, 6), ("psrt", "user", 2, 7), ("psrt", "user", 4, 9)])

    def test_table_names_what_is_missing(self):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            collectives.print_table([r for r in self.ROWS if r["impl"] != "gloo"])
        line = out.getvalue().splitlines()[2].split()
        self.assertEqual(line[:9], ["allreduce", "2", "4096", "0.50", "1.00", "2.00", "6.00", "3.00", "-"])


class Jobs(unittest.TestCase):
    def job(self, script, second=None):
        class Shell(collectives.Job):
            def commands(self, area, folder):
                scripts = [script] + ([second] if second else [])
                return [(["sh", "-c", text, "sh", area, folder], {"WHO": "shell"}) for text in scripts]
        return Shell(2, []).rows()

    def test_rows_come_from_the_first_process(self):
        rows = self.job("test -w $1 && test -d $2 && printf 'columns\\t{\"impl\": \"%s\"}\\n' $WHO",
                        "exec sleep 1000")
        self.assertEqual(rows, [{"impl": "shell"}])

    def test_failure_is_the_reason(self):
        with self.assertRaisesRegex(collectives.Unavailable, "exit code 3: no network"):
            self.job("echo no network >&2; exit 3")
        with self.assertRaisesRegex(collectives.Unavailable, "exit code 0"):
            self.job("true")

    def test_missing_compiler_is_the_reason(self):
        with self.assertRaisesRegex(collectives.Unavailable, "mpicc.none is not installed"):
            collectives.build_mpi("none", "/nonexistent")


class Help(unittest.TestCase):
    """scripts/bench lists the flags of a comparison where nothing is installed or built."""

    def test_without_a_build(self):
        with tempfile.TemporaryDirectory() as tree:
            for part in ("scripts/bench", "scripts/common.sh"):
                pathlib.Path(tree, part).parent.mkdir(exist_ok=True)
                shutil.copy(ROOT / part, pathlib.Path(tree, part))
            pathlib.Path(tree, "benchmarks").symlink_to(ROOT / "benchmarks")
            for which, flag in (("--peers", "--rounds"), ("--net", "--delay")):
                for asked in (["-h"], ["--json", "x", "--help"]):
                    r = subprocess.run([f"{tree}/scripts/bench", which, *asked], check=False, stdout=subprocess.PIPE,
                                       stderr=subprocess.PIPE, text=True, timeout=60)
                    self.assertEqual((r.returncode, r.stderr), (0, ""))
                    self.assertTrue(r.stdout.startswith(f"usage: scripts/bench {which} "), r.stdout)
                    self.assertIn(flag, r.stdout)


unittest.main()
