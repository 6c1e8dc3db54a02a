#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs a client for one phase, and reads the CPU time of all that took part in it.

Processes are found by their parents, so what a server starts belongs to it.
"""

import json
import os
import select
import subprocess

TICKS = os.sysconf("SC_CLK_TCK")
PATIENCE = 120  # seconds beyond the phase, until a client is given up


class Failed(Exception):
    """A client or a server did not do what it should."""


def read_stat(pid):
    """(parent, CPU seconds of it and of its children that are gone), or None when it is gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return None
    return int(fields[1]), sum(int(field) for field in fields[11:15]) / TICKS


def tree_cpu(roots):
    """CPU seconds of these processes and all below them."""
    stats = {int(name): read_stat(name) for name in os.listdir("/proc") if name.isdigit()}
    stats = {pid: stat for pid, stat in stats.items() if stat}
    children = {}
    for pid, (parent, _) in stats.items():
        children.setdefault(parent, []).append(pid)
    total, left = 0.0, [pid for pid in roots if pid in stats]
    while left:
        pid = left.pop()
        total += stats[pid][1]
        left += children.get(pid, [])
    return total


def machine_cpu():
    """CPU seconds that the whole machine has spent; what a hypervisor gave to others is among them."""
    with open("/proc/stat", encoding="utf-8") as file:
        user, nice, system, _idle, _wait, irq, soft, steal = map(int, file.readline().split()[1:9])
    return (user + nice + system + irq + soft + steal) / TICKS


def read_line(client, seconds):
    """One line of the client, which ends or is silent otherwise."""
    if not select.select([client.stdout], [], [], seconds)[0]:
        raise Failed("it says nothing")
    line = client.stdout.readline().strip()
    if not line:
        raise Failed("it has ended")
    return line


def run_phase(command, phase, log, server_pids):
    """phase: (name, seconds, tasks). Tasks, seconds, CPU seconds of all, and CPU seconds of others beside it."""
    name, seconds, tasks = phase
    arguments = [*command, name, str(seconds), str(tasks)]
    with open(log, "a", encoding="utf-8") as errors:
        client = subprocess.Popen(
            arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True)
    try:
        if read_line(client, PATIENCE) != "ready":
            raise Failed("it is not ready")
        pids = [client.pid, *server_pids]
        before, machine_before = tree_cpu(pids), machine_cpu()
        client.stdin.write("go\n")
        client.stdin.flush()
        result = json.loads(read_line(client, seconds + PATIENCE))
        result["cpu"] = tree_cpu(pids) - before
        result["others"] = max(0.0, machine_cpu() - machine_before - result["cpu"])
        client.stdin.close()
        if client.wait(PATIENCE) != 0:
            raise Failed("it failed")
        return result
    except (Failed, ValueError, OSError, subprocess.TimeoutExpired) as error:
        client.kill()
        client.wait()
        with open(log, encoding="utf-8", errors="replace") as errors:
            said = errors.read()[-2000:]
        raise Failed(f"{' '.join(arguments)}: {error}\n{said}") from error
    finally:
        client.stdout.close()
