#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""psrt-bench tune writes rules that PSRT_COLL_TUNE takes. No figure is judged."""
import os
import re
import subprocess
import tempfile
import unittest

BENCH = os.environ["PSRT_TEST_BENCH"]
BIN = os.path.dirname(BENCH)
DEADLINE = 300  # seconds; only shows that nothing hangs
RULE = re.compile(r"(\w+):(?:(\d+)-(\d*))?:(\w+) ranks=3 hosts=one #( [\d.e+]+ us)+")
KINDS = ["allreduce", "reduce", "broadcast", "allgather", "reduce_scatter", "alltoall", "gather", "scatter",
         "barrier"]


def run(*argv, **env):
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PSRT_")}
    with tempfile.TemporaryDirectory() as state:  # records of psrt-launch
        done = subprocess.run(argv, env={**clean, "XDG_STATE_HOME": state, **env}, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=DEADLINE, check=False)
    return done.returncode, done.stdout, done.stderr


def tune(*flags):
    return run(f"{BIN}/psrt-launch", "--quiet", "--no-prefix", "-s", "0", "-w", "3", "--", BENCH, "tune", *flags)


class Tune(unittest.TestCase):
    def test_rules_cover_all_sizes_and_are_taken(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "rules")
            code, out, err = tune("--out", path, "--min", "1KiB", "--max", "64KiB", "--factor", "64", "--seconds",
                                  "0.002")
            self.assertEqual(code, 0, out + err)
            with open(path, encoding="ascii") as file:
                lines = file.read().splitlines()
            self.assertRegex(lines[0], r"^# .* 3 ranks on 1 host")
            rules = [RULE.fullmatch(line) for line in lines[1:]]
            self.assertNotIn(None, rules, lines)
            self.assertEqual(list(dict.fromkeys(rule[1] for rule in rules)), KINDS)
            for kind in KINDS:
                ranges = [(rule[2], rule[3]) for rule in rules if rule[1] == kind]
                if ranges == [(None, None)]:
                    continue
                self.assertEqual((ranges[0][0], ranges[-1][1]), ("0", ""), kind)
                for (_, end), (start, _) in zip(ranges, ranges[1:]):
                    self.assertEqual(int(end) + 1, int(start), kind)
            code, out, err = run(f"{BIN}/psrt-info", "coll", PSRT_COLL_TUNE="@" + path)
            self.assertEqual((code, err), (0, ""))
            self.assertEqual(len(re.findall(" tune  one +3-3 ", out)), len(rules))

    def test_one_collective(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "rules")
            code, out, err = tune("--out", path, "--collective", "barrier", "--seconds", "0.002")
            self.assertEqual(code, 0, out + err)
            with open(path, encoding="ascii") as file:
                self.assertRegex(file.read(), r"\A#.*\nbarrier::\w+ ranks=3 hosts=one # .*\n\Z")

    def test_wrong_flags(self):
        for flags, why in ((["--out", "x", "--min", "64", "--max", "32"], "--min is above --max"),
                           ([], "--out FILE is missing"), (["--out", "x", "--factor", "1"], "--factor"),
                           (["--out", "x", "--collective", "allredcue"], "allreduce")):
            code, _, err = run(BENCH, "tune", *flags)
            self.assertEqual(code, 2, flags)
            self.assertIn(why, err)
        code, _, err = run(BENCH, "tune", "--out", "/nonexistent/rules", "--collective", "barrier")
        self.assertEqual(code, 1)
        self.assertIn("--out /nonexistent/rules: No such file", err)


if __name__ == "__main__":
    unittest.main()
