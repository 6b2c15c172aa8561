#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""psrt-bench model, and the models of benchmarks/models: as many parameters as published. No figure is judged."""
import json
import math
import os
import pathlib
import subprocess
import tempfile
import unittest

BENCH = os.environ["PSRT_TEST_BENCH"]
MODELS = pathlib.Path(__file__).parents[2] / "benchmarks" / "models"
DEADLINE = 120  # seconds; only shows that nothing hangs
# Of torchvision and transformers; Poseidon's VGG19-22K has 229 M. GMAC of a forward pass, as published.
PUBLISHED = {"alexnet": (61100840, 0.71), "vgg19": (143667240, 19.6), "vgg19_22k": (229052817, 19.7),
             "inception_v3": (27161264, 5.72), "resnet50": (25557032, 4.09), "gpt2": (124439808, 145.8),
             "bert_large": (335141888, 39.5)}
KEYS = ["model", "parameters", "bytes", "workers", "servers", "batch", "divide", "compute_ms", "step_ms",
        "samples_per_s", "efficiency"]


def tensors(name):
    with open(MODELS / f"{name}.tsv", encoding="utf-8") as f:
        lines = [line.rstrip("\n").split("\t") for line in f if not line.startswith("#")]
    return [(name, math.prod(map(int, shape.split("x"))), int(count)) for name, shape, count in lines]


def run(*argv):
    env = {name: value for name, value in os.environ.items() if not name.startswith("PSRT_")}
    with tempfile.TemporaryDirectory() as state:  # records of psrt-launch
        env["XDG_STATE_HOME"] = state
        done = subprocess.run(argv, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=DEADLINE, check=False)
    return done.returncode, done.stdout, done.stderr


def model(name):
    return ["model", "--tensors", str(MODELS / f"{name}.tsv")]


class Models(unittest.TestCase):
    def test_published_sizes(self):
        self.assertEqual({path.stem for path in MODELS.glob("*.tsv")}, set(PUBLISHED))
        for name, (parameters, gmac) in PUBLISHED.items():
            rows = tensors(name)
            self.assertEqual(sum(row[1] for row in rows), parameters, name)
            self.assertAlmostEqual(sum(row[2] for row in rows) / 1e9 / gmac, 1, 1, name)
            self.assertEqual(len({row[0] for row in rows}), len(rows), name)


class Model(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def row(self, *argv):
        code, out, err = run(*argv, "--json", self.path("row"))
        self.assertEqual((code, err), (0, ""), out)
        self.assertEqual(len(out.splitlines()), 2)
        with open(self.path("row"), encoding="utf-8") as f:
            rows = json.load(f)
        self.assertEqual([list(row) for row in rows], [KEYS])
        row = rows[0]
        self.assertAlmostEqual(row["efficiency"], row["compute_ms"] / row["step_ms"], 4)
        self.assertAlmostEqual(row["samples_per_s"] * row["step_ms"] / 1e3 / row["workers"] / row["batch"],
                               1, 4)
        self.assertGreater(row["step_ms"], row["compute_ms"] - 1e-3)  # the timers ran
        return row

    def test_alone(self):
        row = self.row(BENCH, *model("resnet50"), "--divide", "1000", "--steps", "3", "--step-ms", "20",
                       "--batch", "7")
        self.assertEqual((row["model"], row["workers"], row["servers"], row["batch"], row["compute_ms"]),
                         ("resnet50", 1, 1, 7, 20))
        self.assertEqual(row["parameters"], sum(math.ceil(t[1] / 1000) for t in tensors("resnet50")))

    def test_in_a_job(self):
        launch = os.path.join(os.path.dirname(BENCH), "psrt-launch")
        row = self.row(launch, "--quiet", "--no-prefix", "-w", "3", "-s", "2", "--", BENCH, *model("alexnet"),
                       "--divide", "100", "--steps", "3", "--step-ms", "1")
        self.assertEqual((row["workers"], row["servers"], row["bytes"]), (3, 2, 4 * row["parameters"]))

    def test_files_that_are_no_model(self):
        good = "a.weight\t4x5\t20\n"
        for text, word in ((good + "b\t3", "line 2"), (good + "b\t3x\t1", "shape"), (good + "b\t3\t-1",
                           "operations"), ("b\t3\t0", "no layer"), ("", "no layer"),
                           (good + "b" * 64 + "\t3\t1", "name"), ("b\t17179869184x2\t1", "shape")):
            with open(self.path("bad"), "w", encoding="utf-8") as f:
                f.write(text)
            code, _, err = run(BENCH, "model", "--tensors", self.path("bad"))
            self.assertEqual(code, 1, text)
            self.assertIn(word, err)
        code, _, err = run(BENCH, "model", "--tensors", self.path("none"))
        self.assertEqual((code, "No such file" in err), (1, True))

    def test_usage(self):
        for args, word in (([], "--tensors"), (["--steps", "0"], "--steps"), (["--divide", "0.5"], "--divide"),
                           (["--tensor", "x"], "--tensors")):
            code, out, err = run(BENCH, "model", *args)
            self.assertEqual((code, out), (2, ""), args)
            self.assertIn(word, err)
        self.assertEqual(run(BENCH, "model", "--help")[0], 0)



class Fusion(unittest.TestCase):
    def test_runs_and_checks(self):
        code, out, err = run(BENCH, "fusion", "--tensors", str(MODELS / "resnet50.tsv"), "--divide", "1000",
                             "--steps", "2")
        self.assertEqual((code, err), (0, ""), out)
        self.assertRegex(out, r"(?m)^ +161 +\d+ +1 ")
        code, _, err = run(BENCH, "fusion")
        self.assertEqual(code, 2)
        self.assertIn("--tensors FILE is missing", err)


unittest.main()
