# SPDX-License-Identifier: Apache-2.0
"""docs/by-hand.md: its commands, run as they stand in the page, start a job that ends well."""
import os
import re
import signal
import socket
import subprocess
import tempfile
import unittest

from job import BIN, SLOW

PAGE = os.path.join(os.path.dirname(__file__), "../../docs/by-hand.md")
PORT = "7077"  # of the page; tests run in parallel, so it is the one thing that is replaced


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return str(s.getsockname()[1])


def commands():
    with open(PAGE) as f:
        blocks = re.findall(r"^```sh\n(.*?)^```$", f.read(), re.M | re.S)
    return "".join(blocks)


class ByHand(unittest.TestCase):
    @unittest.skipUnless(os.path.exists(f"{BIN}/hello"), "built without the examples")
    def test_the_commands_of_the_page(self):
        script = commands()
        self.assertEqual(script.count(PORT), 1)
        env = {k: v for k, v in os.environ.items() if not k.startswith("PSRT_")}
        env["PATH"] = f"{BIN}:{env['PATH']}"
        with tempfile.TemporaryDirectory(prefix="psrt-test-") as cwd:
            bash = subprocess.Popen(["bash", "-euc", script.replace(PORT, free_port())], cwd=cwd,
                                    env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                    stderr=subprocess.PIPE, text=True, start_new_session=True)
            try:
                out, err = bash.communicate(timeout=60 * SLOW)
            except subprocess.TimeoutExpired:
                os.killpg(bash.pid, signal.SIGKILL)
                raise
            # The pipes ended with the last process; each program prints why it failed.
            self.assertEqual(err, "")
            self.assertEqual(out.splitlines(), ["weight[42] = 42.00"] * 2)
            self.assertEqual(bash.returncode, 0)
            self.assertEqual(os.listdir(f"{cwd}/job"), ["key"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
