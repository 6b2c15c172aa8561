# SPDX-License-Identifier: Apache-2.0
"""Strange bytes, wrong keys, other jobs: the job goes on and nothing leaks."""
import glob
import os
import random
import secrets
import socket
import unittest

from job import Job, JobTest, every
from wire import listening

BIG = 300_000


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
            workers = listening([t.proc.pid for t in w])
            self.assertEqual((len(workers), {a for a, _ in workers}), (2, {expect}))
            self.check_well(job, w)
        job, w = self.started(2, 2, PSRT_COLLECTIVES="off")
        every(w, "table t n=1000 opt=none")
        self.assertEqual(listening([t.proc.pid for t in w]), set())
        self.check_well(job, w)

    def test_strange_bytes_change_nothing(self):
        rng = random.Random(7)
        greeting = b"\xff" + bytes(8) + b"\x7f\x03\x00CURVE" + bytes(64 - 17)
        inputs = [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x00" * 4096, rng.randbytes(100_000),
                  greeting, greeting[:11], b"\xff" * 64, b"PS" + rng.randbytes(62)]
        inputs += [rng.randbytes(n) for n in range(0, 70, 7)]
        for level in ("encrypted", "authenticated", "off"):
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
        for level in ("encrypted", "authenticated", "off"):
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
            self.assertIn("job key", caught.exception.text, "what is probably wrong")
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


if __name__ == "__main__":
    unittest.main(verbosity=2)
