# SPDX-License-Identifier: Apache-2.0
"""Reads the journals that worker.c keeps (journal.h has the layout), and checks what was pulled.

What is checked, of every value that any worker pulled, slice by slice:
 - no part of it is torn, misplaced or foreign (the worker looked at each element);
 - it counts no fewer pushes of each worker than must be in it, and no more than had begun;
 - at the end all workers see the same, and the sum of hashes is that of the acknowledged pushes, each
   once, and of some of those whose end is unknown, each at most once.
"""
import dataclasses
import functools
import mmap
import os
import pathlib
import sys

try:
    import numpy
except ImportError:
    print("NumPy is missing (scripts/setup test)", file=sys.stderr)
    sys.exit(77)

PUSH, PUSH_PULL, PULL = 1, 2, 3
STARTING, RUNNING, AT_GOAL, LEFT, ENDED = range(5)
OK, UNKNOWN = 0, 100
FIELD = 20  # bits that count the pushes of one worker
MAX_WORKERS, MAX_SLICES, MAX_GENERATIONS = 3, 3, 64
NEVER = 2**64 - 1
MASK = 2**64 - 1
SEARCH = 34  # so many pushes of unknown end can be searched for the right set of them

HEADER = numpy.dtype([("rank", "u4"), ("life", "u4"), ("pid", "u4"), ("phase", "u4"),
                      ("generation", "u4"), ("nrecords", "u4"), ("step", "u8", 2),
                      ("text", "S256")])
RECORD = numpy.dtype([("begin", "u8"), ("end", "u8"), ("status", "i4"), ("kind", "u1"),
                      ("table", "u1"), ("late", "u1"), ("torn", "u1"), ("generation", "u2"),
                      ("final", "u2"), ("slices", "u4"), ("number", "u8"), ("step", "u8"),
                      ("version", "u8"), ("applied", "u8", MAX_SLICES), ("sum", "u8", MAX_SLICES),
                      ("reserved", "u8", 3)])
assert RECORD.itemsize == 128


class Control:
    """What all workers are told (control_t)."""

    def __init__(self, directory):
        path = pathlib.Path(directory, "control")
        path.write_bytes(bytes(16) + b"\xff" * (8 * MAX_GENERATIONS))
        with open(path, "r+b") as f:
            self.map = mmap.mmap(f.fileno(), 0)
        self.words = memoryview(self.map).cast("Q")

    generation = property(lambda self: self.words[0])

    def finish(self):
        self.words[1] = 1

    def goal(self, generation):
        return self.words[2 + generation]

    def set_goal(self, generation, step):
        self.words[2 + generation] = step

    def close(self):
        self.words.release()
        self.map.close()


class Journal:
    """One life of a worker, whether it still runs or not."""

    def __init__(self, path):
        with open(path, "rb") as f:
            self.map = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)
        self.head = numpy.frombuffer(self.map, HEADER, 1)[0]
        self.rank, self.life = map(int, str(path).rsplit(".", 2)[1:])

    @property
    def records(self):
        n = int(self.head["nrecords"])
        r = numpy.frombuffer(self.map, RECORD, n, 4096)
        return r[r["kind"] != 0]

    def text(self):
        return self.head["text"].decode(errors="replace")


def journals(directory):
    """Of all lives, by rank and life. One that is just being made is left out."""
    found = [Journal(p) for p in pathlib.Path(directory).glob("journal.*")
             if os.path.getsize(p) > 4096]
    return sorted(found, key=lambda j: (j.rank, j.life))


def push_hash(rank, life, generation, table, number):
    x = rank << 60 | (life & 0xfff) << 48 | (generation & 0xff) << 40 | table << 36 | number
    x = (x + 0x9e3779b97f4a7c15) & MASK
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9 & MASK
    x = (x ^ x >> 27) * 0x94d049bb133111eb & MASK
    return x ^ x >> 31


@dataclasses.dataclass
class Pushes:
    """Of one worker, all its lives, to one slice of a table."""
    acked: numpy.ndarray  # records that must be in, once
    open: numpy.ndarray  # those that may be, at most once
    lives: tuple  # the life of each, in the same two orders


@dataclasses.dataclass
class Summary:
    pushes: int = 0
    unknown: int = 0
    pulls: int = 0
    finals: int = 0
    lost_tables: int = 0
    lives: int = 0  # beyond the first of each worker
    unsearched: int = 0  # final slices with too many unknown pushes: only counted


class Checker:

    def __init__(self, directory, consistency):
        self.sync = consistency.startswith("sync")
        self.lives = [(j, numpy.array(j.records)) for j in journals(directory)]
        self.errors, self.summary = [], Summary()
        self.pushes = functools.lru_cache(None)(self.find_pushes)

    def error(self, text):
        if len(self.errors) < 20:
            self.errors.append(text)

    # ---- which pushes there were ----

    def find_pushes(self, table, generation, slice_, rank):
        acked, open_, lives = [], [], ([], [])
        for j, r in self.lives:
            if j.rank != rank:
                continue
            mine = r[(r["kind"] != PULL) & (r["table"] == table) & (r["generation"] == generation) &
                     ((r["slices"] >> slice_ & 1) == 1)]
            sure = (mine["status"] == OK) & (mine["late"] == 0)
            for part, where, which in ((mine[sure], acked, 0), (mine[~sure], open_, 1)):
                where.append(part)
                lives[which].append(numpy.full(len(part), j.life))
        empty = numpy.empty(0, RECORD)
        return Pushes(numpy.concatenate(acked or [empty]), numpy.concatenate(open_ or [empty]),
                      tuple(numpy.concatenate(x or [numpy.empty(0, int)]) for x in lives))

    # ---- each pull ----

    def bounds(self, pushes, pulls):
        """For each pull, how many pushes of a worker it may show: at least, at most."""
        acked, open_ = pushes.acked, pushes.open
        if self.sync:  # version v is made of the steps below v
            least = numpy.searchsorted(numpy.sort(acked["step"]), pulls["version"])
        else:  # what was acknowledged before the pull began
            least = numpy.searchsorted(numpy.sort(acked["end"]), pulls["begin"])
        begun = numpy.sort(numpy.concatenate([acked["begin"], open_["begin"]]))
        return least, numpy.searchsorted(begun, pulls["end"])

    def check_pulls(self, table, generation, slice_, pulls, who):
        for rank in range(MAX_WORKERS):
            counted = pulls["applied"][:, slice_] >> FIELD * rank & (1 << FIELD) - 1
            least, most = self.bounds(self.pushes(table, generation, slice_, rank), pulls)
            for wrong, word in ((counted < least, "lost"), (counted > most, "applied twice")):
                for i in numpy.nonzero(wrong)[0][:3]:
                    self.error(
                        f"{word}: {who} pulled {'ab'[table]}.{generation} slice {slice_} version "
                        f"{pulls['version'][i]} with {counted[i]} pushes of worker:{rank}, which "
                        f"are {least[i]} to {most[i]}")

    # ---- the end ----

    def check_final(self, table, generation, slice_, final):
        must, may, counts = 0, [], []
        for rank in range(MAX_WORKERS):
            p = self.pushes(table, generation, slice_, rank)
            names = [(rank, int(life), generation, table, int(r["number"]))
                     for records, lives in zip((p.acked, p.open), p.lives)
                     for r, life in zip(records, lives)]
            hashes = [push_hash(*n) for n in names]
            must += sum(hashes[:len(p.acked)])
            may += hashes[len(p.acked):]
            applied = int(final["applied"][slice_]) >> FIELD * rank & (1 << FIELD) - 1
            counts.append((applied, len(p.acked), len(p.acked) + len(p.open)))
        for rank, (applied, least, most) in enumerate(counts):
            if not least <= applied <= most:
                self.error(f"final {'ab'[table]}.{generation} slice {slice_} has {applied} pushes of "
                           f"worker:{rank}, {least} acknowledged, {most} begun")
        extra = sum(applied - least for applied, least, _ in counts)
        if len(may) > SEARCH:
            self.summary.unsearched += 1
        elif not subset_sum(may, (int(final["sum"][slice_]) - must) & MASK, extra):
            self.error(f"final {'ab'[table]}.{generation} slice {slice_} is not the sum of what was "
                       f"acknowledged and some of {len(may)} of unknown end")

    def check_finals(self, finals):
        seen = {}
        for who, r in finals:
            key = int(r["table"]), int(r["generation"])
            values = r["applied"].tobytes() + r["sum"].tobytes()
            if seen.setdefault(key, (who, values, r))[1] != values:
                self.error(f"{who} and {seen[key][0]} read different final values of "
                           f"{'ab'[key[0]]}.{key[1]}")
        for (table, generation), (_, _, r) in seen.items():
            for slice_ in range(MAX_SLICES):
                if r["slices"] >> slice_ & 1:
                    self.check_final(table, generation, slice_, r)

    def run(self):
        finals = []
        for j, r in self.lives:
            who = f"worker:{j.rank} life {j.life}"
            good = r[(r["kind"] != PUSH) & (r["status"] == OK)]
            for bad in good[good["torn"] != 0][:3]:
                self.error(f"torn: {who} pulled {'ab'[bad['table']]}.{bad['generation']} version "
                           f"{bad['version']}, slices {bad['torn']:#x}")
            finals += [(who, x) for x in good[good["final"] == 1]]
            self.summary.pulls += len(good)
            self.summary.pushes += int(numpy.sum((r["kind"] != PULL) & (r["status"] == OK)))
            self.summary.unknown += int(numpy.sum((r["kind"] != PULL) & (r["status"] != OK)))
            for table, generation in {(int(a), int(b)) for a, b in good[["table", "generation"]]}:
                pulls = good[(good["table"] == table) & (good["generation"] == generation)]
                for slice_ in range(MAX_SLICES):
                    if pulls["slices"][0] >> slice_ & 1:
                        self.check_pulls(table, generation, slice_, pulls, who)
        self.check_finals(finals)
        self.summary.finals = len(finals)
        self.summary.lives = sum(j.life > 0 for j, _ in self.lives)
        self.summary.lost_tables = max((int(r["generation"].max()) for _, r in self.lives if len(r)),
                                       default=0)
        return self.errors


def subset_sum(values, total, size):
    """Is `total` (modulo 2^64) the sum of `size` of the values? Two halves meet in the middle."""
    half = len(values) // 2

    def sums(part):
        found = {(0, 0)}
        for v in part:
            found |= {((s + v) & MASK, n + 1) for s, n in found}
        return found

    right = sums(values[half:])
    return any(((total - s) & MASK, size - n) in right for s, n in sums(values[:half]))
