# SPDX-License-Identifier: Apache-2.0
"""Hosts on one machine: network namespaces; two of them joined by a veth pair."""
import os
import shutil
import subprocess

# Ends what runs in the namespaces, then them, when its standard input ends.
JANITOR = """cat >/dev/null
for ns; do
    ip netns pids "$ns" 2>/dev/null | xargs -r kill -9 2>/dev/null
    ip netns del "$ns" 2>/dev/null
    rm -rf "/etc/netns/$ns"
done"""


def ip(*args):
    subprocess.run(["ip", *args], check=True, capture_output=True, text=True)


class Unavailable(Exception):
    """There are no network namespaces here, or no permission to make them."""


class Hosts:
    """Namespaces with these names, which begin with one that no other process has. They end with close(),
    or with this process, however that ends: a second one, the janitor, waits for it."""

    def __init__(self, tag, suffixes):
        if os.geteuid() != 0:
            raise Unavailable("network namespaces need root")
        if not shutil.which("ip"):
            raise Unavailable("network namespaces need ip (Debian: iproute2)")
        self.names = [f"psrt{os.getpid()}{tag}{suffix}" for suffix in suffixes]
        self.janitor = subprocess.Popen(["sh", "-c", JANITOR, "sh", *self.names],
                                        stdin=subprocess.PIPE, start_new_session=True)
        try:
            for ns in self.names:
                ip("netns", "add", ns)
                ip("-n", ns, "link", "set", "lo", "up")
            self.make()
        except BaseException as e:
            self.close()
            if isinstance(e, subprocess.CalledProcessError):
                raise Unavailable(f"no network namespaces here: {' '.join(e.cmd)}: {e.stderr}") from e
            raise

    def make(self):
        """What joins them."""

    def close(self):
        self.janitor.stdin.close()
        self.janitor.wait()

    def on(self, host, argv):
        return ["ip", "netns", "exec", self.names[host], *argv]


class Pair(Hosts):
    """Host n has 10.net.0.n+1 and fd net::n+1 on its end of the pair, `devices[n]`, and an address that
    leads nowhere, as container bridges have."""

    def __init__(self, net):
        self.devices = ["vetha", "vethb"]
        self.addresses = [f"10.{net}.0.{n}" for n in (1, 2)]
        self.addresses6 = [f"fd{net}::{n}" for n in (1, 2)]
        super().__init__(f"n{net}", "ab")

    def make(self):
        ip("link", "add", "vetha", "netns", self.names[0], "type", "veth", "peer", "name", "vethb",
           "netns", self.names[1])
        for ns, dev, v4, v6 in zip(self.names, self.devices, self.addresses, self.addresses6):
            ip("-n", ns, "addr", "add", f"{v4}/24", "dev", dev)
            ip("-n", ns, "addr", "add", f"{v6}/64", "dev", dev, "nodad")
            ip("-n", ns, "link", "set", dev, "up")
            ip("-n", ns, "link", "add", "br0", "type", "bridge")
            ip("-n", ns, "addr", "add", "172.31.0.1/16", "dev", "br0")
            ip("-n", ns, "link", "set", "br0", "up")
