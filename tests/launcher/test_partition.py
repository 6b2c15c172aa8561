# SPDX-License-Identifier: Apache-2.0
"""Hosts over ssh: one that the network loses, and a reader that does not read."""
import pathlib
import signal
import time

from launchtest import main, process_text
import sshrig
from test_ssh import ALL, SshTest


class Partition(SshTest):

    def test_a_host_falls_silent(self):
        proc = self.begin("echo ready; exec sleep 1000", "--grace", "1s")
        begin = time.monotonic()
        sshrig.netns.ip("-n", self.rig.names[2], "link", "set", "eth0", "down")  # beta
        try:
            code, _, err = self.end(proc)
            self.assertNotEqual(code, 0)
            self.assertRegex(err, "host beta was lost: ")
            self.wait_for(lambda: not self.ours_left(), self.ours_left)
        finally:
            self.restore("beta")
        self.assertLess(time.monotonic() - begin, 50)

    def ours_left(self):
        """sshd's own processes stay until TCP gives up: its business."""
        return [p for h in self.rig.hosts for p in self.rig.processes(h)
                if process_text(p, "comm").strip() != b"sshd"]

    def restore(self, host):
        ns = self.rig.names[1 + list(self.rig.hosts).index(host)]
        sshrig.netns.ip("-n", ns, "link", "set", "eth0", "up")
        sshrig.netns.ip("-n", ns, "addr", "replace", f"{self.rig.addresses6[host]}/64", "dev", "eth0",
                        "nodad")

    def test_a_reader_that_does_not_read(self):
        """Tasks wait; nobody's memory grows; a stop is not held up by what nobody reads."""
        proc = self.start("-H", ALL, "-w", "3", "-s", "0", "--no-coordinator", "--grace", "1s", "--",
                          "/bin/sh", "-c", "exec yes " + "x" * 200)
        self.wait_for(lambda: len(self.ticks()) == 3, "three tasks that write")

        def blocked():
            """The tasks' processor time stands still."""
            before = self.ticks()
            time.sleep(0.5)
            return len(before) == 3 and before == self.ticks()

        self.wait_for(blocked, "the tasks write on and on")
        for name in ("psrt-launch", "psrt-agent"):
            for pid in self.named(name):
                self.assertLess(self.memory_kib(pid), 100 << 10, name)
        proc.send_signal(signal.SIGINT)
        code, _, err = self.end(proc)
        self.assertEqual(code, 130, err)
        self.assert_hosts_clean()

    def ticks(self):
        return {p: process_text(p, "stat").split()[13:15] for h in self.rig.hosts
                for p in self.rig.processes(h) if process_text(p, "comm").strip() == b"yes"}

    @staticmethod
    def memory_kib(pid):
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0])


if __name__ == "__main__":
    main()
