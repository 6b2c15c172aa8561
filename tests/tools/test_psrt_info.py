#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
import os
import pathlib
import re
import tempfile
import unittest
import xml.etree.ElementTree

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

    def test_a_variable_of_the_launcher_is_known(self):
        self.assertNotIn("PSRT_LAUNCH_PSRTD", self.ok("-c", PSRT_LAUNCH_PSRTD="/usr/bin/psrtd"))

    def test_the_page_of_variables_is_this_table(self):
        page = pathlib.Path(ROOT, "docs/env.md").read_text(encoding="utf-8")
        self.assertEqual(self.ok("--env-markdown", PSRT_LEASE="7s"), page,
                         "run: psrt-info --env-markdown > docs/env.md")
        rows = [line for line in page.splitlines() if line.startswith("| `")]
        self.assertEqual([row.split("`")[1] for row in rows], config_names())
        for row in rows:
            self.assertEqual(row.count("|"), 5, row)

    def test_rules_of_collectives(self):
        plain = [line.split() for line in self.ok("coll").splitlines()]
        self.assertIn(["allreduce", "ring", "10", "any", "any", "0B-"], plain)
        tuned = [line.split() for line in
                 self.ok("coll", PSRT_COLL_TUNE="allreduce:1M-:halving").splitlines()]
        rule = ["allreduce", "halving", "tune", "any", "any", "1MiB-"]
        self.assertEqual([row for row in tuned if row not in plain], [rule])
        self.assertEqual(tuned.index(rule), 1, "before the rules that are built in")

    def test_rules_of_collectives_that_are_none(self):
        code, out, err = run("coll", PSRT_COLL_TUNE="allreduce::rnig")
        self.assertEqual((code, out), (1, ""))
        self.assertIn("PSRT_COLL_TUNE", err)
        self.assertIn('nearest is "ring"', err)
        self.assertEqual(run("coll", "more")[0], 2)

    def test_topology_of_a_large_machine(self):
        """A machine that hwloc makes up: 2 packages, in each 2 nodes with a cache over 4 cores."""
        out = self.ok("topo", HWLOC_SYNTHETIC="pack:2 [numa(memory=8GiB)] l3:2(size=16MiB) core:4 pu:2",
                      HWLOC_THISSYSTEM="0")
        self.assertEqual(out, """\
machine: 16 GiB, 16 cores
  package 0
    NUMA node 0, 8 GiB
    L3 cache, 16 MiB
      cores 0-3: cpu 0-7
    L3 cache, 16 MiB
      cores 4-7: cpu 8-15
  package 1
    NUMA node 1, 8 GiB
    L3 cache, 16 MiB
      cores 8-11: cpu 16-23
    L3 cache, 16 MiB
      cores 12-15: cpu 24-31
""")

    def test_topology_says_what_is_not_allowed(self):
        allowed = sorted(os.sched_getaffinity(0))
        if len(allowed) < 2:
            self.skipTest("this process may use one cpu only")
        first = allowed[0]
        code, out, err = run("topo", before=lambda: os.sched_setaffinity(0, {first}))
        self.assertEqual((code, err), (0, ""))
        may = [line for line in out.splitlines() if "cpu " in line and "not allowed" not in line]
        self.assertEqual(len(may), 1, out)
        self.assertIn("may keep 1 busy", out)
        self.assertIn("(not allowed to this process)", out)

    def test_topology_as_svg(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "a.svg")
            self.assertEqual(self.ok("topo", "--svg", str(file), HWLOC_THISSYSTEM="0",
                                     HWLOC_SYNTHETIC="pack:2 core:3 pu:1"), "")
            root = xml.etree.ElementTree.parse(file).getroot()
            name = "{http://www.w3.org/2000/svg}"
            texts = [text.text for text in root.iter(name + "text")]
            self.assertEqual([t for t in texts if t.startswith("core ")],
                             [f"core {n}" for n in range(6)])
            for rect in root.iter(name + "rect"):
                self.assertLessEqual(float(rect.get("x")) + float(rect.get("width")),
                                     float(root.get("width")))
                self.assertLessEqual(float(rect.get("y")) + float(rect.get("height")),
                                     float(root.get("height")))
        code, out, err = run("topo", "--svg", "/nonexistent/a.svg")
        self.assertEqual((code, out), (1, ""))
        self.assertEqual(err, "psrt-info: cannot write /nonexistent/a.svg: No such file or directory\n")
        code, _, err = run("topo", "--xml")
        self.assertEqual(code, 2)
        self.assertIn("only --svg FILE", err)

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
