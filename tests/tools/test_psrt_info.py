#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
import pathlib
import re
import unittest

from program import ROOT, run


def config_names():
    """From the source of the table, not from the program."""
    text = pathlib.Path(ROOT, "base/config.h").read_text(encoding="utf-8")
    return re.findall(r'X\(\w+, \w+, "(PSRT_\w+)"', text)


def version():
    text = pathlib.Path(ROOT, "CMakeLists.txt").read_text(encoding="utf-8")
    return re.search(r"project\(psrt VERSION ([\d.]+)", text).group(1)


class Info(unittest.TestCase):
    def ok(self, *args, **variables):
        code, out, err = run(*args, **variables)
        self.assertEqual((code, err), (0, ""))
        return out

    def test_plain(self):
        rows = {tuple(line.split()[:3]) for line in self.ok().splitlines()}
        self.assertIn(("version", version()), {row[:2] for row in rows})
        for row in [("transport", "inproc", "yes"), ("transport", "shm", "yes"),
                    ("transport", "zmq", "yes"), ("kernels", "scalar", "yes"),
                    ("optimizer", "sgd", "yes"), ("optimizer", "momentum", "yes"),
                    ("optimizer", "adam", "yes"), ("module", "rdma", "no"),
                    ("module", "cuda", "no")]:
            self.assertIn(row, rows)

    def test_config_lists_every_variable(self):
        names = config_names()
        self.assertGreater(len(names), 20)
        listed = [line.split()[0] for line in self.ok("-c").splitlines()[1:]]
        self.assertEqual(listed, names)

    def test_config_origin(self):
        rows = [line.split() for line in self.ok("--config", PSRT_LEASE="7s").splitlines()]
        self.assertIn(["PSRT_LEASE", "7s", "environment"], rows)
        self.assertIn(["PSRT_HEARTBEAT", "1s", "default"], rows)

    def test_the_page_of_variables_is_this_table(self):
        page = pathlib.Path(ROOT, "docs/env.md").read_text(encoding="utf-8")
        self.assertEqual(self.ok("--env-markdown", PSRT_LEASE="7s"), page,
                         "run: psrt-info --env-markdown > docs/env.md")
        rows = [line for line in page.splitlines() if line.startswith("| `")]
        self.assertEqual([row.split("`")[1] for row in rows], config_names())
        for row in rows:
            self.assertEqual(row.count("|"), 5, row)

    def test_all_explains(self):
        out = self.ok("-a")
        for name in config_names():
            self.assertRegex(out, rf"(?m)^{name} ")
        self.assertIn("a task that is silent for longer is declared dead", out)
        self.assertRegex(out, r"(?m)^transport +shm ")

    def test_illegal_environment(self):
        for mode in ("-c", "-a"):
            code, _, err = run(mode, PSRT_LEASE="soon")
            self.assertEqual(code, 1)
            self.assertIn("PSRT_LEASE", err)
            self.assertIn("soon", err)

    def test_usage(self):
        for args in (["--colour"], ["-z"], ["words"], ["--config=1"]):
            code, out, err = run(*args)
            self.assertEqual((code, out), (2, ""), args)
            self.assertIn("psrt-info", err)
        self.assertIn("usage: psrt-info", self.ok("--help"))
        self.assertEqual(self.ok("--version"), f"psrt-info {version()}\n")


unittest.main()
