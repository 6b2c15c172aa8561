# SPDX-License-Identifier: Apache-2.0
"""A Slurm cluster of this machine: munged, slurmctld and slurmd for two or more nodes, all of them in a
directory of their own and on ports of their own, so that a cluster that is there is left alone.

Nodes share the host name (the slurmd's are started with -N), so what tells them apart is SLURMD_NODENAME."""
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "scancel", "sinfo", "scontrol")
START = 60  # seconds


class Unavailable(Exception):
    pass


def missing():
    """Why there can be no cluster here; None: there can."""
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    absent = [p for p in PROGRAMS if not shutil.which(p, path=path)]
    if absent:
        return "not installed: " + ", ".join(absent)
    if os.geteuid():
        return "slurmd wants root"
    return None


def free_ports(count):
    socks = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [s.getsockname()[1] for s in socks]
    for s in socks:
        s.close()
    return ports


CONF = """\
ClusterName=psrt
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={dir}/munge.socket
CredType=cred/munge
StateSaveLocation={dir}/state
SlurmdSpoolDir={dir}/spool.%n
SlurmctldPidFile={dir}/slurmctld.pid
SlurmdPidFile={dir}/slurmd.%n.pid
SlurmctldLogFile={dir}/slurmctld.log
SlurmdLogFile={dir}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
ReturnToService=2
SlurmdTimeout=10
SlurmctldTimeout=10
KillWait=3
InactiveLimit=0
MinJobAge=60
SchedulerType=sched/builtin
SlurmdParameters=config_overrides
JobCompType=jobcomp/none
AccountingStorageType=accounting_storage/none
PlugStackConfig={dir}/plugstack.conf
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


class Cluster:
    def __init__(self, nodes=2, cpus=4):
        why = missing()
        if why:
            raise Unavailable(why)
        self.dir = tempfile.mkdtemp(prefix="psrt-slurm-")
        os.chmod(self.dir, 0o755)
        os.mkdir(self.dir + "/state")
        self.names = [f"n{i}" for i in range(nodes)]
        ports = free_ports(nodes + 1)
        host = socket.gethostname()
        rows = "\n".join(
            f"NodeName={n} NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[i + 1]} CPUs={cpus} "
            "RealMemory=1000 State=UNKNOWN" for i, n in enumerate(self.names))
        open(self.dir + "/plugstack.conf", "w").close()
        with open(self.dir + "/slurm.conf", "w") as f:
            f.write(CONF.format(host=host, dir=self.dir, ports=ports, nodes=rows))
        path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
        self.env = {**os.environ, "SLURM_CONF": self.dir + "/slurm.conf", "PATH": path}
        self.procs = {}
        try:
            self._start_munge()
            self._start("slurmctld", ["slurmctld", "-D", "-i"])
            for n in self.names:
                self.start_node(n)
            self._until_idle()
        except BaseException:
            self.close()
            raise

    def _start(self, name, argv):
        log = open(f"{self.dir}/{name}.out", "ab")
        self.procs[name] = subprocess.Popen(argv, env=self.env, stdin=subprocess.DEVNULL, stdout=log,
                                            stderr=log, start_new_session=True)
        log.close()

    def _start_munge(self):
        with open(os.open(self.dir + "/munge.key", os.O_CREAT | os.O_WRONLY, 0o400), "wb") as f:
            f.write(os.urandom(128))
        d = self.dir
        self._start("munged", ["munged", "--foreground", "--force", f"--key-file={d}/munge.key",
                               f"--socket={d}/munge.socket", f"--pid-file={d}/munge.pid",
                               f"--log-file={d}/munge.log", f"--seed-file={d}/munge.seed"])
        self._until(lambda: os.path.exists(d + "/munge.socket"), "munged does not start")

    def start_node(self, name):
        self._start(name, ["slurmd", "-D", "-N", name])

    def kill_node(self, name):
        """As if the machine lost power: slurmd and all the steps it started."""
        self.procs.pop(name).kill()
        for pid in self._steps(name):
            os.kill(pid, signal.SIGKILL)

    def _steps(self, name):
        """The slurmstepds of a node and what they started."""
        found, parents = [], {}
        for entry in os.listdir("/proc"):
            if not entry.isdigit():
                continue
            try:
                with open(f"/proc/{entry}/stat") as f:
                    parents[int(entry)] = int(f.read().rpartition(")")[2].split()[1])
                with open(f"/proc/{entry}/environ", "rb") as f:
                    if f"SLURMD_NODENAME={name}".encode() in f.read().split(b"\0"):
                        found.append(int(entry))
            except OSError:
                pass
        steps = {parents.get(p) for p in found}
        for pid in list(steps):
            try:
                with open(f"/proc/{pid}/comm") as f:
                    if f.read().strip() != "slurmstepd":
                        steps.discard(pid)
            except (OSError, TypeError):
                steps.discard(pid)
        return list(steps) + found

    def _until(self, condition, what):
        end = time.monotonic() + START
        while not condition():
            if time.monotonic() > end:
                raise RuntimeError(f"{what}\n{self.logs()}")
            time.sleep(0.1)

    def _until_idle(self):
        self._until(lambda: self.call("sinfo", "-h", "-N", "-o", "%t").split().count("idle") ==
                    len(self.names), "the nodes do not become idle")

    def call(self, *argv, timeout=60, check=False):
        return subprocess.run(argv, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              stdin=subprocess.DEVNULL, timeout=timeout, check=check,
                              text=True).stdout

    def logs(self):
        text = ""
        for name in sorted(os.listdir(self.dir)):
            if name.endswith((".log", ".out")):
                with open(f"{self.dir}/{name}", errors="replace") as f:
                    text += f"--- {name}\n" + f.read()[-3000:]
        return text

    def close(self):
        if "slurmctld" in self.procs:
            self.call("scancel", "-f", "--user=root")
        for name in self.names:
            for pid in self._steps(name):
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
        for p in self.procs.values():
            p.terminate()
        for p in self.procs.values():
            try:
                p.wait(10)
            except subprocess.TimeoutExpired:
                p.kill()
                p.wait()
        shutil.rmtree(self.dir, ignore_errors=True)
