#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the soak takes for growth."""
import random
import unittest

from flat import trend


def noisy(level, visits=0.2):
    """A level for each second, and above it what a visitor holds for a moment."""
    draw = random.Random(7)
    return [level(t) + (draw.choice([1, 2, 3]) << 20 if draw.random() < visits else 0)
            for t in range(2400)]


class Trend(unittest.TestCase):
    def test_a_leak_grows_all_the_time(self):
        grown = trend(noisy(lambda t: 1e7 + 1500 * t))
        self.assertAlmostEqual(grown / (1500 * 2000), 1, delta=0.1)

    def test_a_rare_leak_of_descriptors(self):
        self.assertGreaterEqual(trend([40 + t // 300 for t in range(2400)]), 1)

    def test_a_step_is_no_leak(self):
        for at in (100, 800, 1200, 2300):
            self.assertEqual(trend(noisy(lambda t: 1e7 + (4 << 20) * (t > at))), 0)

    def test_visitors_are_no_leak(self):
        self.assertEqual(trend(noisy(lambda t: 1e7)), 0)
        self.assertEqual(trend([5]), 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
