# SPDX-License-Identifier: Apache-2.0
"""Two hosts (netns.py): addresses, interfaces, IPv6."""
import os
import shutil
import socket
import struct
import subprocess
import unittest

import netns
from job import AGENT, Agent, BIN, JobTest, Task, every

PORT = 7070


class Hosts(JobTest):
    @classmethod
    def setUpClass(cls):
        try:
            cls.pair = netns.Pair(77)
        except netns.Unavailable as e:
            raise unittest.SkipTest(str(e))
        cls.ns = cls.pair.names

    @classmethod
    def tearDownClass(cls):
        cls.pair.close()

    def on(self, job, host, argv, role, rank, stdin=False, **env):
        # Each host has its own job directory, with the same key in it.
        job_dir = os.path.join(job.base, f"host{host}")
        if not os.path.isdir(job_dir):
            os.makedirs(job_dir, mode=0o700)
            with open(os.open(job_dir + "/key", os.O_CREAT | os.O_WRONLY, 0o600), "w") as f:
                f.write(f"psrt-job-key 1\nnonce={job.nonce}\nsecret={job.secret}\n")
        e = job.task_env(role, rank, {"PSRT_JOB_DIR": job_dir, **env})
        argv = self.pair.on(host, argv)
        if not stdin:
            return Task(job, argv, e)
        a = Agent.__new__(Agent)
        a.buf = b""
        Task.__init__(a, job, argv, e, stdin=subprocess.PIPE)
        return a

    def run_job(self, coordinator, expect):
        job = self.job(2, 2)
        job.env["PSRT_COORDINATOR"] = f"tcp://{coordinator}:{PORT}"
        job.coord = self.on(job, 0, [f"{BIN}/psrtd", "--coordinator"], "coordinator", 0)
        job.srv = [self.on(job, h, [f"{BIN}/psrtd"], "server", h) for h in (0, 1)]
        w = [self.on(job, h, [AGENT], "worker", h, stdin=True) for h in (0, 1)]
        for a in w:
            a.send("create")
        for a in w:
            a.receive(60)
        every(w, "table t n=700000 opt=none reduce=sum")
        every(w, "fill t 1")
        for _ in range(3):
            every(w, "push_pull t")
        self.assertEqual({float(v) for v in every(w, "sum t")}, {6.0})
        self.assertIn("zmq", w[0].info()["transports"])
        for server, address in zip(job.srv, expect):
            with open(f"/proc/{server.proc.pid}/net/{'tcp6' if ':' in address else 'tcp'}") as f:
                table = f.read()
            self.assertIn(self.hex_of(address), table)
        self.finish(job, w)

    @staticmethod
    def hex_of(address):
        raw = socket.inet_pton(socket.AF_INET6 if ":" in address else socket.AF_INET, address)
        return "".join(f"{struct.unpack('=I', raw[i:i + 4])[0]:08X}" for i in range(0, len(raw), 4))

    def test_ipv4_between_two_hosts(self):
        self.run_job("10.77.0.1", ("10.77.0.1", "10.77.0.2"))

    def test_ipv6_between_two_hosts(self):
        self.run_job("[fd77::1]", ("fd77::1", "fd77::2"))

    def test_an_unknown_interface_lists_those_there_are(self):
        job = self.job(1, 1)
        s = self.on(job, 0, [f"{BIN}/psrtd"], "server", 0, PSRT_BIND_ADDRESS="nope0")
        self.assertNotEqual(s.wait(), 0)
        for part in ("nope0", "vetha", "PSRT_BIND_ADDRESS"):
            self.assertIn(part, s.output())

    def hosts_file(self, lines):
        """What both hosts read in place of /etc/hosts."""
        for ns in self.ns:
            os.makedirs(f"/etc/netns/{ns}", exist_ok=True)
            with open(f"/etc/netns/{ns}/hosts", "w") as f:
                f.write(f"127.0.0.1 localhost\n{lines}\n")
            self.addCleanup(shutil.rmtree, f"/etc/netns/{ns}", ignore_errors=True)

    def test_the_own_name_is_a_loopback_address(self):
        name = socket.gethostname()
        self.hosts_file(f"127.0.1.1 {name} node\n10.77.0.1 root")
        self.run_job("root", ("10.77.0.1", "10.77.0.2"))
        job = self.job(1, 1)
        job.env["PSRT_COORDINATOR"] = f"tcp://root:{PORT}"
        s = self.on(job, 1, [f"{BIN}/psrtd"], "server", 0, PSRT_BIND_ADDRESS="node")
        self.assertNotEqual(s.wait(), 0)
        for part in ("PSRT_BIND_ADDRESS", "node", "127.0.1.1", "10.77.0.2"):
            self.assertIn(part, s.output())

    def test_a_job_on_one_host_may_use_loopback(self):
        self.hosts_file("127.0.1.1 node")
        job = self.job(1, 1)
        job.env["PSRT_COORDINATOR"] = f"tcp://node:{PORT}"
        job.coord = self.on(job, 0, [f"{BIN}/psrtd", "--coordinator"], "coordinator", 0)
        job.srv = [self.on(job, 0, [f"{BIN}/psrtd"], "server", 0, PSRT_BIND_ADDRESS="node")]
        w = self.on(job, 0, [AGENT], "worker", 0, stdin=True)
        w.cmd("create")
        w.cmd("table t n=10 opt=none")
        w.cmd("push_pull t")
        self.finish(job, [w])

    def test_the_second_address_of_a_name_is_tried(self):
        self.hosts_file("::1 root\n127.0.0.1 root")  # IPv6 first; the listener has IPv4 only
        job = self.job(1, 1)
        job.env["PSRT_COORDINATOR"] = f"tcp://127.0.0.1:{PORT}"
        job.coord = self.on(job, 0, [f"{BIN}/psrtd", "--coordinator"], "coordinator", 0)
        job.srv = [self.on(job, 0, [f"{BIN}/psrtd"], "server", 0)]
        w = self.on(job, 0, [AGENT], "worker", 0, stdin=True, PSRT_COORDINATOR=f"tcp://root:{PORT}")
        w.cmd("create", 20)
        w.cmd("table t n=10 opt=none")
        w.cmd("push_pull t")
        self.finish(job, [w])

    def test_an_interface_by_name(self):
        job = self.job(1, 1)
        job.env["PSRT_COORDINATOR"] = f"tcp://10.77.0.1:{PORT}"
        job.coord = self.on(job, 0, [f"{BIN}/psrtd", "--coordinator"], "coordinator", 0)
        job.srv = [self.on(job, 0, [f"{BIN}/psrtd"], "server", 0, PSRT_BIND_ADDRESS="vetha")]
        w = self.on(job, 1, [AGENT], "worker", 0, stdin=True)
        w.cmd("create")
        w.cmd("table t n=10 opt=none")
        w.cmd("push_pull t")
        self.finish(job, [w])


if __name__ == "__main__":
    unittest.main(verbosity=2)
