# SPDX-License-Identifier: Apache-2.0
"""The manual pages, which the build makes of what the programs print for --help."""
import os
import pathlib
import re
import shutil
import subprocess
import unittest

MAN = pathlib.Path(os.environ["PSRT_TEST_MAN"])
BIN = pathlib.Path(os.environ["PSRT_TEST_LAUNCHER"]).parent


class Man(unittest.TestCase):

    def pages(self):
        pages = sorted(MAN.glob("*.1"))
        self.assertIn("psrt-launch.1", [p.name for p in pages])
        return [(p, p.read_text()) for p in pages]

    def test_each_flag_and_heading_is_there(self):
        for page, text in self.pages():
            help_text = subprocess.run([BIN / page.stem, "--help"], stdout=subprocess.PIPE, check=True, text=True).stdout
            plain = text.replace("\\-", "-")
            flags = re.findall(r"^ {4,8}(?:-\w, )?(--[a-z_-]+)", help_text, re.M)
            self.assertGreater(len(flags), 1)
            for flag in flags:
                self.assertRegex(plain, rf"(?m)^\.B .*{flag}\b", page)
            self.assertEqual(re.findall(r"(?m)^\.SH (.*)$", plain), re.findall(r"(?m)^([A-Z][A-Z ]+)$", help_text))
            self.assertRegex(plain, rf"\A\.TH {page.stem.upper()} 1 ")
            self.assertRegex(plain, rf"(?m)^{page.stem} - \w")

    def test_each_verb_is_an_item(self):
        text = (MAN / "psrt-launch.1").read_text()
        for verb in ("ps", "status", "logs", "attach", "kill", "restart", "replace"):
            self.assertRegex(text, rf"(?m)^\.TP\n\.B {verb} .*\n[^.\n]")

    def test_the_formatter_has_nothing_to_say(self):
        if not shutil.which("groff"):
            print("[SKIP] groff is not installed", flush=True)
            self.skipTest("no groff")
        for page, _ in self.pages():
            r = subprocess.run(["groff", "-man", "-Tutf8", "-ww", "-z", page], stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True)
            self.assertEqual(r.stdout, "")


if __name__ == "__main__":
    unittest.main()
