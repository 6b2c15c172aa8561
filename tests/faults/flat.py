# SPDX-License-Identifier: Apache-2.0
"""A job in which workers come, go, cancel and die for as long as one likes; what lives on must not grow.

    flat.py [--seconds T]

Memory (resident, private and shared), descriptors, threads and mappings of launcher, coordinator, servers,
and the workers that stay are sampled once a second. The first third is for warming up. The rest is cut into
parts, each with the median of its samples, which a few that caught a visitor do not move. A leak makes a
slope: it rises from part to part. A pool that needs a segment more than ever before, or a heap, makes a step
and keeps it. So the trend is what the median of these rises adds up to. The run fails when that is more than
2 MiB of memory, or one descriptor, thread or mapping.
"""
import argparse
import mmap
import os
import random
import signal
import statistics
import sys
import time

from rig import PATIENCE, Failure, Rig
from rounds import Plan

LIMITS = {"private": 2 << 20, "shared": 2 << 20, "descriptors": 1, "threads": 1, "mappings": 1}
PARTS = 6


class FlatRig(Rig):
    worker = "faults_visitor"

    def __init__(self, plan):
        super().__init__(plan)
        (self.data / "cycles").write_bytes(bytes(64))
        with open(self.data / "cycles", "r+b") as f:
            self.map = mmap.mmap(f.fileno(), 64)

    def cycles(self):
        return list(memoryview(self.map).cast("Q")[:4])

    def environment(self):
        """Nobody who lives is declared dead by a machine that is busy for a while."""
        return {**super().environment(), "PSRT_LOG_LEVEL": "warn", "PSRT_HEARTBEAT": "200ms",
                "PSRT_LEASE": "10s"}


def sample(pid):
    with open(f"/proc/{pid}/statm") as f:
        resident, shared = (int(n) * mmap.PAGESIZE for n in f.read().split()[1:3])
    with open(f"/proc/{pid}/maps") as f:
        maps = sum(1 for _ in f)
    return (resident - shared, shared, len(os.listdir(f"/proc/{pid}/fd")),
            len(os.listdir(f"/proc/{pid}/task")), maps)


def trend(values):
    """Growth from the first to the last part that goes on in between."""
    ends = [len(values) * i // PARTS for i in range(PARTS + 1)]
    levels = [statistics.median(values[a:b]) for a, b in zip(ends, ends[1:]) if a < b]
    rises = [b - a for a, b in zip(levels, levels[1:])]
    return statistics.median(rises) * len(rises) if rises else 0.0


def watch(rig, seconds, out):
    """{process: [sample]}; each is also written to `out`, if it is one."""
    places = [("launcher", 0), ("coordinator", 0), ("server", 0), ("server", 1), ("worker", 0),
              ("worker", 1)]
    pids = {f"{role}:{rank}": rig.ready_pid(role, rank) for role, rank in places}
    rig.until(lambda: min(rig.cycles()[:2]) > 2, "the workers train")
    samples, end = {name: [] for name in pids}, time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(1)  # the interval of the samples
        rig.check_alive()
        for name, pid in pids.items():
            try:
                samples[name].append(sample(pid))
                if out:
                    print(name, *samples[name][-1], file=out, flush=True)
            except OSError as e:
                raise Failure(f"{name} ended: {e}") from e
    return samples


def judge(samples):
    print(f"{'process':14}" + "".join(f"{m + ' first':>18}{'last':>10}{'trend':>9}" for m in LIMITS))
    grown = []
    for name, all_of in samples.items():
        warm = all_of[len(all_of) // 3:]
        row = f"{name:14}"
        for i, (measure, limit) in enumerate(LIMITS.items()):
            growth = trend([s[i] for s in warm])
            row += f"{warm[0][i]:18}{warm[-1][i]:10}{growth:9.0f}"
            if growth >= limit:
                grown.append(f"{name}: {measure} by {growth:.0f}")
        print(row)
    if grown:
        raise Failure("grown: " + ", ".join(grown))


def run(seconds, seed, out):
    plan = Plan(seed, workers=4, transport="shm,zmq")
    with FlatRig(plan) as rig:
        rig.start()
        samples = watch(rig, seconds, out)
        print("visits: " + ", ".join(f"worker:{r} {n}" for r, n in enumerate(rig.cycles())))
        judge(samples)
        (rig.data / "enough").touch()
        for rank in range(4):
            pid = rig.pid("worker", rank)
            if pid:
                rig.signal(pid, signal.SIGTERM)
        rig.plan.launcher_dies = True  # whatever its exit code is: worker:2 may be dying
        rig.until(lambda: rig.proc.poll() is not None, "the job ends", PATIENCE)
        rig.nothing_left()


def main():
    parser = argparse.ArgumentParser(prog="scripts/soak flat", description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--samples", type=argparse.FileType("w"),
                        help="file for all samples, a line each")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        run(args.seconds, random.SystemRandom().randrange(10**6), args.samples)
    except Failure as e:
        print(f"FAILED: {e}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
