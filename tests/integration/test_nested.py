# SPDX-License-Identifier: Apache-2.0
"""Collectives of several ranks on each of several hosts (network namespaces on a switch): results, and what crosses
the links."""
import os
import subprocess
import unittest

import netns
from job import BIN, JobTest, Task, every
from test_collectives import COMM_AGENT, LONG, WHATS, CommAgent, CommJob

PORT = 7070


class Switch(netns.Hosts):
    """Hosts with 10.net.0.n+1 on a bridge; no limits."""

    def __init__(self, net, hosts):
        self.addresses = [f"10.{net}.0.{n + 1}" for n in range(hosts)]
        super().__init__(f"s{net}", [*map(str, range(hosts)), "x"])

    def make(self):
        switch = self.names[-1]
        netns.ip("-n", switch, "link", "add", "br0", "type", "bridge")
        netns.ip("-n", switch, "link", "set", "br0", "up")
        for n, address in enumerate(self.addresses):
            netns.ip("link", "add", "eth0", "netns", self.names[n], "type", "veth", "peer", "name",
                     f"port{n}", "netns", switch)
            netns.ip("-n", switch, "link", "set", f"port{n}", "master", "br0", "up")
            netns.ip("-n", self.names[n], "addr", "add", f"{address}/24", "dev", "eth0")
            netns.ip("-n", self.names[n], "link", "set", "eth0", "up")

    def sent(self, host):
        """Bytes that left the host."""
        out = subprocess.run(self.on(host, ["cat", "/sys/class/net/eth0/statistics/tx_bytes"]),
                             check=True, capture_output=True, text=True)
        return int(out.stdout)


class NestedJob(CommJob):
    """`hosts`: of each rank; the coordinator is on the first host."""

    def __init__(self, switch, hosts, **env):
        self.switch, self.hosts = switch, hosts
        super().__init__(len(hosts), 0, PSRT_COORDINATOR=f"tcp://{switch.addresses[0]}:{PORT}",
                         PSRT_LEASE="30s", **env)

    def host_env(self, host, role, rank, extra):
        """Each host has its own job directory, with the same key in it."""
        folder = os.path.join(self.base, f"host{host}")
        if not os.path.isdir(folder):
            os.makedirs(folder, mode=0o700)
            with open(os.open(folder + "/key", os.O_CREAT | os.O_WRONLY, 0o600), "w") as f:
                f.write(f"psrt-job-key 1\nnonce={self.nonce}\nsecret={self.secret}\n")
        return self.task_env(role, rank, {"PSRT_JOB_DIR": folder,
                                          "PSRT_BIND_ADDRESS": self.switch.addresses[host], **extra})

    def coordinator(self):
        return Task(self, self.switch.on(0, [f"{BIN}/psrtd", "--coordinator"]),
                    self.host_env(0, "coordinator", 0, {}))

    def worker(self, rank, **env):
        host = self.hosts[rank]
        agent = CommAgent.__new__(CommAgent)
        agent.buf = b""
        Task.__init__(agent, self, self.switch.on(host, [COMM_AGENT]),
                      self.host_env(host, "worker", rank, env), stdin=subprocess.PIPE)
        return agent


class Nested(JobTest):
    @classmethod
    def setUpClass(cls):
        try:
            cls.switch = Switch(78, 3)
        except netns.Unavailable as e:
            raise unittest.SkipTest(str(e))

    @classmethod
    def tearDownClass(cls):
        cls.switch.close()

    def world(self, hosts, **env):
        job = NestedJob(self.switch, hosts, **env)
        self.addCleanup(job.stop)
        w = job.start()
        every(w, "comm 0", LONG)
        self.assertEqual(set(every(w, "hosts 0")), {str(len(set(hosts)))})
        return job, w

    def crossed(self, hosts, tune, line):
        """Bytes that the host that sent most sent, in a call and what belongs to it."""
        job, w = self.world(hosts, PSRT_COLL_TUNE=tune)
        every(w, line, LONG)  # opens what is opened once
        before = [self.switch.sent(h) for h in set(hosts)]
        for _ in range(3):
            every(w, line, LONG)
        sent = [self.switch.sent(h) - b for h, b in zip(set(hosts), before)]
        self.finish(job, w)
        return max(sent) / 3

    def test_every_collective_on_hosts_of_several_ranks(self):
        for hosts in ([0, 1, 0, 1], [0, 1, 1, 2, 0, 1]):
            with self.subTest(hosts=hosts):
                job, w = self.world(hosts)
                for what in WHATS:
                    for count in (0, 3, 1000, 300001):
                        every(w, f"run 0 {what} f32 sum {count} 1 p", LONG)
                        every(w, f"run 0 {what} bf16 avg {count} 2 b", LONG)
                every(w, f"random 0 {len(hosts)} 60", LONG)
                self.finish(job, w)

    def test_leaders_of_every_collective_that_has_them(self):
        """Whatever the table says; parts of their own are not packed."""
        tune = ",".join(f"{what}::{leaders}" for what, leaders in (
            ("reduce_scatter", "all_leaders"), ("alltoall", "all_leaders"), ("gather", "one_leader"),
            ("scatter", "one_leader")))
        job, w = self.world([0, 1, 1, 2, 0, 1], PSRT_COLL_TUNE=tune)
        for what in ("reduce_scatter", "alltoall", "alltoallv", "gather", "scatter"):
            for count in (0, 1, 1000, 300001):
                every(w, f"run 0 {what} f32 sum {count} 4 b", LONG)
                every(w, f"run 0 {what} f16 avg {count} 3 {'p' if what != 'alltoall' else 'b'}", LONG)
        self.finish(job, w)

    def test_a_host_sends_its_sums_once(self):
        count = 1 << 18
        for hosts, most in (([0, 1, 0, 1], 2), ([0, 1, 1, 2, 0, 1], 5)):
            with self.subTest(hosts=hosts):
                line = f"run 0 reduce_scatter f32 sum {count} 0 b"
                nested = self.crossed(hosts, "", line) / (4 * count)
                ring = self.crossed(hosts, "reduce_scatter::ring", line) / (4 * count)
                self.assertAlmostEqual(nested, most, delta=0.15 * most)
                self.assertAlmostEqual(ring, len(hosts) - 1, delta=0.1 * len(hosts))

    def test_leaders_send_what_one_rank_a_host_would(self):
        count = 1 << 20
        for hosts, h in (([0, 1, 0, 1], 2), ([0, 1, 1, 2, 0, 1], 3)):
            p = len(hosts)
            with self.subTest(hosts=hosts):
                line = f"run 0 allreduce f32 sum {count} 0 b"
                nested = self.crossed(hosts, "", line) / (4 * count)
                ring = self.crossed(hosts, "allreduce::ring", line) / (4 * count)
                self.assertAlmostEqual(nested, 2 * (h - 1) / h, delta=0.15)
                self.assertAlmostEqual(ring, 2 * (p - 1) / p, delta=0.2)


if __name__ == "__main__":
    unittest.main()
