#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Shows that the simulator sees: applies each of bugs/*.patch alone to a copy of the sources,
builds the simulator of it in BUILD/planted_bugs, and wants a seed that fails. What is not patched
comes from the objects of BUILD, so build psrt-sim first.

usage: planted_bugs.py ROOT BUILD [NAME...]"""
import concurrent.futures
import json
import os
import re
import shutil
import subprocess
import sys
import time

SEEDS = 20000
TIME = 600  # seconds that a bug may take
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.M)


class Build:
    """How BUILD makes psrt-sim."""

    def __init__(self, root, build):
        self.root, self.build = root, build
        with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as file:
            entries = json.load(file)
        for entry in entries:
            entry["output"] = re.search(r" -o (\S+)", entry["command"])[1]
        self.sim = [e for e in entries if "/psrt-sim.dir/" in e["output"]]
        own = {e["file"] for e in self.sim}
        parts = ("base", "kernels", "transport", "runtime")
        self.rest = [e for e in entries if e["file"] not in own and
                     os.path.relpath(e["file"], root).split(os.sep)[0] in parts]
        commands = subprocess.run(["ninja", "-C", build, "-t", "commands", "tests/bin/psrt-sim"],
                                  check=True, capture_output=True, text=True).stdout
        self.link = commands.strip().splitlines()[-1]
        self.includes = {}

    def included(self, path):
        """Files of the tree that `path`, relative to the root, includes in the end."""
        if path not in self.includes:
            self.includes[path] = found = set()
            with open(os.path.join(self.root, path), encoding="utf-8") as file:
                for name in INCLUDE.findall(file.read()):
                    for at in (name, os.path.join(os.path.dirname(path), name)):
                        if os.path.isfile(os.path.join(self.root, at)):
                            found.add(at)
                            found |= self.included(at)
        return self.includes[path]


class Bug:
    """One patch, in a folder of its own."""

    def __init__(self, build, patch):
        self.build = build
        self.patch = patch
        self.name = os.path.basename(patch)[:-len(".patch")]
        self.folder = os.path.join(build.build, "planted_bugs", self.name)
        with open(patch, encoding="utf-8") as file:
            text = file.read()
        self.promise = text.splitlines()[0].lstrip("# ")
        self.files = re.findall(r"^\+\+\+ b/(\S+)", text, re.M)

    def apply(self):
        shutil.rmtree(self.folder, ignore_errors=True)
        for path in self.files:
            target = os.path.join(self.folder, path)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            shutil.copy(os.path.join(self.build.root, path), target)
        done = subprocess.run(["patch", "-p1", "--fuzz=0", "-s", "-d", self.folder, "-i",
                               self.patch], capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"the patch does not apply any more, rebase {self.patch} onto the "
                               f"sources as they are:\n{done.stdout}{done.stderr}")

    def compile(self, entry):
        source = os.path.relpath(entry["file"], self.build.root)
        patched = os.path.join(self.folder, source)
        output = os.path.join(self.folder, source.replace(os.sep, "_") + ".o")
        command = re.sub(r" -M[DTF]\b( \S+)?", "", entry["command"])
        command = command.replace(entry["output"], output)
        if source in self.files:
            command = command.replace(f"-c {entry['file']}",
                                      f"-I{os.path.dirname(entry['file'])} -c {patched}")
        command = command.replace(" -I", f" -I{self.folder} -I", 1) + " -Wno-error"
        done = subprocess.run(command, shell=True, cwd=entry["directory"], capture_output=True,
                              text=True)
        if done.returncode:
            raise RuntimeError(f"{source} does not build with the patch:\n{done.stderr}")
        return output

    def concerns(self, entry):
        source = os.path.relpath(entry["file"], self.build.root)
        return source in self.files or not self.build.included(source).isdisjoint(self.files)

    def make(self):
        """The simulator with the bug. Objects beside it come before those of the archive."""
        program = os.path.join(self.folder, "psrt-sim")
        link, more = self.build.link, ""
        for entry in self.build.sim:
            if self.concerns(entry):
                link = link.replace(f" {entry['output']} ", f" {self.compile(entry)} ")
        for entry in self.build.rest:
            if self.concerns(entry):
                more += " " + self.compile(entry)
        link = link.replace(" -o tests/bin/psrt-sim", f"{more} -o {program}")
        subprocess.run(link, shell=True, cwd=self.build.build, check=True)
        return program

    def find(self):
        """(found, a line that says so)"""
        start = time.monotonic()
        try:
            self.apply()
            program = self.make()
            done = subprocess.run([program, "--seeds", str(SEEDS), "--jobs", "1", "--brief"],
                                  capture_output=True, text=True, timeout=TIME)
            out = done.stdout
        except subprocess.TimeoutExpired:
            return False, f"{self.name}: ran for {TIME} s and failed in no seed: {self.promise}"
        except RuntimeError as error:
            return False, f"{self.name}: {error}"
        seed = re.search(r"^seed (\d+) (.*)", out, re.M)
        if not done.returncode or not seed:
            return False, f"{self.name}: NOT FOUND in {SEEDS} seeds: {self.promise}\n{out}"
        took = time.monotonic() - start
        return True, f"{self.name}: found after {seed[1]} seeds, {took:.1f} s: {seed[2]}"


def main():
    root, build = map(os.path.abspath, sys.argv[1:3])
    folder = os.path.join(root, "tests", "sim", "bugs")
    names = sys.argv[3:] or sorted(n[:-6] for n in os.listdir(folder) if n.endswith(".patch"))
    made = Build(root, build)
    bugs = [Bug(made, os.path.join(folder, name + ".patch")) for name in names]
    failed = 0
    jobs = int(os.environ.get("JOBS", os.cpu_count() or 1))
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for found, line in pool.map(Bug.find, bugs):
            print(line, flush=True)
            failed += not found
    print(f"{len(bugs) - failed} of {len(bugs)} planted bugs are found")
    sys.exit(failed != 0)


if __name__ == "__main__":
    main()
