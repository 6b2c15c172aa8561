# SPDX-License-Identifier: Apache-2.0
"""A table of more than 4 GiB: 2^30 + 3 elements of f32, in memory of worker and servers together 12 GiB."""
import sys
import unittest

from job import JobTest

ELEMENTS = (1 << 30) + 3
NEEDED = 20  # GiB


def available_gib():
    with open("/proc/meminfo") as f:
        facts = dict(line.split(":", 1) for line in f)
    return int(facts["MemAvailable"].split()[0]) / (1 << 20)


class Large(JobTest):
    def at(self, worker, element):
        return float(worker.cmd(f"at t {element}"))

    def test_a_table_above_4_gib(self):
        job, (w,) = self.started(1, 2, PSRT_TRANSPORT="shm", PSRT_LEASE="60s")
        w.cmd(f"table t n={ELEMENTS} opt=none reduce=sum", 300)
        w.cmd("fill t 1", 300)
        w.cmd("push_pull t", 300)
        self.assertEqual(float(w.cmd("sum t", 300)), 1.0, "each element is 1 + i % 5")
        # A range over byte 2^32 and the end: nothing else moves, above all not the first elements,
        # where offsets cut to 32 bits would lead.
        first = (1 << 30) - 2
        w.cmd(f"push_pull t offset={first} count=5", 60)
        w.cmd("pull t", 300)
        for i in range(first - 3, ELEMENTS):
            self.assertEqual(self.at(w, i), (2 if i >= first else 1) * (1 + i % 5), f"element {i}")
        for i in range(8):
            self.assertEqual(self.at(w, i), 1 + i % 5, f"element {i}")
        self.finish(job, [w])


if __name__ == "__main__":
    if available_gib() < NEEDED:
        print(f"skipped: {available_gib():.1f} GiB of memory are available, {NEEDED} are needed")
        sys.exit(77)
    unittest.main()
