# SPDX-License-Identifier: Apache-2.0
"""Hosts with a real sshd each: network namespaces on a bridge, and one beside them for psrt-launch.

    rig = SshRig(("alpha", "beta", "gamma"), shells={"beta": NOISY})
    rig.run(["psrt-launch", ...])    # the command line on the launcher's host

Every host has a port (2222) and a key that are not ssh's defaults, an address that leads nowhere, as
container bridges have, and directories of its own for temporary files and caches. The name `ghost` is
in the table of hosts, but nobody is there.
"""
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "integration"))
import netns  # noqa: E402

SSHD = "/usr/sbin/sshd"
PORT = 2222
# What stands in for a user's login shell; $SSH_ORIGINAL_COMMAND is what it is to run.
NOISY = """echo "Welcome to this host! psrt-ssh"; echo "last login: today" >&2
printf "no end of line"; exec /bin/bash -c "$SSH_ORIGINAL_COMMAND" """
CSH = 'if command -v tcsh >/dev/null; then exec tcsh -c "$SSH_ORIGINAL_COMMAND"; fi; exec /bin/sh -c "$SSH_ORIGINAL_COMMAND"'
SLOW = 'sleep 2; exec /bin/sh -c "$SSH_ORIGINAL_COMMAND"'


class SshRig(netns.Hosts):

    def __init__(self, hosts, shells=None, net=88):
        self.hosts, self.net = tuple(hosts), net
        self.addresses = {h: f"10.{net}.0.{i + 11}" for i, h in enumerate(self.hosts)}
        self.addresses6 = {h: f"fd{net}::{i + 11}" for i, h in enumerate(self.hosts)}
        self.shells = shells or {}
        self.daemons = {}
        if not os.access(SSHD, os.X_OK):
            raise netns.Unavailable("no sshd here (Debian: openssh-server)")
        # Short: sockets have their names below it.
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="ps-", dir="/tmp"))
        self.root.chmod(0o755)
        super().__init__(f"s{net}", ("x", *(str(i) for i in range(len(self.hosts)))))

    # ---- set-up ----

    def make(self):
        hub = self.names[0]
        netns.ip("-n", hub, "link", "add", "br9", "type", "bridge")
        netns.ip("-n", hub, "addr", "add", f"10.{self.net}.0.1/24", "dev", "br9")
        netns.ip("-n", hub, "addr", "add", f"fd{self.net}::1/64", "dev", "br9", "nodad")
        netns.ip("-n", hub, "link", "set", "br9", "up")
        for i, host in enumerate(self.hosts):
            self.join(hub, i, host)
        self.write_table()
        self.make_keys()
        for host in self.hosts:
            self.start_sshd(host)

    def join(self, hub, i, host):
        ns = self.names[i + 1]
        netns.ip("link", "add", f"v{i}", "netns", hub, "type", "veth", "peer", "name", "eth0",
                 "netns", ns)
        netns.ip("-n", hub, "link", "set", f"v{i}", "master", "br9", "up")
        netns.ip("-n", ns, "link", "add", "docker0", "type", "bridge")
        netns.ip("-n", ns, "addr", "add", "172.17.0.1/16", "dev", "docker0")
        netns.ip("-n", ns, "link", "set", "docker0", "up")
        netns.ip("-n", ns, "addr", "add", f"{self.addresses[host]}/24", "dev", "eth0")
        netns.ip("-n", ns, "addr", "add", f"{self.addresses6[host]}/64", "dev", "eth0", "nodad")
        netns.ip("-n", ns, "link", "set", "eth0", "up")

    def write_table(self):
        """Names only where psrt-launch runs: hosts know nothing of each other's."""
        lines = ["127.0.0.1 localhost", f"10.{self.net}.0.99 ghost"]
        lines += [f"{self.addresses[h]} {h}" for h in self.hosts]
        lines += [f"{self.addresses6[h]} {h}6" for h in self.hosts]
        folder = pathlib.Path(f"/etc/netns/{self.names[0]}")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "hosts").write_text("\n".join(lines) + "\n")

    def make_keys(self):
        for name in ("host_key", "user_key"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.root / name],
                           check=True)
        shutil.copy(self.root / "user_key.pub", self.root / "authorized")
        (self.root / "config").write_text("StrictHostKeyChecking no\n"
                                          "UserKnownHostsFile /dev/null\n"
                                          "LogLevel ERROR\n"
                                          f"Port {PORT}\n"
                                          f"IdentityFile {self.root}/user_key\n")
        self.client = self.root / "ssh"  # as a configuration of the user's would
        self.client.write_text(f'#!/bin/sh\nexec ssh -F {self.root}/config "$@"\n')
        self.client.chmod(0o755)

    def tmp(self, host):
        return self.root / host / "t"

    def start_sshd(self, host):
        os.makedirs("/run/sshd", exist_ok=True)  # what its package's unit makes
        self.tmp(host).mkdir(parents=True, exist_ok=True)
        lines = [f"Port {PORT}", "ListenAddress 0.0.0.0", "ListenAddress ::",
                 f"HostKey {self.root}/host_key", f"AuthorizedKeysFile {self.root}/authorized",
                 "StrictModes no", "UsePAM no", "PermitRootLogin yes", "PasswordAuthentication no",
                 "PidFile none", "PrintMotd no",
                 f"SetEnv TMPDIR={self.tmp(host)} XDG_CACHE_HOME={self.root}/{host}/cache"]
        if host in self.shells:
            script = self.root / host / "shell"
            script.write_text(f"#!/bin/sh\n{self.shells[host]}\n")
            script.chmod(0o755)
            lines.append(f"ForceCommand {script}")
        config = self.root / host / "sshd_config"
        config.write_text("\n".join(lines) + "\n")
        argv = self.on(self.hosts.index(host) + 1, [SSHD, "-D", "-e", "-f", str(config)])
        log = open(self.root / host / "sshd.log", "w")
        self.daemons[host] = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        log.close()

    def wait_until_up(self):
        for host in self.hosts:
            until = time.monotonic() + 20
            while not self.listens(host):
                if time.monotonic() > until or self.daemons[host].poll() is not None:
                    raise RuntimeError((self.root / host / "sshd.log").read_text())
                time.sleep(0.02)

    def listens(self, host):
        """A banner, read from inside the launcher's namespace."""
        probe = (f"import socket; print(socket.create_connection(('{self.addresses[host]}', {PORT}), "
                 "1).recv(3))")
        out = subprocess.run(self.on(0, [sys.executable, "-c", probe]), capture_output=True,
                             text=True, check=False)
        return "SSH" in out.stdout

    # ---- use ----

    def environment(self):
        return {"PSRT_LAUNCH_SSH": str(self.client)}

    def command(self, argv):
        return self.on(0, [str(a) for a in argv])

    def processes(self, host):
        out = subprocess.run(["ip", "netns", "pids", self.names[self.hosts.index(host) + 1]],
                             capture_output=True, text=True, check=True)
        sshd = self.daemons[host].pid
        return [int(p) for p in out.stdout.split() if int(p) != sshd]

    def close(self):
        for daemon in self.daemons.values():
            daemon.send_signal(signal.SIGKILL)
            daemon.wait()
        super().close()
        shutil.rmtree(self.root, ignore_errors=True)
