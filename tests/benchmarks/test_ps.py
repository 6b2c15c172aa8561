#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""psrt-bench ps runs on every transport and its rows are consistent. No figure is judged."""
import json
import os
import subprocess
import tempfile
import unittest

BENCH = os.environ["PSRT_TEST_BENCH"]
DEADLINE = 300  # seconds; only shows that nothing hangs
KEYS = ["op", "bytes", "transport", "buffers", "workers", "servers", "gbps", "limit_gbps", "ratio",
        "p50_us", "p99_us", "ops_per_s", "limit_us", "tables", "raw_gbps", "raw_ratio", "total_gbps",
        "raw_ping_us"]
RAW = ["raw_gbps", "raw_ratio", "raw_ping_us"]  # only where the bare transport is measured
OPS = ["push", "pull", "push_pull"]
SIZES = [4, 65536, 2 << 20]  # the last is of two slices


def run(*args):
    env = {name: value for name, value in os.environ.items() if not name.startswith("PSRT_")}
    done = subprocess.run([BENCH, *args], env=env, stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=DEADLINE, check=False)
    return done.returncode, done.stdout, done.stderr


class Ps(unittest.TestCase):
    def rows(self, *args):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "rows.json")
            code, out, err = run("ps", "--seconds", "0.01", "--json", path, *args)
            self.assertEqual((code, err), (0, ""), out)
            with open(path, encoding="utf-8") as file:
                rows = json.load(file)
        self.assertEqual(len(out.splitlines()), 1 + len(rows))  # a heading
        return rows

    def check(self, row):
        self.assertEqual(list(row), KEYS)
        unmeasured = RAW if row["transport"] == "inproc" else []
        if row["op"] == "declare":
            unmeasured = RAW + ["total_gbps"]
        for key in KEYS[6:]:
            if key in unmeasured:
                self.assertIsNone(row[key], row)
            else:
                self.assertGreater(row[key], 0, row)
        self.assertLessEqual(row["p50_us"], row["p99_us"])
        self.assertAlmostEqual(row["gbps"] / (row["bytes"] * row["ops_per_s"] / 1e9), 1, 3)
        self.assertAlmostEqual(row["limit_gbps"] / (row["bytes"] / row["limit_us"] / 1e3), 1, 3)
        self.assertAlmostEqual(row["ratio"] / (row["gbps"] / row["limit_gbps"]), 1, 3)
        if row["raw_gbps"]:
            self.assertAlmostEqual(row["raw_ratio"] / (row["gbps"] / row["raw_gbps"]), 1, 3)
        if row["workers"] == 1 and row["total_gbps"]:
            self.assertAlmostEqual(row["total_gbps"] / row["gbps"], 1, 3)

    def test_every_cell_once(self):
        rows = self.rows("--sizes", "4,64KiB,2MiB")
        for row in rows:
            self.check(row)
        cells = [(row["transport"], row["bytes"], row["op"], row["buffers"]) for row in rows]
        self.assertEqual(cells, [(transport, size, op, buffers)
                                 for transport in ("shm", "zmq", "inproc") for size in SIZES
                                 for op in OPS for buffers in ("psrt", "user")])
        self.assertEqual({(row["workers"], row["servers"], row["tables"]) for row in rows},
                         {(1, 1, 1)})

    def test_workers_and_servers(self):
        rows = self.rows("--sizes", "4,2MiB", "--workers", "3", "--servers", "2", "--transports",
                         "shm,zmq", "--security", "off", "--buffers", "psrt")
        self.assertEqual(len(rows), 2 * 2 * 3)
        for row in rows:
            self.check(row)
            self.assertEqual((row["workers"], row["servers"]), (3, 2))

    def test_many_tables(self):
        rows = self.rows("--tables", "300", "--table-bytes", "256", "--workers", "2", "--servers",
                         "2", "--transports", "shm,zmq", "--buffers", "user")
        for row in rows:
            self.check(row)
            self.assertEqual((row["tables"], row["bytes"], row["workers"], row["servers"]),
                             (300, 256, 2, 2))
        self.assertEqual([(row["op"], row["buffers"]) for row in rows],
                         2 * [("declare", "none"), ("push", "user"), ("pull", "user"),
                              ("declare", "none"), ("push_pull", "user")])

    def test_usage(self):
        for args, word in ((["ps", "--opps", "push"], "--ops"), (["p"], "ps"), ([], "subcommand"),
                           (["ps", "--tables", "0"], "--tables"),
                           (["ps", "--tables", "2", "--table-bytes", "3"], "--table-bytes"),
                           (["ps", "--ops", "foo"], "push, pull, push_pull")):
            code, out, err = run(*args)
            self.assertEqual((code, out), (2, ""), args)
            self.assertIn(word, err)
        for args in (["--help"], ["--version"], ["ps", "--help"]):
            self.assertEqual(run(*args)[0], 0)

    def test_failure_is_told(self):
        code, _, err = run("ps", "--sizes", "4", "--json", "/nonexistent/rows")
        self.assertEqual(code, 1)
        self.assertIn("/nonexistent/rows", err)


unittest.main()
