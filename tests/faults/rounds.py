# SPDX-License-Identifier: Apache-2.0
"""Rounds of random faults: each round is a job of its own, planned by its seed.

    rounds.py [--rounds N] [--seconds T] [--seed S] [--only ACTION] [--verbose]
"""
import argparse
import dataclasses
import random
import sys
import time
import traceback

from actions import WEIGHTS, Actions
from rig import LEASE, Failure, Rig

SLICE = 2**18


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


def make_plan(seed, only=None):
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
    choices = [c for c in WEIGHTS if only in (None, c[0], f"{c[0]}:{c[1]}")]
    if not choices and only != "launcher_kill":
        raise SystemExit(f"rounds.py: no action {only}: {sorted({c[0] for c in WEIGHTS})}")
    faults = []
    for _ in range(r.choice([1, 2, 2, 3, 3]) if choices else 0):
        what, role = r.choices(choices, [WEIGHTS[c] for c in choices])[0]
        counts = {"worker": plan.workers, "server": plan.servers}
        faults.append((what, role, r.randrange(counts.get(role, 1)), r.uniform(0, 0.4 * LEASE)))
    plan.launcher_dies = only == "launcher_kill" or (not only and r.random() < 0.08)
    if plan.launcher_dies:
        faults.append(("launcher_kill", "launcher", 0, r.uniform(0, 0.4 * LEASE)))
    plan.faults = tuple(faults)
    return plan


def run_round(plan, totals):
    with Rig(plan) as rig:
        rig.start()
        rig.running()
        actions = Actions(rig, random.Random(plan.seed + 1))
        for what, role, rank, delay in plan.faults:
            time.sleep(delay)  # the moment of the fault, anywhere
            rig.note(f"{what} {role}:{rank}")
            getattr(actions, what)(role, rank)
            rig.note(f"{what} {role}:{rank} done")
            actions.count(f"{what} {role}")
        if not plan.launcher_dies:
            rig.running()
            rig.note("all train")
            rig.finish()
        rig.nothing_left()
        summary = rig.check()
        for what, n in actions.counts.items():
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


def main():
    parser = argparse.ArgumentParser(prog="scripts/soak faults", description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=0, help="so many rounds (default 20)")
    parser.add_argument("--seconds", type=float, default=0, help="as many rounds as fit")
    parser.add_argument("--seed", type=int, default=None, help="of the first; the next one adds 1")
    parser.add_argument("--only", help="one action, such as kill or kill:server")
    parser.add_argument("--verbose", action="store_true")
    args = parser.parse_args()
    seed = args.seed if args.seed is not None else random.SystemRandom().randrange(10**6)
    rounds = args.rounds or (10**9 if args.seconds else 20)
    began, failed, totals, done = time.monotonic(), [], {}, 0
    while done < rounds and (not args.seconds or time.monotonic() - began < args.seconds):
        plan = make_plan(seed + done, args.only)
        start = time.monotonic()
        try:
            summary = run_round(plan, totals)
            if args.verbose:
                print(f"seed {plan.seed}: {time.monotonic() - start:.1f} s {plan}\n  {summary}",
                      flush=True)
        except (Failure, OSError) as e:
            failed.append(plan.seed)
            only = f" --only {args.only}" if args.only else ""
            print(f"FAILED seed {plan.seed}: {e}\n  plan: {plan}\n  again: scripts/soak faults "
                  f"--rounds 1 --seed {plan.seed}{only}", flush=True)
            if not isinstance(e, Failure):
                traceback.print_exc()
        done += 1
    report(done, failed, began, totals)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
