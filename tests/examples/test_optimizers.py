#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The demonstration learns with every optimizer of psrt-info, and as well in 16 bits."""
import subprocess
import unittest

from example import accuracy, launched, mnist, program, run

# Where the default learning rate is not made for so short a training, or so that it ends in a calm place.
RATES = {"sgd": "lr=0.05", "adadelta": "lr=0.1", "rmsprop": "lr=1e-4", "adam": "lr=5e-4",
         "adamw": "lr=5e-4", "nadam": "lr=2e-4", "ftrl": "lr=0.05", "lars": "trust=0.01",
         "lamb": "lr=2e-3"}


def optimizers():
    out = subprocess.run([program("psrt-info")], check=True, capture_output=True, text=True).stdout
    rows = [line.split() for line in out.splitlines()]
    return [row[1] for row in rows if row and row[0] == "optimizer"]


class Optimizers(unittest.TestCase):
    def reached(self, optimizer, dtype):
        code, out, err = run(launched(1, 2, *mnist(
            "--quiet", "--deterministic", "--train-limit", 12000, "--epochs", 2, "--batch", 64,
            "--optimizer", optimizer, "--dtype", dtype)))
        self.assertEqual((code, err), (0, ""), out)
        return accuracy(out, "[worker:0] ")

    def test_every_optimizer_and_dtype(self):
        for name in optimizers():
            with self.subTest(name):
                spec = f"{name}:{RATES[name]}" if name in RATES else name
                reached = {dtype: self.reached(spec, dtype) for dtype in ("f32", "f16", "bf16")}
                print(name, reached, flush=True)
                self.assertGreater(reached["f32"], 0.75, reached)
                for dtype in ("f16", "bf16"):
                    self.assertLess(abs(reached[dtype] - reached["f32"]), 0.01, reached)


unittest.main()
