#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds what `millrace bench` measures against the figures that were promised.

The limits stand here, and are not taken from the program that is judged.

    figures.py PROGRAM all      every figure at full size; what a busy machine can spoil is measured up
                                to three times, and once must be enough
    figures.py PROGRAM sample   at a small size, and only what no noise can spoil

Stores are made in the current folder and removed at the end.
"""

import json
import subprocess
import sys

TRIES = 3
SIZES = {
    "all": ["--seconds", "10"],  # 100 000 tasks due over 10 s
    "sample": ["--seconds", "1", "--tasks", "200000"],
}

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
    # At a server in a process of its own, over gRPC.
    "server-enqueue-batch": lambda row: row["value"] >= 400_000,
    "server-enqueue-unary": lambda row: row["value"] >= 60_000,
    "server-process": lambda row: row["value"] >= 150_000,
    "server-latency-p99": lambda row: row["value"] <= row["yardstick_value"] + 1,
    "server-idle-workers": lambda row: row["value"] < 200,
    "server-idle-cpu": lambda row: row["value"] < 2,
    "server-start": lambda row: row["value"] <= 1,
}

# Not a matter of luck: one miss is a miss.
SURE = {
    "memory": LIMITS["memory"],
    "disk": LIMITS["disk"],
    "lateness-p99": lambda row: row["note"].endswith(" 0 early"),
    "server-idle-workers": LIMITS["server-idle-workers"],
}
SAMPLE = {**SURE, "restart": LIMITS["restart"], "server-start": LIMITS["server-start"]}


def measure(program, size, names):
    """The rows of these names, each also said in words."""
    command = [program, "bench", "--json", *SIZES[size]]
    for name in names:
        command += ["--only", name]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    rows = [row for row in json.loads(done.stdout) if row["name"] in names]
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
