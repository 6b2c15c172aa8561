#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""psrt-bench kernels measures every kernel and its rows are consistent. No figure is judged."""
import json
import os
import subprocess
import tempfile
import unittest

BENCH = os.environ["PSRT_TEST_BENCH"]
DEADLINE = 200  # seconds; only shows that nothing hangs
KEYS = ["kernel", "variant", "bytes", "gbps", "memcpy_gbps", "plain_gbps", "ratio"]
KERNELS = {"copy", "stream", "add_f32", "add_f64", "add_i32", "add_i64",
           "add_f16_to_f32", "add_bf16_to_f32",
           "divide_f32", "divide_f64", "scale_f32", "scale_f64", "squares_f32", "squares_f64",
           "f32_from_f16", "f16_from_f32", "f32_from_bf16", "bf16_from_f32",
           "reduce_sum_f32", "reduce_sum_f64", "reduce_sum_f16", "reduce_sum_bf16", "reduce_sum_i8",
           "reduce_prod_i64", "reduce_max_f32", "reduce_max_bf16", "reduce_avg_f32", "reduce_avg_i8",
           "reduce_stream_f32"}


def run(*args):
    done = subprocess.run([BENCH, "kernels", *args], stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=DEADLINE, check=False)
    return done.returncode, done.stdout, done.stderr


class Kernels(unittest.TestCase):
    def test_every_kernel_and_optimizer(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "rows.json")
            code, out, err = run("--sizes", "8,100KiB", "--seconds", "0.0005", "--json", path)
            self.assertEqual((code, err), (0, ""), out)
            with open(path, encoding="utf-8") as file:
                rows = json.load(file)
        self.assertEqual(len(out.splitlines()), 1 + len(rows))  # a heading
        for row in rows:
            self.assertEqual(list(row), KEYS)
            for key in KEYS[3:]:
                self.assertGreater(row[key], 0, row)
            self.assertAlmostEqual(row["ratio"] / (row["gbps"] / row["plain_gbps"]), 1, 3)
        for size in (8, 100 << 10):
            cells = [(row["kernel"], row["variant"]) for row in rows if row["bytes"] == size]
            self.assertEqual(len(cells), len(set(cells)))
            scalar = {kernel for kernel, variant in cells if variant == "scalar"}
            self.assertEqual(scalar, KERNELS)
            for name in ("sgd", "adam", "lamb"):
                self.assertIn((f"apply_{name}_f32", "auto"), cells)
                self.assertIn((f"apply_{name}_f64", "auto"), cells)

    def test_usage(self):
        for args, word in ((["--size", "8"], "--sizes"), (["--sizes", "12"], "12"),
                           (["--sizes", "8,"], "8,"), (["--sizes", ""], "sizes"),
                           (["--sizes", "8KB"], "8KB"), (["--sizes", "-8"], "-8"),
                           (["--sizes", "99999999999999999999"], "9999"), (["--seconds", "0"], "0"),
                           (["--seconds", "nan"], "nan"), (["--json", ""], "json")):
            code, out, err = run(*args)
            self.assertEqual((code, out), (2, ""), args)
            self.assertIn(word, err)
        self.assertEqual(run("--help")[0], 0)

    def test_failure_is_told(self):
        code, _, err = run("--sizes", "8", "--seconds", "0.0005", "--json", "/nonexistent/rows")
        self.assertEqual(code, 1)
        self.assertIn("/nonexistent/rows", err)


unittest.main()
