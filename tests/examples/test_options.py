#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What mnist_replica refuses, and how."""
import os
import tempfile
import unittest

from example import mnist, program, run


class Options(unittest.TestCase):
    def refused(self, code, *words, args):
        got, out, err = run(mnist(*args))
        self.assertEqual((got, out), (code, ""), f"{args}: {err}")
        for word in words:
            self.assertIn(word, err)

    def test_usage(self):
        for flag in ("--epochs", "--steps", "--batch", "--train-limit"):
            for value in ("0", "-1", "", " 2", "2 ", "abc", "1.5", "99999999999999999999"):
                self.refused(2, flag, "not a number", args=[flag, value])
        self.refused(2, "--colour", args=["--colour"])
        self.refused(2, "words", args=["words"])
        self.refused(2, "--steps", args=["--steps"])
        self.refused(2, "--dtype", "f8", args=["--dtype", "f8"])
        code, out, _ = run(mnist("--help"))
        self.assertEqual(code, 0)
        for flag in ("epochs", "steps", "batch", "optimizer", "consistency", "dtype", "deterministic",
                     "seed", "train-limit", "data", "save", "quiet", "help"):
            self.assertIn(f"--{flag}", out)

    def test_specifications(self):
        self.refused(1, "momentun", "momentum", args=["--quiet", "--optimizer", "momentun:lr=1"])
        self.refused(1, "consistency", args=["--quiet", "--consistency", "sometimes"])
        self.refused(1, "deterministic",
                     args=["--quiet", "--consistency", "async", "--deterministic"])

    def test_data(self):
        self.refused(1, "/nonexistent/train-images", "No such file",
                     args=["--data", "/nonexistent"])
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "train-images-idx3-ubyte"), "wb") as file:
                file.write(b"GIF89a garbage")
            self.refused(1, folder, "not an IDX file", args=["--data", folder])
        self.refused(1, "fewer than one batch", args=["--train-limit", "10", "--batch", "11"])

    def test_illegal_environment(self):
        for name, value in (("PSRT_RANK", "-1"), ("PSRT_WORKERS", "abc"), ("PSRT_LEASE", "soon")):
            code, _, err = run(mnist("--steps", 1), **{name: value})
            self.assertEqual(code, 1)
            self.assertIn(name, err)
            self.assertIn(value, err)

    def test_hello(self):
        code, out, err = run([program("hello")])
        self.assertEqual((code, out, err), (0, "weight[42] = 42.00\n", ""))


unittest.main()
