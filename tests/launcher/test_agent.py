# SPDX-License-Identifier: Apache-2.0
"""psrt-agent and what is not psrt-launch: on its standard input, and where it dials."""
import os
import pathlib
import socket
import struct
import subprocess
import threading
import time
import unittest

AGENT = pathlib.Path(os.environ["PSRT_TEST_LAUNCHER"]).with_name("psrt-agent")
DEADLINE = 60


def text(value):
    return struct.pack("<I", len(value) + 1) + value.encode() + b"\0"


def bootstrap(port, open_ms=20000, addresses=("127.0.0.1",), protocol=4):
    """As psrt-launch writes it (launcher/agentmsg.h); the key is nobody's."""
    rest = struct.pack("<I", protocol) + bytes(range(80)) + struct.pack("<IQ", 0, open_ms)
    rest += text("/tmp") + struct.pack("<II", port, len(addresses)) + b"".join(map(text, addresses))
    return b"psrtboot" + struct.pack("<I", len(rest)) + rest


class Agent(unittest.TestCase):

    def start(self, data):
        proc = subprocess.Popen([AGENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, env={"PATH": os.environ["PATH"]})
        self.addCleanup(proc.kill)
        try:
            proc.stdin.write(data)
            proc.stdin.flush()
        except BrokenPipeError:
            pass
        return proc

    def assert_ends(self, proc, expected, close=False):
        if close:
            proc.stdin.close()
        proc.wait(DEADLINE)
        err, out = proc.stderr.read().decode(), proc.stdout.read()
        for stream in (proc.stdin, proc.stdout, proc.stderr):
            try:
                stream.close()
            except BrokenPipeError:
                pass
        self.assertEqual((proc.returncode, out), (70, b""), err)
        self.assertRegex(err, f"^psrt-agent: .*{expected}.*\n$")

    def listener(self, answer=b""):
        """Accepts, answers, and holds the connection."""
        server = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(server.close)

        def serve():
            try:
                peer, _ = server.accept()
            except OSError:
                return
            self.addCleanup(peer.close)
            peer.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        return server.getsockname()[1]

    def test_input_of_others(self):
        self.assert_ends(self.start(b""), "nothing came on the standard input", close=True)
        self.assert_ends(self.start(b"GET / HTTP/1.1\r\n\r\n"), "is not from psrt-launch")
        self.assert_ends(self.start(b"psrtboot" + b"\xff" * 64), "is not from psrt-launch")
        self.assert_ends(self.start(bootstrap(1)[:60]), "is not from psrt-launch", close=True)
        good = bootstrap(1)
        self.assert_ends(self.start(good[:8] + struct.pack("<I", 20) + good[12:32]), "is damaged")
        self.assert_ends(self.start(bootstrap(1, protocol=99)), "install the same version")
        self.assert_ends(self.start(bootstrap(1, addresses=("localhost",))), "no address to dial")

    def test_nobody_listens(self):
        with socket.socket() as bound:
            bound.bind(("127.0.0.1", 0))
            port = bound.getsockname()[1]
            self.assert_ends(self.start(bootstrap(port, addresses=("127.0.0.1", "::1"))),
                             "cannot be reached: .*127.0.0.1: connection refused")

    def test_who_listens_is_another(self):
        self.assert_ends(self.start(bootstrap(self.listener(b"SSH-2.0-OpenSSH_9\r\n"))),
                         "does not speak this protocol")
        fake = b"psrtchn1" + bytes(32) + bytes(24) + struct.pack("<I", 17) + bytes(17)
        self.assert_ends(self.start(bootstrap(self.listener(fake))), "does not have the key of this job")

    def test_who_listens_says_nothing(self):
        begin = time.monotonic()
        self.assert_ends(self.start(bootstrap(self.listener(), open_ms=500)),
                         "(no answer of the other side within|did not answer in time)")
        self.assertLess(time.monotonic() - begin, 20)

    def test_its_input_ends_while_it_dials(self):
        self.assert_ends(self.start(bootstrap(self.listener())), "connection that started it ended",
                         close=True)


if __name__ == "__main__":
    unittest.main(verbosity=2)
