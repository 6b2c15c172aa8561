# SPDX-License-Identifier: Apache-2.0
"""The checker sees what it is there for: journals of a model job, whole and with one thing wrong."""
import pathlib
import shutil
import tempfile
import unittest

import numpy

import journal
from journal import FIELD, MASK, PULL, PUSH, RECORD, UNKNOWN, push_hash


class Model:
    """Two workers push to a table of one slice in turns, and pull what a right server would give."""

    def __init__(self, directory):
        self.directory, self.time = directory, 1000
        self.records = {0: [], 1: []}
        self.applied = self.sum = self.steps = 0
        self.numbers = [0, 0]

    def record(self, rank, kind, **fields):
        r = numpy.zeros(1, RECORD)[0]
        self.time += 10
        r["begin"], r["end"], r["kind"], r["slices"] = self.time, self.time + 5, kind, 1
        for name, value in fields.items():
            r[name] = value
        self.records[rank].append(r)
        return r

    def push(self, rank, times=1, **fields):
        self.numbers[rank] += 1
        n = self.numbers[rank]
        self.applied += times << FIELD * rank
        self.sum += times * push_hash(rank, 0, 0, 0, n)
        return self.record(rank, PUSH, number=n, step=self.steps, **fields)

    def pull(self, rank, applied=None, sum_=None, **fields):
        r = self.record(rank, PULL, version=self.steps, **fields)
        r["applied"][0] = self.applied if applied is None else applied
        r["sum"][0] = (self.sum if sum_ is None else sum_) & MASK
        return r

    def train(self, steps=20):
        for _ in range(steps):
            self.push(0), self.push(1)
            self.steps += 1
            self.pull(0), self.pull(1)

    def finals(self, **fields):
        for rank in (0, 1):
            self.pull(rank, final=1, **fields)

    def check(self, consistency):
        for rank, records in self.records.items():
            head = numpy.zeros(1, journal.HEADER)
            head["rank"], head["nrecords"] = rank, len(records)
            data = head.tobytes().ljust(4096, b"\0") + numpy.array(records, RECORD).tobytes()
            pathlib.Path(self.directory, f"journal.{rank}.0").write_bytes(data)
        return journal.Checker(self.directory, consistency).run()


class Checks(unittest.TestCase):

    def setUp(self):
        directory = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, directory)
        self.model = Model(directory)
        self.model.train()

    def found(self, *words):
        """Each consistency finds the same."""
        for consistency in ("async", "sync", "ssp:1"):
            errors = self.model.check(consistency)
            for word in words:
                self.assertIn(word, " ".join(errors), consistency)
            if not words:
                self.assertEqual(errors, [], consistency)

    def test_a_right_job(self):
        self.model.finals()
        self.found()

    def test_unknown_pushes_may_be_in_or_not(self):
        for times in (0, 1, 1, 0, 1):
            self.model.push(0, times, status=UNKNOWN)
        self.model.push(1, 0, late=1)
        self.model.finals()
        self.found()

    def test_an_acknowledged_push_is_lost(self):
        self.model.push(1, 0)
        self.model.steps += 1
        self.model.pull(0)
        self.found("lost: worker:0")

    def test_a_push_is_applied_twice(self):
        self.model.push(1, 2)
        self.model.pull(0)
        self.found("applied twice: worker:0")

    def test_one_is_lost_and_one_doubled_at_the_end(self):
        self.model.push(0, 2), self.model.push(0, 0)
        self.model.finals()
        self.found("is not the sum")

    def test_an_unknown_one_twice_in_place_of_another(self):
        self.model.push(0, 2, status=UNKNOWN), self.model.push(0, 0, status=UNKNOWN)
        self.model.finals()
        self.found("is not the sum")

    def test_a_foreign_gradient(self):
        self.model.finals(sum_=self.model.sum + 2)
        self.found("is not the sum")

    def test_workers_disagree(self):
        self.model.pull(0, final=1)
        self.model.push(1, status=UNKNOWN)
        self.model.pull(1, final=1)
        self.found("different final values")

    def test_a_torn_slice(self):
        self.model.pull(1, torn=1)
        self.found("torn: worker:1")

    def test_a_pull_that_failed_says_nothing(self):
        self.model.pull(1, applied=0, torn=1, status=-60)
        self.model.finals()
        self.found()


if __name__ == "__main__":
    unittest.main(verbosity=2)
