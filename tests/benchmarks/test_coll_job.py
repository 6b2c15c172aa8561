#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""psrt-bench coll runs every collective and its rows are consistent. No figure is judged."""
import json
import os
import subprocess
import tempfile
import unittest

BENCH = os.environ["PSRT_TEST_BENCH"]
DEADLINE = 120  # seconds; only shows that nothing hangs
KEYS = ["collective", "bytes", "count", "dtype", "redop", "ranks", "transport", "buffers", "impl",
        "p50_us", "p99_us", "algbw_gbps", "busbw_gbps", "limit_us", "wrong"]
WHOLE = ["allreduce", "reduce", "broadcast"]  # their count is that of the whole vector
PARTS = ["allgatherv", "alltoallv", "sendrecv"]  # likewise; listed behind the barrier
BLOCKS = ["allgather", "reduce_scatter", "alltoall", "gather", "scatter"]
REDUCE = ["allreduce", "reduce", "reduce_scatter", "latency"]


def run(*args):
    env = {name: value for name, value in os.environ.items() if not name.startswith("PSRT_")}
    done = subprocess.run([BENCH, "coll", *args], env=env, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=DEADLINE, check=False)
    return done.returncode, done.stdout, done.stderr


def bus_factor(row):
    n = row["ranks"]
    if row["collective"] in ("allreduce", "latency"):
        return 2 * (n - 1) / n
    return 1 if row["collective"] in ("reduce", "broadcast", "sendrecv") else (n - 1) / n


class Coll(unittest.TestCase):
    def rows(self, *args):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "rows.json")
            code, out, err = run("--seconds", "0.002", "--json", path, *args)
            self.assertEqual((code, err), (0, ""), out)
            with open(path, encoding="utf-8") as file:
                rows = json.load(file)
        self.assertEqual(len(out.splitlines()), 1 + len(rows))  # a heading
        for row in rows:
            self.check(row)
        return rows

    def check(self, row):
        self.assertEqual(list(row), KEYS)
        self.assertEqual((row["impl"], row["wrong"]), ("psrt", 0), row)
        self.assertGreater(row["p50_us"], 0, row)
        self.assertLessEqual(row["p50_us"], row["p99_us"], row)
        self.assertEqual(row["redop"] == "none", row["collective"] not in REDUCE, row)
        if row["bytes"]:
            self.assertAlmostEqual(row["algbw_gbps"] / (row["bytes"] / row["p50_us"] / 1e3), 1, 3)
            self.assertAlmostEqual(row["busbw_gbps"] / (row["algbw_gbps"] * bus_factor(row)), 1, 3)
        if row["transport"] == "shm":
            self.assertGreater(row["limit_us"], 0, row)
        else:
            self.assertIsNone(row["limit_us"], row)

    def test_every_cell_once(self):
        rows = self.rows("--min", "1KiB", "--max", "64KiB", "--factor", "64")
        cells = [(row["collective"], row["bytes"], row["buffers"]) for row in rows]
        sizes = {name: [1 << 10, 64 << 10] for name in WHOLE + BLOCKS + PARTS}
        sizes.update(barrier=[0], latency=[64])
        self.assertEqual(cells, [(name, size, buffers) for name in WHOLE + BLOCKS + ["barrier"] + PARTS + ["latency"]
                                 for size in sizes[name] for buffers in ("psrt", "user")])
        for row in rows:
            self.assertEqual((row["ranks"], row["transport"], row["dtype"]), (2, "shm", "f32"))
            blocks = 2 if row["collective"] in BLOCKS else 1
            self.assertEqual(row["bytes"], row["count"] * 4 * blocks)

    def test_ranks_types_and_transports(self):
        for dtype, op in (("bf16", "avg"), ("i64", "max"), ("f64", "prod")):
            rows = self.rows("--ranks", "3", "--dtype", dtype, "--op", op, "--min", "6KiB", "--max", "6KiB",
                             "--transport", "shm,zmq", "--buffers", "user", "--collective",
                             "allreduce,reduce_scatter,barrier,allgatherv,alltoallv,sendrecv")
            self.assertEqual([(row["transport"], row["collective"]) for row in rows],
                             [(transport, name) for transport in ("shm", "zmq")
                              for name in ("allreduce", "reduce_scatter", "barrier", *PARTS)])
            self.assertEqual({(row["dtype"], row["ranks"]) for row in rows}, {(dtype, 3)})
            self.assertEqual({row["redop"] for row in rows}, {op, "none"})

    def test_usage(self):
        for args, word in ((["--rank", "2"], "--ranks"), (["--ranks", "0"], "1 to 64"),
                           (["--dtype", "f8"], "bf16"), (["--op", "mean"], "avg"),
                           (["--collective", "allreduce,foo"], "reduce_scatter"),
                           (["--min", "1MiB", "--max", "1KiB"], "--min is above --max"),
                           (["--min", "4KB"], "4KB"), (["--factor", "1"], "2 to"),
                           (["--transport", "tcp"], "shm, zmq"), (["--seconds", "0"], "0")):
            code, out, err = run(*args)
            self.assertEqual((code, out), (2, ""), args)
            self.assertIn(word, err)
        self.assertEqual(run("--help")[0], 0)

    def test_failure_is_told(self):
        code, _, err = run("--collective", "barrier", "--json", "/nonexistent/rows")
        self.assertEqual(code, 1)
        self.assertIn("/nonexistent/rows", err)


unittest.main()
