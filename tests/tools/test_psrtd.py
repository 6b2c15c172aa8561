#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
import os
import tempfile
import unittest

from program import run

ADDRESS = "tcp://127.0.0.1:1"  # nobody listens there
ROLES = {"server": [], "coordinator": ["--coordinator"]}
ILLEGAL = ["-1", "", " 2", "2 ", "abc", "2147483648", "99999999999999999999", "1.5", "0x1"]


class Psrtd(unittest.TestCase):
    def refused(self, args, *words, **variables):
        """Exit code 1 and one line that has all the words."""
        code, out, err = run(*args, **variables)
        self.assertEqual((code, out), (1, ""), f"{variables}: {err}")
        self.assertTrue(err.startswith("psrtd: "), err)
        self.assertEqual(err.count("\n"), 1, err)
        for word in words:
            self.assertIn(word, err)

    def test_usage(self):
        for args in (["--colour"], ["-z"], ["words"], ["--coordinator=1"]):
            code, out, err = run(*args)
            self.assertEqual((code, out), (2, ""), args)
            self.assertIn("psrtd", err)
        self.assertEqual(run("--help")[0], 0)
        self.assertRegex(run("--version")[1], r"^psrtd \d+\.\d+\.\d+\n$")

    def test_numbers(self):
        for role, args in ROLES.items():
            for name in ("PSRT_RANK", "PSRT_WORKERS", "PSRT_SERVERS"):
                for value in ILLEGAL:
                    variables = {"PSRT_ROLE": role, "PSRT_COORDINATOR": ADDRESS, name: value}
                    shown = [f'"{value}"'] if value else ["empty"]
                    self.refused(args, name, *shown, **variables)
            self.refused(args, "PSRT_WORKERS", '"0"', PSRT_ROLE=role, PSRT_COORDINATOR=ADDRESS,
                         PSRT_WORKERS="0")

    def test_rank_is_size(self):
        for servers in (1, 3):
            self.refused([], "PSRT_RANK", str(servers), PSRT_ROLE="server", PSRT_RANK=str(servers),
                         PSRT_SERVERS=str(servers), PSRT_COORDINATOR=ADDRESS)

    def test_unset(self):
        for role, args in ROLES.items():
            self.refused(args, "PSRT_COORDINATOR")
            self.refused(args, "PSRT_COORDINATOR", PSRT_ROLE=role)
            self.refused(args, "PSRT_KEY_FILE", "PSRT_JOB_DIR", PSRT_ROLE=role,
                         PSRT_COORDINATOR=ADDRESS)

    def test_other_role(self):
        for role in ("worker", "bogus"):
            for args in ROLES.values():
                self.refused(args, "PSRT_ROLE", role, PSRT_ROLE=role, PSRT_COORDINATOR=ADDRESS)

    def test_key_file(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "key")
            variables = {"PSRT_ROLE": "server", "PSRT_COORDINATOR": ADDRESS, "PSRT_JOB_DIR": folder}
            self.refused([], path, "No such file", **variables)
            with open(path, "w", encoding="ascii") as file:
                file.write("no key\n")
            os.chmod(path, 0o600)
            self.refused([], path, **variables)
            os.chmod(path, 0o644)
            self.refused([], path, **variables)


unittest.main()
