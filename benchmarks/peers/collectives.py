# SPDX-License-Identifier: Apache-2.0
"""Collectives beside OpenMPI, MPICH and Gloo: builds their programs, gives everybody a turn, compares."""
import contextlib
import json
import math
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
SHARED = ["coll_area", "coll_cell", "coll_data", "coll_options", "coll_parts", "coll_row", "flags", "flag_values",
          "stats"]
MPI = ["openmpi", "mpich"]
DEADLINE = 600  # seconds of one job
KIB, MIB = 1 << 10, 1 << 20


class Unavailable(Exception):
    """A peer that is left out, and why."""


def compile_with(command, what):
    if not shutil.which(command[0]):
        raise Unavailable(f"{command[0]} is not installed (scripts/setup peers)")
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, check=False)
    if done.returncode:
        raise Unavailable(f"{what} does not compile:\n{done.stdout}")


class Job:
    """Processes that measure together; all are gone afterwards."""

    def __init__(self, ranks, flags):
        self.ranks, self.flags = ranks, flags

    def commands(self, area, folder):
        """(argv, environment) of each process; the first one prints the rows."""
        raise NotImplementedError

    def rows(self):
        area = os.memfd_create("psrt-bench-coll")
        processes = []
        try:
            with tempfile.TemporaryDirectory() as folder, \
                    tempfile.TemporaryFile("w+", encoding="utf-8") as errors:
                for argv, more in self.commands(f"/proc/{os.getpid()}/fd/{area}", folder):
                    processes.append(subprocess.Popen(
                        argv, env=dict(os.environ, **more), stdin=subprocess.DEVNULL,
                        stdout=subprocess.PIPE if not processes else subprocess.DEVNULL,
                        stderr=errors, text=True, start_new_session=True))
                return self.collect(processes, errors)
        finally:
            os.close(area)
            for process in processes:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    @staticmethod
    def collect(processes, errors):
        try:
            out, _ = processes[0].communicate(timeout=DEADLINE)
        except subprocess.TimeoutExpired:
            raise Unavailable(f"not done after {DEADLINE} s") from None
        rows = [json.loads(line.split("\t")[1]) for line in out.splitlines() if "\t{" in line]
        if processes[0].returncode or not rows:
            errors.seek(0)
            raise Unavailable(f"exit code {processes[0].returncode}: {errors.read().strip()}")
        return rows


class MpiJob(Job):
    def __init__(self, program, impl, ranks, flags):
        super().__init__(ranks, flags)
        self.program, self.impl = program, impl

    def commands(self, area, folder):
        crowded = self.ranks > len(os.sched_getaffinity(0))
        argv = [f"mpirun.{self.impl}"]
        more = {}
        if self.impl == "openmpi":
            more = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
            argv += ["--oversubscribe", "--mca", "mpi_yield_when_idle", str(int(crowded))]
        elif not crowded:
            argv += ["-bind-to", "core"]
        return [(argv + ["-np", str(self.ranks), self.program, "--area", area, "--buffers", "user",
                         *self.flags], more)]


class GlooJob(Job):
    def __init__(self, program, ranks, flags):
        super().__init__(ranks, flags)
        self.program = program

    def commands(self, area, folder):
        argv = [self.program, "--area", area, "--buffers", "user", *self.flags]
        return [(argv, {"RANK": str(rank), "SIZE": str(self.ranks), "STORE": folder})
                for rank in range(self.ranks)]


def build_mpi(impl, folder):
    program = os.path.join(folder, f"coll-{impl}")
    compile_with([f"mpicc.{impl}", "-std=gnu11", "-O3", "-D_GNU_SOURCE", f"-DIMPL=\"{impl}\"", "-I.",
                  "benchmarks/peers/mpi.c", *(f"benchmarks/{name}.c" for name in SHARED), "-lm",
                  "-o", program], impl)
    return lambda ranks, flags: MpiJob(program, impl, ranks, flags).rows()


def build_gloo(folder):
    if not os.path.exists("/usr/include/gloo/allreduce.h"):
        raise Unavailable("libgloo-dev is not installed (scripts/setup peers)")
    objects = []
    for name in SHARED:
        objects.append(os.path.join(folder, f"{name}.o"))
        compile_with(["cc", "-std=gnu11", "-O3", "-D_GNU_SOURCE", "-I.", "-c", f"benchmarks/{name}.c",
                      "-o", objects[-1]], name)
    program = os.path.join(folder, "coll-gloo")
    compile_with(["c++", "-std=gnu++17", "-O3", "-I.", "benchmarks/peers/gloo.cc", *objects, "-lgloo",
                  "-lpthread", "-lm", "-o", program], "gloo")
    return lambda ranks, flags: GlooJob(program, ranks, flags).rows()


def ours(bench, ranks, flags):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "rows.json")
        subprocess.run([bench, "coll", "--ranks", str(ranks), "--json", path, *flags], check=True,
                       stdout=subprocess.DEVNULL, timeout=DEADLINE)
        with open(path, encoding="utf-8") as file:
            return json.load(file)


def build(bench, folder):
    """{name: what measures}; who cannot take part is told."""
    os.makedirs(folder, exist_ok=True)
    turns = {"psrt": lambda ranks, flags: ours(bench, ranks, flags)}
    makers = {impl: lambda impl=impl: build_mpi(impl, folder) for impl in MPI}
    makers["gloo"] = lambda: build_gloo(folder)
    for name, make in makers.items():
        try:
            turns[name] = make()
        except Unavailable as reason:
            print(f"left out: {name}: {reason}", file=sys.stderr)
    return turns


def key_of(row):
    return tuple(row[key] for key in ("collective", "ranks", "bytes", "impl", "buffers"))


def median_row(rows):
    row = dict(rows[0])
    for key in ("p50_us", "p99_us", "algbw_gbps", "busbw_gbps", "limit_us"):
        row[key] = statistics.median(r[key] for r in rows) if row[key] is not None else None
    row["wrong"] = sum(r["wrong"] for r in rows)
    return row


def merge(earlier, rows):
    """What was measured again replaces what was."""
    again = {key_of(row) for row in rows}
    return [row for row in earlier if key_of(row) not in again] + rows


def measure(args):
    """Medians of the rounds; in each of them everybody has a turn."""
    turns = build(args.bench, os.path.join(args.environment, "programs"))
    flags = ["--collective", args.collectives, "--min", str(args.min), "--max", str(args.max),
             "--factor", str(args.factor), "--seconds", str(args.seconds)]
    found = {}
    for number in range(args.rounds):
        for ranks in map(int, args.ranks.split(",")):
            print(f"collectives: round {number + 1} of {args.rounds}, {ranks} ranks",
                  file=sys.stderr, flush=True)
            for name, run in list(turns.items()):
                try:
                    rows = run(ranks, flags)
                except Unavailable as reason:
                    print(f"left out: {name}, {ranks} ranks: {reason}", file=sys.stderr)
                    continue
                for row in rows:
                    found.setdefault(key_of(row), []).append(row)
    return [median_row(rows) for rows in found.values()]


class Table:
    """Times by collective, ranks and size, and what they are beside ours."""

    def __init__(self, rows):
        self.us = {key_of(row): row["p50_us"] for row in rows}
        self.limit = {key_of(row)[:3]: row["limit_us"] for row in rows if row["limit_us"]}
        self.cells = sorted({key_of(row)[:3] for row in rows})

    def of(self, cell, impl, buffers="user"):
        return self.us.get((*cell, impl, buffers))

    def mpi(self, cell):
        """The better one at this size."""
        return min((us for us in (self.of(cell, impl) for impl in MPI) if us), default=None)

    def ratios(self, collective, ranks, peer, buffers, low=4 * KIB, high=256 * MIB):
        """How many times faster we are, at each size."""
        result = {}
        for cell in self.cells:
            theirs, our = peer(cell), self.of(cell, "psrt", buffers)
            if cell[:2] == (collective, ranks) and low <= cell[2] <= high and theirs and our:
                result[cell[2]] = theirs / our
        return result


def geometric_mean(values):
    return math.exp(statistics.fmean(math.log(value) for value in values))


def number(value, form):
    return form.format(value) if value else "-"


def print_table(rows):
    table = Table(rows)
    print("us, the median; x: how many times faster ours is, of memory psrt / of ordinary memory")
    print(f"{'collective':14} {'ranks':>5} {'bytes':>10} {'limit':>10} {'psrt':>10} {'user':>10} "
          + " ".join(f"{name:>10}" for name in [*MPI, "gloo"])
          + f" {'x MPI':>15} {'x gloo':>17}")
    for cell in table.cells:
        psrt, user = table.of(cell, "psrt", "psrt"), table.of(cell, "psrt", "user")
        theirs = [table.of(cell, name) for name in [*MPI, "gloo"]]
        pairs = [" / ".join(number(peer and our and peer / our, "{:.2f}") for our in (psrt, user))
                 for peer in (table.mpi(cell), theirs[2])]
        print(f"{cell[0]:14} {cell[1]:5} {cell[2]:10} "
              + " ".join(f"{number(us, '{:.2f}'):>10}"
                         for us in [table.limit.get(cell), psrt, user, *theirs])
              + f" {pairs[0]:>15} {pairs[1]:>17}")
    print_means(table)


def print_means(table):
    print("\ngeometric means over 4 KiB to 256 MiB, and the least of the sizes")
    peers = {"MPI": table.mpi, "gloo": lambda cell: table.of(cell, "gloo")}
    for collective, ranks in sorted({cell[:2] for cell in table.cells}):
        for buffers in ("psrt", "user"):
            for name, peer in peers.items():
                ratios = table.ratios(collective, ranks, peer, buffers)
                if ratios:
                    least = min(ratios, key=ratios.get)
                    print(f"{collective:14} {ranks:2} ranks, {buffers} memory: "
                          f"{geometric_mean(ratios.values()):7.2f} times {name:4} "
                          f"(least {ratios[least]:.2f} at {least} bytes)")


def marks(rows):
    """[(what is asked, what was measured, whether it is reached)]"""
    table, result = Table(rows), []

    def mean(peer, name, buffers, wanted):
        ratios = table.ratios("allreduce", 2, peer, buffers)
        if ratios:
            value = geometric_mean(ratios.values())
            result.append((f"allreduce, 2 ranks, {buffers} memory: {wanted} times {name} in the mean",
                           value, value >= wanted))

    def never_slower(ranks, buffers):
        ratios = table.ratios("allreduce", ranks, table.mpi, buffers)
        if ratios:
            result.append((f"allreduce, {ranks} ranks, {buffers} memory: not slower than MPI at any size",
                           min(ratios.values()), min(ratios.values()) >= 1))

    mean(table.mpi, "MPI", "psrt", 3)
    mean(lambda cell: table.of(cell, "gloo"), "Gloo", "psrt", 8)
    mean(table.mpi, "MPI", "user", 2)
    never_slower(2, "user")
    for ranks in (4, 8):
        for buffers in ("psrt", "user"):
            never_slower(ranks, buffers)
    latency = table.of(("latency", 2, 64), "psrt", "psrt")
    if latency:
        result.append(("64 B allreduce, 2 ranks: at most 0.25 us", latency, latency <= 0.25))
        openmpi = table.of(("latency", 2, 64), "openmpi")
        if openmpi:
            result.append(("64 B allreduce, 2 ranks: not slower than OpenMPI", openmpi / latency,
                           openmpi >= latency))
    return result


def print_marks(rows):
    print()
    for what, value, reached in marks(rows):
        print(f"{'reached' if reached else 'missed':8} {value:8.2f}  {what}")
