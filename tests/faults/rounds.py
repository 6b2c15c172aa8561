# SPDX-License-Identifier: Apache-2.0
"""Rounds of random faults: each round is a job of its own, planned by its seed.

    rounds.py [--kind KIND] [--rounds N] [--seconds T] [--seed S] [--only ACTION] [--verbose]
"""
import argparse
import dataclasses
import random
import signal
import sys
import time
import traceback

import actions
import alone
import network
from actions import Actions
from rig import LEASE, SLOW, Failure, Rig

SLICE = 2**18
MAX_FAILED = 5  # of which logs are kept
# How the job is started, what is done to it, how often each.
KINDS = {"launched": (Rig, Actions, actions.WEIGHTS),
         "network": (network.NetRig, network.NetActions, network.WEIGHTS),
         "alone": (alone.AloneRig, Actions, alone.WEIGHTS)}


@dataclasses.dataclass
class Plan:
    """What a seed decides. The moments in time are drawn too, but no two runs meet them alike."""
    seed: int
    consistency: str = "async"
    deterministic: bool = False
    transport: str = "shm,zmq"
    security: str = "encrypted"
    workers: int = 2
    servers: int = 2
    server_threads: int = 1
    elements: int = 2 * SLICE + 5001
    refill: int = 0
    clock_jumps: bool = False
    faults: tuple = ()
    launcher_dies: bool = False


def make_plan(seed, only=None, kind="launched"):
    r = random.Random(seed)
    plan = Plan(seed)
    plan.consistency = r.choice(["async", "sync", "sync", "ssp:1", "ssp:3"])
    plan.deterministic = plan.consistency == "sync" and r.random() < 0.3
    plan.transport = r.choice(["shm", "zmq", "shm,zmq"])
    plan.security = r.choice(["encrypted", "encrypted", "off"])
    plan.workers = r.choice([2, 3])
    plan.server_threads = r.choice([1, 1, 2])
    plan.elements = r.choice([SLICE + 301, 2 * SLICE + 5001])
    plan.refill = r.choice([0, 0, 0, 20, 100])
    plan.clock_jumps = r.random() < 0.2
    weights = KINDS[kind][2]
    if kind == "network":
        plan.transport = r.choice(["zmq", "shm,zmq"])
    if kind == "alone":
        plan.workers = plan.servers = 1
        plan.refill = 0
    choices = [c for c in weights if only in (None, c[0], f"{c[0]}:{c[1]}")
               and not (c[0] == "no_memory" and SLOW > 1)]  # sanitizers end the process then
    if not choices and only != "launcher_kill":
        raise SystemExit(f"rounds.py: no action {only}: {sorted({c[0] for c in weights})}")
    faults = []
    for _ in range(r.choice([1, 2, 2, 3, 3]) if choices else 0):
        what, role = r.choices(choices, [weights[c] for c in choices])[0]
        counts = {"worker": plan.workers, "server": plan.servers}
        faults.append((what, role, r.randrange(counts.get(role, 1)), r.uniform(0, 0.4 * LEASE)))
    if kind == "launched":
        plan.launcher_dies = only == "launcher_kill" or (not only and r.random() < 0.08)
    if plan.launcher_dies:
        faults.append(("launcher_kill", "launcher", 0, r.uniform(0, 0.4 * LEASE)))
    plan.faults = tuple(faults)
    return plan


def run_round(plan, totals, kind):
    make_rig, make_actions, _ = KINDS[kind]
    with make_rig(plan) as rig:
        rig.start()
        rig.running()
        faults = make_actions(rig, random.Random(plan.seed + 1))
        for what, role, rank, delay in plan.faults:
            time.sleep(delay)  # the moment of the fault, anywhere
            rig.note(f"{what} {role}:{rank}")
            getattr(faults, what)(role, rank)
            rig.note(f"{what} {role}:{rank} done")
            faults.count(f"{what} {role}")
        if not plan.launcher_dies:
            rig.running()
            rig.note("all train")
            rig.finish()
        rig.nothing_left()
        summary = rig.check()
        for what, n in faults.counts.items():
            totals[what] = totals.get(what, 0) + n
        for field in dataclasses.fields(summary):
            name = f"total {field.name}"
            totals[name] = totals.get(name, 0) + getattr(summary, field.name)
        return summary


def report(rounds, failed, began, totals):
    print(f"{rounds} rounds in {time.monotonic() - began:.0f} s, {len(failed)} failed"
          + (f": {failed}" if failed else ""))
    for name in sorted(totals):
        print(f"  {totals[name]:8d}  {name}")


def parse():
    parser = argparse.ArgumentParser(prog="scripts/soak faults", description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=0, help="so many rounds (default 20)")
    parser.add_argument("--seconds", type=float, default=0, help="as many rounds as fit")
    parser.add_argument("--seed", type=int, default=None, help="of the first; the next one adds 1")
    parser.add_argument("--only", help="one action, such as kill or kill:server")
    parser.add_argument("--kind", choices=sorted(KINDS), default="launched",
                        help="under psrt-launch; over two network namespaces; with all embedded")
    parser.add_argument("--verbose", action="store_true")
    args = parser.parse_args()
    if args.seed is None:
        args.seed = random.SystemRandom().randrange(10**6)
    args.rounds = args.rounds or (10**9 if args.seconds else 20)
    return args


def try_round(seed, args, totals):
    """False: it failed, which was told."""
    plan = make_plan(seed, args.only, args.kind)
    start = time.monotonic()
    try:
        summary = run_round(plan, totals, args.kind)
    except (Failure, OSError) as e:
        flags = f" --kind {args.kind}" + (f" --only {args.only}" if args.only else "")
        print(f"FAILED seed {seed}: {e}\n  plan: {plan}\n  again: scripts/soak faults --rounds 1 "
              f"--seed {seed}{flags}", flush=True)
        if not isinstance(e, Failure):
            traceback.print_exc()
        return False
    if args.verbose:
        print(f"seed {seed}: {time.monotonic() - start:.1f} s {plan}\n  {summary}", flush=True)
    return True


def main():
    args = parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that nothing is left
    began, failed, totals, done = time.monotonic(), [], {}, 0
    try:
        while done < args.rounds and len(failed) < MAX_FAILED and (
                not args.seconds or time.monotonic() - began < args.seconds):
            if not try_round(args.seed + done, args, totals):
                failed.append(args.seed + done)
            done += 1
    except network.Unavailable as e:
        print(f"skipped: {e}")
        return 77
    report(done, failed, began, totals)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
