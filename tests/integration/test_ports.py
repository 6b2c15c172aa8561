# SPDX-License-Identifier: Apache-2.0
"""Ports that somebody else chose: PSRT_PORT, and sockets handed over by PSRT_LISTEN_FD."""
import os
import socket
import unittest

from job import Agent, BIN, JobTest, Task, every


def listening(pid):
    """The ports at which a process listens."""
    inodes = set()
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            inodes.add(os.readlink(f"/proc/{pid}/fd/{fd}"))
        except FileNotFoundError:
            pass
    ports = set()
    with open(f"/proc/{pid}/net/tcp") as table:
        for row in list(table)[1:]:
            word = row.split()
            if word[3] == "0A" and f"socket:[{word[9]}]" in inodes:
                ports.add(int(word[1].split(":")[1], 16))
    return ports


def free_ports(count):
    """The first of `count` free ports in a row."""
    for first in range(23000, 32000, 16):
        socks = [socket.socket() for _ in range(count)]
        try:
            for i, s in enumerate(socks):
                s.bind(("127.0.0.1", first + i))
            return first
        except OSError:
            continue
        finally:
            for s in socks:
                s.close()
    raise RuntimeError("no free ports")


class Ports(JobTest):
    def train(self, job, workers):
        for a in workers:
            a.send("create")
        for a in workers:
            a.receive(60)
        every(workers, "table t n=700000 opt=none reduce=sum")
        every(workers, "fill t 1")
        every(workers, "push_pull t")
        self.assertEqual({float(v) for v in every(workers, "sum t")}, {2.0})
        every(workers, "barrier b")

    def test_given_ports(self):
        job = self.job(2, 1, PSRT_TRANSPORT="zmq")
        first = free_ports(4)
        job.coord = job.coordinator()
        job.srv = [job.server(0, PSRT_PORT=str(first), PSRT_SERVER_THREADS="2")]
        w = [job.worker(r, PSRT_PORT=str(first + 2 + r)) for r in range(2)]
        self.train(job, w)
        self.assertEqual(listening(job.srv[0].proc.pid), {first, first + 1})
        self.assertEqual([listening(a.proc.pid) for a in w], [{first + 2}, {first + 3}])
        self.finish(job, w)

    def test_handed_sockets(self):
        job = self.job(2, 1, PSRT_TRANSPORT="zmq")
        socks = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
        ports = [s.getsockname()[1] for s in socks]
        fds = [s.fileno() for s in socks]
        job.coord = job.coordinator()
        e = job.task_env("server", 0, {"PSRT_LISTEN_FD": str(fds[0])})
        job.srv = [Task(job, [f"{BIN}/psrtd"], e, pass_fds=fds[:1])]
        w = [Agent(job, job.task_env("worker", r, {"PSRT_LISTEN_FD": str(fds[1 + r])}),
                   pass_fds=fds[1 + r:2 + r]) for r in range(2)]
        for s in socks:
            s.close()
        self.train(job, w)
        self.assertEqual([listening(t.proc.pid) for t in job.srv + w], [{p} for p in ports])
        self.finish(job, w)


if __name__ == "__main__":
    unittest.main()
