# SPDX-License-Identifier: Apache-2.0
"""Strangers, wrong keys, captures: the job goes on and nothing leaks."""
import glob
import os
import random
import secrets
import select
import socket
import struct
import threading
import unittest

from job import Job, JobTest, every

BIG = 300_000
PATTERN = struct.pack("<f", 1.7320508) * 16  # 64 bytes of a value that the test pushes


def listening(pids):
    """(address, port) of every TCP listener of these processes, from /proc."""
    inodes = set()
    for pid in pids:
        for fd in glob.glob(f"/proc/{pid}/fd/*"):
            try:
                link = os.readlink(fd)
            except OSError:
                continue
            if link.startswith("socket:["):
                inodes.add(link[8:-1])
    found = set()
    for name, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        with open(f"/proc/net/{name}") as table:
            lines = table.read().splitlines()[1:]
        for line in lines:
            f = line.split()
            if f[3] == "0A" and f[9] in inodes:
                host, port = f[1].split(":")
                raw = b"".join(struct.pack("<I", int(host[i:i + 8], 16))
                               for i in range(0, len(host), 8))
                found.add((socket.inet_ntop(family, raw), int(port, 16)))
    return found


class Security(JobTest):
    def pids(self, job):
        return [t.proc.pid for t in job.tasks if t.alive()]

    def check_well(self, job, w):
        every(w, "fill t 1")
        every(w, "push_pull t")
        self.finish(job, w)

    def test_everything_listens_on_the_given_address_only(self):
        for bind, expect in (("", "127.0.0.1"), ("127.0.0.3", "127.0.0.3")):
            env = {"PSRT_BIND_ADDRESS": bind} if bind else {}
            job, w = self.started(2, 2, **env)
            every(w, "table t n=1000 opt=none")
            servers = listening([s.proc.pid for s in job.srv])
            self.assertEqual(len(servers), 2)
            self.assertEqual({a for a, _ in servers}, {expect})
            self.assertEqual(listening([t.proc.pid for t in w]), set())
            self.check_well(job, w)

    def test_strange_bytes_change_nothing(self):
        rng = random.Random(7)
        greeting = b"\xff" + bytes(8) + b"\x7f\x03\x00CURVE" + bytes(64 - 17)
        inputs = [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x00" * 4096, rng.randbytes(100_000),
                  greeting, greeting[:11], b"\xff" * 64, b"PS" + rng.randbytes(62)]
        inputs += [rng.randbytes(n) for n in range(0, 70, 7)]
        for level in ("encrypted", "off"):
            job, w = self.started(2, 2, PSRT_SECURITY=level, PSRT_TRANSPORT="zmq")
            every(w, f"table t n={BIG} opt=none")
            for address in listening(self.pids(job)) | {("127.0.0.1", job.port)}:
                for data in inputs:
                    with socket.create_connection(address, timeout=5) as s:
                        try:
                            s.sendall(data)
                        except OSError:
                            pass  # hung up on: as it should be
            for _ in range(3):
                every(w, "fill t 1")
                every(w, "push_pull t")
            self.finish(job, w)

    def test_strange_bytes_on_the_local_sockets_change_nothing(self):
        rng = random.Random(8)
        job, w = self.started(2, 2, PSRT_TRANSPORT="shm")
        every(w, f"table t n={BIG} opt=none")
        paths = [p for p in glob.glob(f"{job.dir}/**", recursive=True)
                 if os.path.exists(p) and (os.stat(p).st_mode & 0o170000) == 0o140000]
        self.assertTrue(paths)
        for path in paths:
            self.assertEqual(os.stat(path).st_mode & 0o077, 0, path)
            for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET):
                for data in (b"GET / HTTP/1.0\r\n\r\n", rng.randbytes(5000), b"\x00" * 64, b"x"):
                    with socket.socket(socket.AF_UNIX, kind) as s:
                        try:
                            s.connect(path)
                            s.sendall(data)
                        except OSError:
                            pass
        self.check_well(job, w)

    def test_a_wrong_key_never_joins(self):
        for level in ("encrypted", "off"):
            job, w = self.started(1, 1, PSRT_SECURITY=level)
            every(w, "table t n=100 opt=none")
            other = Job(1, 1)
            self.addCleanup(other.stop)
            other.nonce = job.nonce  # knows the job's name, not its secret
            other.secret = secrets.token_hex(32)
            other.write_key()
            env = dict(PSRT_COORDINATOR=job.env["PSRT_COORDINATOR"], PSRT_SECURITY=level,
                       PSRT_START_TIMEOUT="2s")
            with self.assertRaises(Exception) as caught:
                other.worker(0, **env).cmd("create", 30)
            self.assertIn(caught.exception.status, ("PSRT_ERR_REFUSED", "PSRT_ERR_START_TIMEOUT",
                                                    "PSRT_ERR_UNREACHABLE"))
            self.assertIn("key", caught.exception.text)
            self.check_well(job, w)

    def test_a_foreign_job_never_joins(self):
        job, w = self.started(1, 1, PSRT_SECURITY="off")
        every(w, "table t n=100 opt=none")
        other = Job(1, 1)
        self.addCleanup(other.stop)
        with self.assertRaises(Exception) as caught:
            other.worker(0, PSRT_COORDINATOR=job.env["PSRT_COORDINATOR"], PSRT_SECURITY="off",
                         PSRT_START_TIMEOUT="2s").cmd("create", 30)
        self.assertIn("refused", caught.exception.text)
        self.assertTrue(job.coord.output(), "the coordinator logs the refusal")
        self.check_well(job, w)

    def test_the_secret_is_in_no_argument_environment_or_log(self):
        job, w = self.started(2, 2, PSRT_LOG_LEVEL="debug")
        every(w, "table t n=100 opt=none")
        for pid in self.pids(job):
            for name in ("cmdline", "environ"):
                with open(f"/proc/{pid}/{name}", "rb") as f:
                    data = f.read()
                self.assertNotIn(job.secret.encode(), data)
                self.assertNotIn(bytes.fromhex(job.secret), data)
        tasks = list(job.tasks)
        self.check_well(job, w)
        for t in tasks:
            self.assertNotIn(job.secret, t.output())

    def capture(self, level):
        """Did the pattern that workers push cross the loopback in clear?"""
        job, w = self.started(2, 2, PSRT_SECURITY=level, PSRT_TRANSPORT="zmq")
        every(w, f"table t n={BIG} opt=none cons=async init=constant:value=0")
        sniffer = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        sniffer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 20)
        sniffer.bind(("lo", 0))
        seen, stop, packets = [False], threading.Event(), [0]

        def listen():
            while not stop.is_set():
                if select.select([sniffer], [], [], 0.1)[0]:
                    data = sniffer.recv(70_000)
                    packets[0] += 1
                    seen[0] = seen[0] or PATTERN in data

        thread = threading.Thread(target=listen)
        thread.start()
        # Every element has the same value, so the pattern appears wherever a segment is cut.
        for a in w:
            a.cmd("flat t 1.7320508")
        for _ in range(5):
            every(w, "push t")
        every(w, "pull t")
        stop.set()
        thread.join()
        sniffer.close()
        self.finish(job, w)
        self.assertGreater(packets[0], 10)
        return seen[0]

    def test_a_capture_shows_no_payload(self):
        try:
            socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)).close()
        except PermissionError:
            self.skipTest("needs CAP_NET_RAW to capture")
        self.assertTrue(self.capture("off"), "the capture itself does not see payload")
        self.assertFalse(self.capture("encrypted"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
