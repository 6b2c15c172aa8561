# SPDX-License-Identifier: Apache-2.0
"""The faults: what is done to a process of the job, and for how long."""
import resource
import signal
import time

import cgroup
import plant
from rig import LEASE

# Functions at which a process dies or is stopped, by the moment that they stand for.
POINTS = {
    "server": {
        "before capture": "psrti_push",
        "after capture, before ACK": "psrti_reply_ack",
        "after apply, before VALUE": "psrti_reply_value",
        "between ACK and apply": "psrti_apply",
        "while publishing": "psrti_block_new",
        "telling that it was applied": "psrti_notify_applied",
        "taking a view": "psrti_shard_view",
        "taking a clock": "psrti_clock",
    },
    "worker": {
        "sending": "psrti_part_ready",
        "its part captured": "psrti_part_captured",
        "its part ended": "psrti_part_end",
        "waiting": "psrti_baton_run",
        "a link is up": "psrti_client_link_up",
    },
    "coordinator": {
        "making its state": "psrti_coord_persist",
        "its state written, not renamed": "libc:rename",
        "its state written, not on disk": "libc:fsync",
        "ending a lease": "psrti_coord_tick",
    },
}
# Those that only a change of the job leads to.
PROVOKED = {"psrti_shard_view", "psrti_client_link_up", "psrti_coord_persist", "libc:rename", "libc:fsync"}
SHORT, LONG = (0.1, 0.5), (1.4, 2.2)  # of the lease


class Actions:
    """Each takes a process and leaves the job such that it recovers by itself."""

    def __init__(self, rig, random):
        self.rig, self.random = rig, random
        self.counts = {}

    def count(self, what):
        self.counts[what] = self.counts.get(what, 0) + 1

    def pause(self, share):
        time.sleep(self.random.uniform(*share) * LEASE)

    def kill(self, role, rank):
        self.rig.signal(self.rig.ready_pid(role, rank), signal.SIGKILL)

    def kill_and_hold(self, role, rank):
        """Nobody is in its place for longer than the lease."""
        hold = self.rig.hold(role, rank)
        hold.touch()
        self.kill(role, rank)
        self.pause(LONG)
        hold.unlink()

    def stop(self, role, rank, share):
        pid = self.rig.ready_pid(role, rank)
        plant.stop(pid)
        self.pause(share)
        self.rig.signal(pid, signal.SIGCONT)

    def stop_short(self, role, rank):
        self.stop(role, rank, SHORT)

    def stop_long(self, role, rank):
        self.stop(role, rank, LONG)

    # ---- at a point ----

    def at_point(self, happens, role, rank):
        """`happens` is die_at or stop_at. The process that it happened to."""
        moment = self.random.choice(sorted(POINTS[role]))
        function, pid = POINTS[role][moment], self.rig.ready_pid(role, rank)
        provoke = self.kill_another(role, rank) if function in PROVOKED else None
        there = happens(pid, function, LEASE, provoke)
        self.rig.note(f"{role}:{rank} {moment} ({function}): {'there' if there else 'anywhere'}")
        self.count(f"{happens.__name__} {role}: {moment if there else 'anywhere'}")
        return pid

    def kill_another(self, role, rank):
        others = [r for r in range(self.rig.plan.workers) if (role, r) != ("worker", rank)]
        other = self.random.choice(others) if others else None
        return lambda: others and self.kill("worker", other)

    def die_at_point(self, role, rank):
        self.at_point(plant.die_at, role, rank)

    def stop_at_point(self, role, rank, share):
        pid = self.at_point(plant.stop_at, role, rank)
        self.pause(share)
        self.rig.signal(pid, signal.SIGCONT)

    def stop_at_point_short(self, role, rank):
        self.stop_at_point(role, rank, SHORT)

    def stop_at_point_long(self, role, rank):
        self.stop_at_point(role, rank, LONG)

    # ---- what the system refuses ----

    def limit(self, role, rank, which, value):
        """For a while; somebody else dies meanwhile, so that there is something to accept and map."""
        pid = self.rig.ready_pid(role, rank)
        try:
            old = resource.prlimit(pid, which)
            resource.prlimit(pid, which, (min(value(pid), old[1]), old[1]))
        except (ProcessLookupError, OSError):
            return
        self.kill_another(role, rank)()
        self.pause(LONG)
        try:
            resource.prlimit(pid, which, old)
        except ProcessLookupError:
            pass

    def no_descriptors(self, role, rank):
        self.limit(role, rank, resource.RLIMIT_NOFILE, lambda pid: 3)

    def no_memory(self, role, rank):
        """What is mapped stays; nothing more can be."""

        def size(pid):
            with open(f"/proc/{pid}/statm") as f:
                return int(f.read().split()[0]) * resource.getpagesize() + (1 << 20)

        self.limit(role, rank, resource.RLIMIT_AS, size)

    def no_memory_cgroup(self, role, rank):
        """Whatever it needs now, it is killed for; the one that is started for it is free again."""
        try:
            group = cgroup.Memory(1 << 20)
        except OSError as e:
            return self.count(f"skipped: {e}")
        try:
            group.add(self.rig.ready_pid(role, rank))
            self.kill_another(role, rank)()
            self.pause(LONG)
        except ProcessLookupError:
            pass  # it ended by itself
        finally:
            group.close()
        return None

    def launcher_kill(self, role, rank):
        del role, rank
        self.rig.proc.kill()
        self.rig.proc.wait()


# How often each is chosen: (what, role), weight.
WEIGHTS = {
    ("kill", "worker"): 4, ("kill", "server"): 3, ("kill", "coordinator"): 3,
    ("kill_and_hold", "worker"): 2, ("kill_and_hold", "server"): 2,
    ("stop_short", "worker"): 3, ("stop_short", "server"): 3, ("stop_short", "coordinator"): 2,
    ("stop_long", "worker"): 3, ("stop_long", "server"): 2, ("stop_long", "coordinator"): 2,
    ("stop_short", "launcher"): 1, ("stop_long", "launcher"): 1,
    ("die_at_point", "worker"): 4, ("die_at_point", "server"): 4,
    ("die_at_point", "coordinator"): 4,
    ("stop_at_point_short", "worker"): 2, ("stop_at_point_short", "server"): 3,
    ("stop_at_point_short", "coordinator"): 1,
    ("stop_at_point_long", "worker"): 2, ("stop_at_point_long", "server"): 2,
    ("stop_at_point_long", "coordinator"): 1,
    ("no_descriptors", "server"): 1, ("no_descriptors", "worker"): 1,
    ("no_descriptors", "coordinator"): 1,
    ("no_memory", "server"): 1, ("no_memory", "worker"): 1, ("no_memory", "coordinator"): 1,
    ("no_memory_cgroup", "server"): 1, ("no_memory_cgroup", "worker"): 1,
}
