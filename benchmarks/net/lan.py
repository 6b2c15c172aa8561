# SPDX-License-Identifier: Apache-2.0
"""Hosts on a switch: network namespaces, each joined by a link of a limited rate to a bridge.

    host 0  eth0 ==tbf==> port0  br0  port3 ==tbf==> eth0  host 3
                                 | ^
                                 v |       with delay or loss: hosts reach one another by way of
                                 tun0      the switch's address only, which routes all into tun0,
                                 relay     whose packets come back late, or never

A token bucket (tbf) at each end limits both directions of a link; it counts what Ethernet carries, with
headers of 14 bytes but not the 24 bytes between frames. 64 KiB pass it at once, as TCP makes them.
"""
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "tests" / "integration"))

from netns import Hosts, Unavailable, ip  # noqa: E402

BURST = 128 << 10  # bytes; more than TCP's largest segment
QUEUE_S = 0.008    # what a port queues, in seconds of its rate, beside what is under way for the delay


class Lan(Hosts):
    """`rate` in bit/s; `delay` in seconds, of every packet, hence twice that for a round trip; `loss` in
    percent of packets."""

    def __init__(self, hosts, rate, delay=0.0, loss=0.0, relay=None):
        self.hosts, self.rate, self.delay, self.loss = hosts, rate, delay, loss
        self.program, self.relay = relay, None
        self.addresses = [f"10.79.0.{n + 1}" for n in range(hosts)]
        self.gateway = "10.79.255.254"
        super().__init__("h", [*map(str, range(hosts)), "switch"])

    def make(self):
        switch = self.names[-1]
        ip("-n", switch, "link", "add", "br0", "type", "bridge")
        ip("-n", switch, "addr", "add", f"{self.gateway}/16", "dev", "br0")
        ip("-n", switch, "link", "set", "br0", "up")
        for host, (ns, address) in enumerate(zip(self.names, self.addresses)):
            port = f"port{host}"
            ip("link", "add", "eth0", "netns", ns, "type", "veth", "peer", "name", port, "netns", switch)
            ip("-n", switch, "link", "set", port, "master", "br0", "up")
            ip("-n", ns, "link", "set", "eth0", "up")
            self.limit(ns, "eth0")
            self.limit(switch, port)
            if self.relayed():
                ip("-n", ns, "addr", "add", f"{address}/32", "dev", "eth0")
                ip("-n", ns, "route", "add", self.gateway, "dev", "eth0")
                ip("-n", ns, "route", "add", "default", "via", self.gateway)
            else:
                ip("-n", ns, "addr", "add", f"{address}/16", "dev", "eth0")
        if self.relayed():
            self.start_relay(switch)

    def relayed(self):
        return self.delay > 0 or self.loss > 0

    def limit(self, ns, device):
        queue = int(self.rate / 8 * (QUEUE_S + 2 * self.delay)) + BURST
        self.checked(["tc", "-n", ns, "qdisc", "add", "dev", device, "root", "tbf", "rate",
                      f"{int(self.rate)}bit", "burst", str(BURST), "limit", str(queue)])

    def start_relay(self, switch):
        self.set(switch, 1, "ip_forward")
        self.set(switch, 0, "conf/all/rp_filter", "conf/default/rp_filter", "conf/br0/rp_filter",
                 "conf/all/send_redirects", "conf/br0/send_redirects")
        self.relay = subprocess.Popen(
            self.on(-1, [str(self.program), "tun0", str(round(self.delay * 1e6)), str(self.loss)]),
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, start_new_session=True)
        if self.relay.stdout.readline() != "ready\n":
            raise Unavailable("the relay did not start")
        ip("-n", switch, "link", "set", "tun0", "txqueuelen", "10000", "up")
        ip("-n", switch, "rule", "add", "iif", "br0", "lookup", "100")
        ip("-n", switch, "route", "add", "default", "dev", "tun0", "table", "100")

    def close(self):
        super().close()
        if self.relay:
            with self.relay:  # the janitor has killed it
                pass

    def set(self, ns, value, *names):
        """/proc/sys/net/ipv4, as it is in the namespace."""
        self.checked(["ip", "netns", "exec", ns, "sh", "-c", 'for f; do echo $0 >/proc/sys/net/ipv4/$f; done',
                      str(value), *names])

    @staticmethod
    def checked(argv):
        subprocess.run(argv, check=True, capture_output=True, text=True)
