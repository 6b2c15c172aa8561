# SPDX-License-Identifier: Apache-2.0
"""The same job over two hosts, made of network namespaces, whose network fails: it drops everything or
one direction or every third packet, and resets connections, for shorter and longer than the lease.

Host 0 has the coordinator, server:0 and worker:0, host 1 the others. psrt-launch starts tasks on one
host only, so these are started by hand (docs/by-hand.md), each by again.sh.
"""
import os
import secrets
import subprocess
import sys
import time

from actions import LONG, SHORT, Actions
from rig import BIN, HERE, TEST_BIN, Failure, Rig, Tasks

sys.path.insert(0, str(HERE.parent / "integration"))

import netns  # noqa: E402

Unavailable = netns.Unavailable
PORT = 7070


class NetRig(Rig):

    def __init__(self, plan):
        super().__init__(plan)
        self.pair = netns.Pair(78)

    def __exit__(self, *args):
        try:
            super().__exit__(*args)
        finally:
            self.pair.close()

    def start(self):
        self.began = time.monotonic()
        self.key = f"psrt-job-key 1\nnonce={secrets.token_hex(16)}\nsecret={secrets.token_hex(32)}\n"
        self.logs.mkdir()
        self.proc = Tasks()
        plan = self.plan
        self.task(0, "coordinator", 0, [f"{BIN}/psrtd", "--coordinator"])
        for rank in range(plan.servers):
            self.task(min(rank, 1), "server", rank, [f"{BIN}/psrtd"])
        for rank in range(plan.workers):
            self.task(min(rank, 1), "worker", rank, [str(TEST_BIN / self.worker)])

    def task(self, host, role, rank, argv):
        job_dir = self.root / f"host{host}"
        if not job_dir.exists():
            job_dir.mkdir(mode=0o700)
            with open(os.open(job_dir / "key", os.O_CREAT | os.O_WRONLY, 0o600), "w") as f:
                f.write(self.key)
        plan = self.plan
        env = {**self.environment(), "PSRT_JOB_DIR": str(job_dir), "PSRT_ROLE": role,
               "PSRT_RANK": str(rank), "PSRT_WORKERS": str(plan.workers),
               "PSRT_SERVERS": str(plan.servers), "PSRT_SECURITY": plan.security,
               "PSRT_COORDINATOR": f"tcp://{self.pair.addresses[0]}:{PORT}",
               "PSRT_TRANSPORT": plan.transport}
        with open(self.logs / f"{role}-{rank}", "wb") as log:
            self.proc.all.append(subprocess.Popen(
                self.pair.on(host, [str(HERE / "again.sh"), *argv]), env=env, stdout=log,
                stderr=log, stdin=subprocess.DEVNULL, start_new_session=True))

    def ending(self):
        """A server that died when the job was about to end finds no coordinator any more: its next life gives up
        after PSRT_START_TIMEOUT, and is the last."""
        ended = self.data / "ended.coordinator.0"
        if ended.exists() and ended.read_text().split()[-1:] == ["0"]:
            (self.data / "enough").touch()

    # ---- the network ----

    def nft(self, text):
        done = subprocess.run(self.pair.on(1, ["nft", "-f", "-"]), input=text, text=True,
                              capture_output=True)
        if done.returncode:
            raise Failure(f"nft: {done.stderr}")

    def fail(self, incoming, outgoing):
        """What is done to every packet that comes to host 1 from the other, and that leaves it."""
        device = self.pair.devices[1]
        self.nft(f"""table inet faults {{
            chain incoming {{ type filter hook input priority 0; iifname {device} {incoming}; }}
            chain outgoing {{ type filter hook output priority 0; oifname {device} {outgoing}; }}
        }}""")

    def heal(self):
        self.nft("delete table inet faults")


class NetActions(Actions):
    """Each leaves the network whole."""

    def broken(self, incoming, outgoing, share):
        self.rig.fail(incoming, outgoing)
        self.pause(share)
        self.rig.heal()

    def drop_short(self, role, rank):
        self.broken("drop", "drop", SHORT)

    def drop_long(self, role, rank):
        self.broken("drop", "drop", LONG)

    def one_way_short(self, role, rank):
        self.broken(*self.random.choice([("drop", "accept"), ("accept", "drop")]), SHORT)

    def one_way_long(self, role, rank):
        self.broken(*self.random.choice([("drop", "accept"), ("accept", "drop")]), LONG)

    def reset_short(self, role, rank):
        """Whoever sends is told that the connection is gone; new ones are refused meanwhile."""
        self.broken("meta l4proto tcp reject with tcp reset", "accept", SHORT)

    def reset_long(self, role, rank):
        self.broken("meta l4proto tcp reject with tcp reset", "accept", LONG)

    def resets(self, role, rank):
        """For a moment, again and again: connections that have just been made are gone."""
        for _ in range(8):
            self.broken("meta l4proto tcp reject with tcp reset", "accept", (0.01, 0.02))
            self.pause((0.02, 0.2))

    def lossy(self, role, rank):
        self.broken("numgen random mod 100 < 30 drop", "numgen random mod 100 < 5 drop", LONG)


WEIGHTS = {(what, "network"): weight for what, weight in {
    "drop_short": 2, "drop_long": 3, "one_way_short": 2, "one_way_long": 3, "reset_short": 2,
    "reset_long": 2, "resets": 3, "lossy": 2}.items()}
WEIGHTS.update({("kill", "worker"): 2, ("kill", "server"): 1, ("kill", "coordinator"): 2})
