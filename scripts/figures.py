#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds what `millrace bench` measures against the figures that were promised.

The limits stand here, and are not taken from the program that is judged.

    figures.py PROGRAM all      every figure at full size; what a busy machine can spoil is measured up
                                to three times, and once must be enough
    figures.py PROGRAM sample   at a small size, and only what no noise can spoil

Stores are made in the current folder and removed at the end. The rows on a Redis are measured on one of
our own: nothing is kept on disk, so that what the disk does is not measured.
"""

import contextlib
import json
import shutil
import socket
import subprocess
import sys
import tempfile
import time

TRIES = 3
SIZES = {
    "all": [],
    "sample": ["--seconds", "1", "--tasks", "200000"],
}

# 100 000 tasks are due over 10 s.
LONGER = {"all": {"lateness-p99": ["--seconds", "10"], "redis-lateness-p99": ["--seconds", "10"]}}

# The promise by row.
LIMITS = {
    "enqueue-batch": lambda row: row["ratio"] >= 0.6,
    "enqueue-threads": lambda row: row["ratio"] >= 10,
    "process-small": lambda row: row["value"] >= 250_000,
    "process": lambda row: row["value"] >= 250_000 and row["ratio"] >= 0.9,
    "latency-p99": lambda row: row["value"] <= row["yardstick_value"] + 0.3,
    "snapshot-p99": lambda row: row["ratio"] <= 3,
    "disk": lambda row: row["ratio"] <= 1,
    "lateness-p99": lambda row: row["value"] <= 5,
    "memory": lambda row: row["value"] <= 128,
    "restart": lambda row: row["value"] <= 5,
    "idle-cpu": lambda row: row["value"] < 0.5,
    "job-create": lambda row: row["ratio"] >= 0.5,
    "job-parts": lambda row: row["value"] >= 10_000,
    "job-cold": lambda row: row["ratio"] >= 0.9,
    # At a server in a process of its own, over gRPC.
    "server-enqueue-batch": lambda row: row["value"] >= 400_000,
    "server-enqueue-unary": lambda row: row["value"] >= 60_000,
    "server-process": lambda row: row["value"] >= 150_000,
    "server-latency-p99": lambda row: row["value"] <= row["yardstick_value"] + 1,
    "server-idle-workers": lambda row: row["value"] < 200,
    "server-idle-cpu": lambda row: row["value"] < 2,
    "server-start": lambda row: row["value"] <= 1,
    "timer-operations": lambda row: row["value"] >= 20_000,
    "timer-applied": lambda row: row["value"] <= 5,
    "job-readers": lambda row: row["ratio"] >= 0.95,
    # Of nameservers.
    "names-workers": lambda row: row["value"] < 100,
    "names-cpu": lambda row: row["value"] < 5,
    "names-lookup-p99": lambda row: row["value"] < 1,
    "names-heal": lambda row: row["ratio"] <= 2,
    # Over HTTP.
    "http-enqueue": lambda row: row["value"] >= 50_000,
    "http-list-p99": lambda row: row["value"] <= 10,
    "http-events": lambda row: row["value"] < 10,
    "http-queues": lambda row: row["ratio"] >= 0.5,
    # On a Redis.
    "redis-enqueue-batch": lambda row: row["ratio"] >= 0.7,
    "redis-process": lambda row: row["ratio"] >= 0.7,
    "redis-latency-p99": lambda row: row["value"] <= 2,
    "redis-lateness-p99": lambda row: row["value"] <= 10,
    "redis-memory": lambda row: row["value"] <= 626 * 1.1,
    "redis-idle-commands": lambda row: row["value"] < 5,
    "redis-idle-cpu": lambda row: row["value"] < 1,
    "redis-recovery": lambda row: row["value"] <= 15 + 1,
}

# Not a matter of luck: one miss is a miss.
SURE = {
    "memory": LIMITS["memory"],
    "disk": LIMITS["disk"],
    "lateness-p99": lambda row: row["note"].endswith(" 0 early"),
    "server-idle-workers": LIMITS["server-idle-workers"],
    "names-workers": LIMITS["names-workers"],
    "redis-lateness-p99": lambda row: row["note"].endswith(" 0 early"),
    "redis-memory": LIMITS["redis-memory"],
}
SAMPLE = {**SURE, "restart": LIMITS["restart"], "server-start": LIMITS["server-start"]}


@contextlib.contextmanager
def own_redis():
    """A Redis on a free port, in a folder of its own; its URL."""
    # Where only the tools of Redis are installed, one of them is the server under another name.
    program = shutil.which("redis-server") or shutil.which("redis-check-rdb")
    if program is None:
        sys.exit("figures: there is no redis-server")
    with tempfile.TemporaryDirectory() as folder:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        options = ["--port", port, "--bind", "127.0.0.1", "--dir", folder, "--save", "", "--appendonly", "no"]
        server = subprocess.Popen(["redis-server", *options], executable=program, stdout=subprocess.DEVNULL)
        try:
            while subprocess.run(["redis-cli", "-p", port, "ping"], capture_output=True).returncode:
                if server.poll() is not None:
                    sys.exit("figures: the Redis did not start")
                time.sleep(0.05)
            yield f"redis://127.0.0.1:{port}"
        finally:
            server.kill()
            server.wait()


def bench(program, size, names, *options):
    rows = []
    longer = [name for name in names if name in LONGER.get(size, {})]
    for group in [[name for name in names if name not in longer], *([name] for name in longer)]:
        if group:
            command = [program, "bench", "--json", *SIZES[size], *LONGER.get(size, {}).get(group[0], []), *options]
            for name in group:
                command += ["--only", name]
            rows += json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    return rows


def measure(program, size, names):
    """The rows of these names, each also said in words."""
    on_redis = [name for name in names if name.startswith("redis-")]
    rows = bench(program, size, [name for name in names if name not in on_redis])
    if on_redis:
        with own_redis() as url:
            rows += bench(program, size, on_redis, "--broker", url)
    rows = [row for row in rows if row["name"] in names]
    missing = set(names) - {row["name"] for row in rows}
    if missing:
        sys.exit(f"figures: not measured: {', '.join(sorted(missing))}")
    for row in rows:
        print(
            f"{row['name']:20} {row['value']:14.4f} {row['unit']:18} "
            f"{row['ratio']:8.3f} x {row['yardstick']} ({row['yardstick_value']:.4f}); {row['note']}",
            flush=True,
        )
    return rows


def missed(rows, limits):
    return [row["name"] for row in rows if row["name"] in limits and not limits[row["name"]](row)]


def run(program, size):
    limits = SAMPLE if size == "sample" else LIMITS
    left = list(limits)
    for attempt in range(1, TRIES + 1):
        print(f"== try {attempt} of {TRIES}: {' '.join(left)}", flush=True)
        rows = measure(program, size, left)
        wrong = missed(rows, SURE)
        if wrong:
            sys.exit(f"figures: missed, which no noise explains: {', '.join(wrong)}")
        left = missed(rows, limits)
        if not left:
            print("figures: all met")
            return
    sys.exit(f"figures: missed {TRIES} times: {', '.join(left)}")


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[2] not in SIZES:
        sys.exit(__doc__)
    run(sys.argv[1], sys.argv[2])
