# SPDX-License-Identifier: Apache-2.0
"""One process with no cluster: server and coordinator are embedded in it. Stopped as a whole, for however
long, it goes on as if nothing had been; nobody is declared dead by a clock that stood still for all."""
import subprocess
import time

import journal
from rig import HERE, TEST_BIN, Failure, Rig, Tasks


class AloneRig(Rig):

    def start(self):
        self.began = time.monotonic()
        self.logs.mkdir()
        self.proc = Tasks()
        env = self.environment()
        with open(self.logs / "worker-0", "wb") as log:
            self.proc.all.append(subprocess.Popen(
                [str(HERE / "again.sh"), str(TEST_BIN / self.worker)], env=env, stdout=log,
                stderr=log, stdin=subprocess.DEVNULL, start_new_session=True))

    def pid(self, role, rank):
        """Whatever the role: it is all of them."""
        return super().pid("worker", rank)

    def task_marks(self, role, rank):
        return set()

    def check(self):
        lives = journal.journals(self.data)
        if len(lives) != 1:
            raise Failure(f"it was ended: {[j.text() for j in lives]}")
        return super().check()


WEIGHTS = {("stop_short", "worker"): 1, ("stop_long", "worker"): 2,
           ("stop_at_point_short", "worker"): 1, ("stop_at_point_long", "worker"): 2,
           ("stop_at_point_long", "server"): 1}
