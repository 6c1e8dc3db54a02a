#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What job_events.sh asks of the events of a job: acceptance test 108."""

import os
import selectors
import socket
import subprocess
import time

from events_lib import MILLRACE, WAIT_S, Reader, api, check

PARTS = 100
MORE_PARTS = 300  # one by one, of which a thousand readers may not see every version
READERS = 1000
KEEP_ALIVE_S = 15
CREDIT, CREDIT_S = 64 << 20, 1 << 20  # what many readers are told of each version: bytes, and those of each second


def make_job(queue, n=PARTS):
    parts = [f"part {i}" for i in range(n)]
    return api("/jobs", {"parts": parts, "queue": queue, "reduce": "lines"})["id"]


class Stream(Reader):
    """A reader of the events of a job."""

    def __init__(self, job, after=None, token=None, small=False):
        super().__init__(f"/jobs/{job}/events", after, token, small)

    def ids(self):
        return [event[0] for event in self.events]

    def to_end(self, what):
        self.until(lambda s: s.closed, what) if not self.closed else None


def whole(stream, what):
    """A stream that was there until the end: every version, progress that never goes back, one end."""
    ids = stream.ids()
    check(ids == list(range(ids[0], ids[0] + len(ids))), f"{what}: ids {ids}")
    kinds = [event[1] for event in stream.events]
    check(kinds == ["progress"] * (len(kinds) - 1) + ["end"], f"{what}: events {kinds}")
    done = [event[2]["done"] for event in stream.events]
    check(done == sorted(done) and done[-1] == PARTS, f"{what}: done {done}")
    check(stream.events[-1][2]["state"] == "succeeded", f"{what}: {stream.events[-1]}")


def worker(queue, command, slots=2):
    broker = ["--quiet", "work", "-q", queue, "-c", str(slots), "--", "sh", "-c", command]
    return subprocess.Popen([MILLRACE] + broker, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def read_all(streams, deadline):
    """All of them to their ends."""
    with selectors.DefaultSelector() as selector:
        for stream in streams:
            stream.socket.setblocking(False)
            selector.register(stream.socket, selectors.EVENT_READ, stream)
        left = len(streams)
        while left > 0:
            check(time.monotonic() < deadline, f"{left} streams did not end")
            for key, _ in selector.select(1):
                key.data.take()
                if key.data.closed:
                    selector.unregister(key.fileobj)
                    left -= 1


def one_job():
    """Before the start, at 40 %, again after a break."""
    job = make_job("one")
    first, leaves = Stream(job), Stream(job)
    first.until(lambda s: s.events, "before the start")
    check(first.events[0][2]["state"] == "created", f"the snapshot: {first.events[0]}")
    process = worker("one", "cat; sleep 0.02")
    leaves.until(lambda s: len(s.events) >= 3, "one that leaves")
    leaves.socket.close()
    first.until(lambda s: s.events[-1][2]["done"] >= PARTS * 4 // 10, "40 %")
    seen = first.events[-1][2]["done"]
    joins = Stream(job)
    joins.until(lambda s: s.events, "one that joins")
    check(joins.events[0][2]["done"] >= seen, f"one that joins: {joins.events[0]}")
    again = Stream(job, after=leaves.ids()[-1])
    for stream in (first, joins, again):
        stream.to_end("to the end")
    whole(first, "before the start")
    whole(joins, "one that joins")
    whole(again, "one that came back")
    check(leaves.ids() + again.ids() == first.ids(), "one that came back has missed some, or has some twice")
    late = Stream(job, after=first.ids()[-1])
    late.until(lambda s: s.closed, "after the end")
    check(late.status == 204 and not late.events, f"after the end: {late.status} {late.events}")
    unknown = Stream("01a1e36b-0000-7000-8000-000000000000")
    unknown.until(lambda s: s.closed, "unknown")
    check(unknown.status == 404, f"unknown: {unknown.status}")
    process.kill()
    process.wait()


def many_readers():
    """A thousand, and one that reads nothing."""
    job = make_job("many")
    stuck = Stream(job, small=True)
    streams = [Stream(job) for _ in range(READERS - 1)]
    for stream in streams:
        stream.until(lambda s: s.events, "the snapshot")
    began = time.monotonic()
    process = worker("many", "cat")
    read_all(streams, began + WAIT_S)
    for i, stream in enumerate(streams):
        whole(stream, f"reader {i}")
    check(stuck.status is None, "the one that is stuck has read something")
    for stream in streams + [stuck]:
        stream.socket.close()
    process.kill()
    process.wait()
    return sum(stream.taken for stream in streams)


def thinned(stream, what):
    """As whole, but that versions may be left out, if only the counters have changed."""
    ids = stream.ids()
    check(all(a < b for a, b in zip(ids, ids[1:])), f"{what}: ids {ids}")
    kinds = [event[1] for event in stream.events]
    check(kinds == ["progress"] * (len(kinds) - 1) + ["end"], f"{what}: events {kinds}")
    done = [event[2]["done"] for event in stream.events]
    check(done == sorted(done) and done[-1] == MORE_PARTS, f"{what}: done {done}")
    return {event[2]["state"]: event[0] for event in reversed(stream.events)}


def many_more_readers(before, began):
    """More versions than there is credit for, for so many: what it costs is bounded, with what was taken before, and each
    sees each state when it began, and the end."""
    job = make_job("more", MORE_PARTS)
    streams = [Stream(job) for _ in range(READERS)]
    for stream in streams:
        stream.until(lambda s: s.events, "the snapshot")
    process = worker("more", "cat; sleep 0.005", slots=1)
    read_all(streams, time.monotonic() + WAIT_S)
    states = [thinned(stream, f"reader {i}") for i, stream in enumerate(streams)]
    check(set(states[0]) == {"created", "running", "succeeded"}, f"states {states[0]}")
    check(all(seen == states[0] for seen in states), "readers have not seen the same changes of the state")
    told, credit = before + sum(stream.taken for stream in streams), CREDIT + CREDIT_S * (time.monotonic() - began)
    check(told < credit * 17 // 16, f"{told} bytes, of {credit}")
    for stream in streams:
        stream.socket.close()
    process.kill()
    process.wait()


def revoked(job):
    """A token that is revoked ends its streams."""
    stream = Stream(job, token=os.environ["EVENTS_TOKEN"])
    stream.until(lambda s: s.events, "with a token")
    subprocess.run([MILLRACE, "--quiet", "token", "revoke", os.environ["EVENTS_TOKEN_ID"]], check=True)
    stream.until(lambda s: s.closed, "a token that was revoked")
    refused = Stream(job, token=os.environ["EVENTS_TOKEN"])
    refused.until(lambda s: s.closed, "refused")
    check(refused.status == 401, f"refused: {refused.status}")


def main():
    quiet = Stream(make_job("idle"))
    quiet.until(lambda s: s.events, "a job that waits")
    began = time.monotonic()
    one_job()
    many_more_readers(many_readers(), began)
    revoked(make_job("idle"))
    quiet.socket.settimeout(max(0.1, began + KEEP_ALIVE_S - time.monotonic()))
    while quiet.comments == 0:
        quiet.take()


main()
