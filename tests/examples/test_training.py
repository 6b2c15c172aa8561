#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Short trainings: what must agree, and what must fail."""
import os
import tempfile
import unittest

from example import accuracy, launched, mnist, program, run, weights

WORKER_0 = "[worker:0] "
SLOW = int(os.environ.get("PSRT_TEST_SLOW", 1))  # how many times slower the build is: so much less is trained
GOOD, BETTER, NEAR = (0.75, 0.8, 0.01) if SLOW == 1 else (0.4, 0.4, 0.1)


class Training(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def ok(self, command):
        code, out, err = run(command)
        self.assertEqual((code, err), (0, ""), out)
        return out

    def trained(self, name, command):
        """The final weights of a run."""
        path = os.path.join(self.folder.name, name)
        self.ok([*command, "--quiet", "--save", path])
        return weights(path)

    def test_alone(self):
        out = self.ok(mnist("--train-limit", 6000 // SLOW, "--epochs", 2, "--batch", 50))
        self.assertGreater(accuracy(out), GOOD)
        lines = out.splitlines()
        self.assertEqual(lines[0], f"1 worker, 1 server (embedded), {6000 // SLOW} training images")
        steps = 240 // SLOW
        self.assertRegex(lines[-3], rf"^epoch 2/2  step {steps}/{steps}  "
                         r"loss \d+\.\d{4}  \d+ images/s  push \d+\.\d\d GB/s  pull \d+\.\d\d GB/s  0 s left$")
        self.assertRegex(lines[-2], f"^trained {steps} steps in ")

    def test_quiet(self):
        out = self.ok(mnist("--quiet", "--steps", 20))
        self.assertEqual(len(out.splitlines()), 1)
        self.assertGreater(accuracy(out), 0.4)

    def test_every_consistency(self):
        for consistency in ("sync", "async", "ssp:2"):
            with self.subTest(consistency):
                out = self.ok(launched(2, 2, *mnist("--quiet", "--steps", 400 // SLOW, "--batch", 32,
                                                    "--consistency", consistency)))
                self.assertEqual(len(out.splitlines()), 1)
                self.assertGreater(accuracy(out, WORKER_0), GOOD)

    def test_every_dtype_is_as_accurate(self):
        reached = {}
        for dtype in ("f32", "f16", "bf16"):
            out = self.ok(launched(2, 2, *mnist("--quiet", "--train-limit", 12000 // SLOW, "--epochs", 3,
                                                "--batch", 32, "--dtype", dtype)))
            reached[dtype] = accuracy(out, WORKER_0)
        self.assertGreater(reached["f32"], BETTER)
        for dtype in ("f16", "bf16"):
            self.assertLess(abs(reached[dtype] - reached["f32"]), NEAR, reached)

    def test_two_workers_equal_one_with_the_double_batch(self):
        args = ["--steps", 50, "--optimizer", "sgd:lr=0.05"]
        one = self.trained("one", mnist(*args, "--batch", 64))
        two = self.trained("two", launched(2, 2, *mnist(*args, "--batch", 32)))
        other = self.trained("other", mnist(*args, "--batch", 64, "--seed", 2))
        self.assertLess(max(abs(a - b) for a, b in zip(one, two)), 1e-5)
        self.assertGreater(max(abs(a - b) for a, b in zip(one, other)), 0.01)

    def test_deterministic(self):
        args = ["--deterministic", "--steps", 20, "--batch", 32]
        # Three workers: the sum of two does not depend on their order anyway.
        first = self.trained("first", launched(3, 2, *mnist(*args)))
        for number, servers in enumerate((2, 1, 3)):
            again = self.trained(str(number), launched(3, servers, *mnist(*args)))
            self.assertEqual(first.tobytes(), again.tobytes(), f"{servers} servers")

    def test_a_server_that_does_not_train(self):
        command = mnist("--quiet", "--steps", 20)
        broken = (f'if [ "$PSRT_RANK" = 1 ]; then exec "{os.environ["PSRT_TEST_NO_APPLY"]}"; '
                  f'else exec "{program("psrtd")}"; fi')
        code, out, err = run(launched(1, 2, *command, options=["--server-command", broken]))
        self.assertEqual(code, 1, out)
        self.assertNotIn("test accuracy", out)
        self.assertRegex(err, r"fc[12]/(weight|bias): elements \d+ to \d+ were not changed")
        sound = broken.replace('= 1 ]', '= none ]')
        self.ok(launched(1, 2, *command, options=["--server-command", sound]))

    def test_nothing_learned_is_a_failure(self):
        code, out, err = run(mnist("--quiet", "--steps", 5, "--optimizer", "sgd:lr=0"))
        self.assertEqual((code, out), (1, ""))
        self.assertIn("fc1/weight: elements 0 to 262143 were not changed by training", err)

    def test_divergence_is_a_failure(self):
        code, out, err = run(mnist("--quiet", "--steps", 50, "--optimizer", "sgd:lr=1e6"))
        self.assertEqual((code, out), (1, ""))
        self.assertIn("not finite", err)

    def test_save_where_nothing_can_be_written(self):
        code, _, err = run(mnist("--quiet", "--steps", 1, "--save", "/nonexistent/file"))
        self.assertEqual(code, 1)
        self.assertIn("--save", err)

    def test_hello_launched(self):
        out = self.ok(launched(3, 2, program("hello")))
        self.assertEqual(sorted(out.splitlines()),
                         [f"[worker:{rank}] weight[42] = 42.00" for rank in range(3)])


unittest.main()
