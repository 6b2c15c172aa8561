#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The demonstration in its default setting, alone and with 2 workers and 2 servers."""
import unittest

from example import accuracy, launched, mnist, run


class Full(unittest.TestCase):
    def test_alone(self):
        code, out, err = run(mnist())
        self.assertEqual((code, err), (0, ""))
        self.assertGreaterEqual(accuracy(out), 0.87)

    def test_launched(self):
        code, out, err = run(launched(2, 2, *mnist()))
        self.assertEqual((code, err), (0, ""))
        self.assertGreaterEqual(accuracy(out, "[worker:0] "), 0.87)


unittest.main()
