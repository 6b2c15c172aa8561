# SPDX-License-Identifier: Apache-2.0
"""Two hosts on one machine: network namespaces joined by a veth pair."""
import os
import shutil
import subprocess


def ip(*args):
    subprocess.run(["ip", *args], check=True, capture_output=True)


class Unavailable(Exception):
    """There are no network namespaces here, or no permission to make them."""


class Pair:
    """Host n has 10.net.0.n+1 and fd net::n+1 on its end of the pair, `devices[n]`, and an address that
    leads nowhere, as container bridges have."""

    def __init__(self, net):
        tag = f"psrt{os.getpid() % 100000}n{net}"
        self.names, self.devices = [tag + "a", tag + "b"], ["vetha", "vethb"]
        self.addresses = [f"10.{net}.0.{n}" for n in (1, 2)]
        self.addresses6 = [f"fd{net}::{n}" for n in (1, 2)]
        try:
            self.make()
        except (subprocess.CalledProcessError, FileNotFoundError) as e:
            self.close()
            raise Unavailable(f"no network namespaces here: {getattr(e, 'stderr', e)}") from e

    def make(self):
        for ns in self.names:
            ip("netns", "add", ns)
            ip("-n", ns, "link", "set", "lo", "up")
        ip("link", "add", "vetha", "netns", self.names[0], "type", "veth", "peer", "name", "vethb",
           "netns", self.names[1])
        for ns, dev, v4, v6 in zip(self.names, self.devices, self.addresses, self.addresses6):
            ip("-n", ns, "addr", "add", f"{v4}/24", "dev", dev)
            ip("-n", ns, "addr", "add", f"{v6}/64", "dev", dev, "nodad")
            ip("-n", ns, "link", "set", dev, "up")
            ip("-n", ns, "link", "add", "br0", "type", "bridge")
            ip("-n", ns, "addr", "add", "172.31.0.1/16", "dev", "br0")
            ip("-n", ns, "link", "set", "br0", "up")

    def close(self):
        for ns in self.names:
            subprocess.run(["ip", "netns", "del", ns], capture_output=True)
            shutil.rmtree(f"/etc/netns/{ns}", ignore_errors=True)

    def on(self, host, argv):
        return ["ip", "netns", "exec", self.names[host], *argv]
