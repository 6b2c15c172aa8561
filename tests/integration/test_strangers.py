# SPDX-License-Identifier: Apache-2.0
"""Who does not hold the key: scanners, repeaters, other users, other jobs, readers of the wire."""
import glob
import os
import random
import socket
import stat
import struct
import subprocess
import sys
import unittest

import wire
from job import AGENT, Agent, Job, JobTest, SLOW, Task, every

CURVE_CLIENT = os.environ.get("PSRT_TEST_CURVE_CLIENT", "build/tests/bin/integration_curve_client")
LEVELS = ("encrypted", "authenticated", "off")
NOBODY = 65534
ADDRESS = f"127.{random.randint(1, 250)}.{os.getpid() % 250}.7"  # nobody else's packets


class Strangers(JobTest):
    def at_level(self, level):
        """A job on an address of its own, with a server and two workers."""
        job = self.job(2, 1, PSRT_SECURITY=level, PSRT_TRANSPORT="zmq", PSRT_BIND_ADDRESS=ADDRESS)
        job.listener.close()
        job.listener = socket.create_server((ADDRESS, 0), backlog=128)
        job.port = job.listener.getsockname()[1]
        job.env["PSRT_COORDINATOR"] = f"tcp://{ADDRESS}:{job.port}"
        w = job.start()
        every(w, "table t n=1000 opt=none cons=async reduce=sum init=constant:value=0")
        self.control = (ADDRESS, job.port)
        self.data, = wire.listening([job.srv[0].proc.pid]) - {self.control}
        return job, w

    def sums(self, agents):
        every(agents, "pull t")
        return {float(s) for s in every(agents, "sum t")}

    def end(self, job, w):
        every(w, "fill t 1")
        every(w, "push t")
        self.finish(job, w)

    # ---- scans ---------------------------------------------------------------------------------

    def probes(self, job):
        """name, bytes. The last two speak ZMTP with mechanism NULL to the end of its handshake."""
        rng = random.Random(11)
        hello = b"\x04\xc8\x05HELLO\x01\x00" + rng.randbytes(192)
        no_job = wire.LINK_OPEN + struct.pack("<IQQ", 3 << 24, 1 << 20, 1) + rng.randbytes(16)
        speaks = wire.greeting(b"NULL") + wire.ready(b"P" + rng.randbytes(24))
        return [("silence", b""), ("line", b"\r\n"), ("http", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
                ("tls", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + rng.randbytes(508)),
                ("ssh", b"SSH-2.0-OpenSSH_9.2\r\n"), ("noise", rng.randbytes(2000)),
                ("zmtp1", b"\x01\x00"), ("zmtp2", b"\xff" + bytes(8) + b"\x7f\x01\x05\x00\x00"),
                ("plain", wire.greeting(b"PLAIN")), ("curve", wire.greeting(b"CURVE")),
                ("curve hello", wire.greeting(b"CURVE") + hello),
                ("null", speaks), ("open", speaks + wire.frame(no_job))]

    def check_answer(self, job, name, got, curve):
        """Nothing but a greeting; where there is no CURVE the handshake that libzmq owes to all."""
        self.assertNotIn(bytes.fromhex(job.nonce), got, name)
        self.assertNotIn(bytes.fromhex(job.secret), got, name)
        mechanism = (b"CURVE" if curve else b"NULL").ljust(20, b"\0")
        self.assertEqual(got[:1], b"\xff"[:len(got)], name)
        if len(got) > 12 and (curve or name != "zmtp2"):  # NULL answers an old peer in its way
            self.assertEqual(got[12:32], mechanism[:len(got) - 12], name)
        if curve or name not in ("null", "open"):
            self.assertLessEqual(len(got), wire.GREETING, (name, got))

    def test_a_port_scan_finds_greetings(self):
        for level in LEVELS:
            job, w = self.at_level(level)
            ports = wire.listening([t.proc.pid for t in job.tasks if t.alive()])
            worker = wire.listening([w[0].proc.pid])
            self.assertEqual(ports, {self.control, self.data} | wire.listening([a.proc.pid for a in w]))
            self.assertEqual(len(worker), 1)
            for port, curve in ((self.control, level != "off"), (self.data, level == "encrypted"),
                                (*worker, level == "encrypted")):
                for name, data in self.probes(job):
                    got = wire.answer(port, data, 0.3 * SLOW)
                    with self.subTest(level=level, port=port, probe=name):
                        self.check_answer(job, name, got, curve)
            self.end(job, w)

    def test_a_plain_stranger_is_refused_without_a_word_about_the_job(self):
        job, w = self.at_level("authenticated")
        name, data = self.probes(job)[-1]
        self.assertEqual(name, "open")
        # libzmq wants its READY waited for.
        with wire.play_back(self.data, data) as s:
            refuse = wire.exactly(s, 42)
        self.assertEqual(refuse[:6], b"\x00\x28PZ\x01\x04")
        self.assertEqual(refuse[6:10] + refuse[18:], bytes(4 + 24))  # no task, incarnation, nonce
        self.end(job, w)

    # ---- keys ----------------------------------------------------------------------------------

    def test_the_public_key_is_not_enough(self):
        for level in ("encrypted", "authenticated"):
            job, w = self.at_level(level)
            curve = [self.control] + ([self.data] if level == "encrypted" else [])
            for host, port in curve:
                for keys, expect in (("public", "refused"), ("secret", "admitted")):
                    out = subprocess.run([CURVE_CLIENT, f"tcp://{host}:{port}", f"{job.dir}/key",
                                          keys], capture_output=True, text=True, timeout=60)
                    self.assertEqual((out.stdout.strip(), out.returncode), (expect, 0), out.stderr)
            self.end(job, w)

    def test_levels_must_agree(self):
        """The key alone opens no session at another level; the error comes in time."""
        job, w = self.at_level("encrypted")
        with self.assertRaises(Exception) as caught:
            job.worker(0, PSRT_SECURITY="off", PSRT_START_TIMEOUT="2s").cmd("create", 30)
        self.assertIn(caught.exception.status, ("PSRT_ERR_REFUSED", "PSRT_ERR_START_TIMEOUT",
                                                "PSRT_ERR_UNREACHABLE"))
        self.assertIn("PSRT_SECURITY is authenticated there and encrypted here", self.refused(
            "PSRT_ERR_REFUSED", job.worker(0, PSRT_SECURITY="authenticated"), "create"))
        self.end(job, w)

    @unittest.skipUnless(os.geteuid() == 0, "needs root to become another user")
    def test_another_user_of_the_host_gets_nothing(self):
        as_nobody = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
        if subprocess.run(as_nobody + ["test", "-x", AGENT], capture_output=True).returncode:
            self.skipTest("the build folder is closed to other users")
        job, w = self.started(1, 1, PSRT_SECURITY="off")
        w[0].cmd("table t n=1000 opt=none cons=async reduce=sum init=constant:value=0")

        def nobody(**env):
            e = job.task_env("worker", 0, {"PSRT_START_TIMEOUT": "2s", **env})
            a = Agent.__new__(Agent)
            a.buf = b""
            Task.__init__(a, job, as_nobody + [AGENT], e, stdin=subprocess.PIPE)
            with self.assertRaises(Exception) as caught:
                a.cmd("create", 30)
            return str(caught.exception)

        self.assertIn("cannot open", nobody())  # the key
        other = Job(1, 1)
        self.addCleanup(other.stop)
        other.nonce = job.nonce
        other.write_key()
        os.chown(other.base, NOBODY, NOBODY)
        os.chown(f"{other.base}/key", NOBODY, NOBODY)
        self.assertIn("wrong job key", nobody(PSRT_JOB_DIR=other.dir))

        # The directory keeps others from the sockets; were it open, the kernel's word on who calls
        # does.
        sockets = [p for p in glob.glob(f"{job.dir}/**", recursive=True)
                   if stat.S_ISSOCK(os.stat(p).st_mode)]
        self.assertTrue(sockets)
        dial = ("import socket, sys\n"
                "s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
                "s.settimeout(20)\n"
                "try:\n"
                "    s.connect(sys.argv[1])\n"
                "    print(s.recv(4096))\n"
                "except OSError as e:\n"
                "    print(type(e).__name__)\n")

        def connect(path):
            return subprocess.run(as_nobody + [sys.executable, "-c", dial, path], text=True,
                                  capture_output=True, timeout=60).stdout.strip()

        for path in sockets:
            self.assertEqual(connect(path), "PermissionError")
        for path in [job.base] + glob.glob(f"{job.dir}/**", recursive=True):
            if os.path.isdir(path) or path in sockets:
                os.chmod(path, 0o777)
        for path in sockets:
            self.assertIn(connect(path), ("b''", "ConnectionResetError"))
        self.until(lambda: f"user {NOBODY}" in job.srv[0].output(), "the refusal is logged")
        w[0].cmd("fill t 2")
        w[0].cmd("push t")
        w[0].cmd("pull t")
        self.assertEqual(float(w[0].cmd("sum t")), 2.0)
        self.finish(job, w)

    def test_two_jobs_on_one_host_do_not_meet(self):
        jobs = [self.started(2, 1) for _ in range(2)]
        for job, w in jobs:
            every(w, "table t n=1000 opt=none cons=async reduce=sum init=constant:value=0")
        for v, (job, w) in enumerate(jobs, 3):
            every(w, f"fill t {v}")
            every(w, "push t")
        for v, (job, w) in enumerate(jobs, 3):
            self.assertEqual(self.sums(w), {2.0 * v})
            self.finish(job, w)

    # ---- the wire ------------------------------------------------------------------------------

    @unittest.skipUnless(wire.may_capture(), "needs CAP_NET_RAW to capture")
    def test_what_was_said_once_counts_once(self):
        for level in ("authenticated", "off"):
            capture = wire.Capture(ADDRESS)
            job, w = self.at_level(level)
            w[0].cmd("fill t 1.5")
            w[0].cmd("push t")
            self.assertEqual(self.sums(w), {1.5})
            capture.stop()
            streams = capture.streams_to(self.data[1])
            self.assertEqual(len(streams), 2)
            pushed = struct.pack("<5f", 1.5, 3, 4.5, 6, 7.5) * 200
            self.assertTrue(any(pushed in s for s in streams))
            server, coordinator = job.srv[0], job.coord

            def repeats(task):
                return task.output().count("or a repeated HELLO")

            for said in streams:  # both workers are there
                before = repeats(server)
                with wire.play_back(self.data, wire.with_new_routing_id(said)):
                    self.until(lambda: repeats(server) > before, "the repetition is refused")
            if level == "off":
                for said in capture.streams_to(self.control[1]):
                    before = repeats(coordinator)
                    with wire.play_back(self.control, wire.with_new_routing_id(said)):
                        self.until(lambda: repeats(coordinator) > before, "refused")
            self.assertEqual(self.sums(w), {1.5})
            w[0].cmd("destroy")
            self.assertEqual(w[0].quit(), 0)
            for said in streams:  # one has left
                before = repeats(server)
                with wire.play_back(self.data, wire.with_new_routing_id(said)):
                    self.until(lambda: repeats(server) > before, "the repetition is refused")
            self.assertEqual(self.sums(w[1:]), {1.5})
            self.finish(job, w[1:])

    @unittest.skipUnless(wire.may_capture(), "needs CAP_NET_RAW to capture")
    def test_a_capture_shows_what_the_level_admits(self):
        gradient = struct.pack("<f", 1.7320508) * 16
        for level, payload, control in (("encrypted", False, False), ("authenticated", True, False),
                                        ("off", True, True)):
            capture = wire.Capture(ADDRESS)
            job, w = self.at_level(level)
            every(w, "table unmistakable n=1000 opt=none cons=async init=constant:value=0")
            every(w, "flat unmistakable 1.7320508")
            every(w, "push unmistakable")
            every(w, "pull unmistakable")
            self.end(job, w)
            capture.stop()
            self.assertGreater(len(capture.packets), 20)
            self.assertEqual(capture.shows(gradient), payload, level)
            self.assertEqual(capture.shows(b"unmistakable"), control, level)
            self.assertFalse(capture.shows(bytes.fromhex(job.secret)))


if __name__ == "__main__":
    unittest.main(verbosity=2)
