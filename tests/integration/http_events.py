#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What http_events.sh asks of /events."""

import os
import socket
import subprocess
import time

from events_lib import MILLRACE, WAIT_S, Reader, api, check

QUEUES = 700  # more than a stuck reader's buffers hold
READERS = 50


def enqueue(*queues):
    for answer in api("/tasks", [{"queue": queue} for queue in queues]):
        check("id" in answer, answer)


class Stream(Reader):
    """A reader of everything."""

    def __init__(self, after=None, token=None, query="", small=False):
        super().__init__(f"/events{query}", after, token, small)

    def ready(self):
        self.until(lambda s: any(name == "ready" for _, name, _ in s.events), "ready")
        return self

    def queue(self, name):
        """The newest of a queue; None: there is none, or it went."""
        for _, kind, data in reversed(self.events):
            if kind in ("queue", "queue_removed") and data["queue"] == name:
                return data if kind == "queue" else None
        return None

    def last_id(self):
        return max(id for id, _, _ in self.events if id is not None)


def has(name, pending):
    return lambda s: (s.queue(name) or {}).get("pending") == pending


def nodes_of(stream, state):
    return [data for _, name, data in stream.events if name == "node" and data["state"] == state]


def is_open(port):
    """Whether the server's end of the connection from this port of ours is."""
    with open("/proc/net/tcp", encoding="ascii") as table:
        rows = [line.split() for line in table.readlines()[1:]]
    return any(int(row[2].rsplit(":", 1)[1], 16) == port and row[3] == "01" for row in rows)


def first_sight():
    """Everything there is comes before ready, once each; ids rise."""
    enqueue("a", "b")
    stream = Stream().ready()
    names = [name for _, name, _ in stream.events]
    check(names[0] == "start" and names[-1] == "ready", f"its frame: {names}")
    check(names.count("queue") == 2 and names.count("server") == 1 and names.count("leader") == 1, f"{names}")
    check(stream.queue("a")["pending"] == 1, "a figure")
    check(stream.queue("a").keys() == api("/queues/a").keys(), "a queue is the same object as elsewhere")
    ids = [id for id, _, _ in stream.events if id is not None]
    check(ids == sorted(set(ids)), f"ids {ids}")
    check(Stream(after=1).ready().events[0][1] == "start", "one of a server before this one begins anew")
    return stream


def changes(stream):
    enqueue("a", "a", "c")
    stream.until(has("a", 3), "a figure that changes")
    stream.until(has("c", 1), "a queue that comes")
    api("/queues/a", {"assign": "consistent-hash"}, method="PATCH")
    stream.until(lambda s: s.queue("a")["assign"] == "consistent-hash", "a setting that changes")
    api("/queues/c?force=true", method="DELETE")
    stream.until(lambda s: s.events[-1][1] == "queue_removed", "a queue that goes")
    worker = subprocess.Popen([MILLRACE, "--quiet", "work", "-q", "w", "-c", "1", "--", "true"])
    stream.until(lambda s: nodes_of(s, "live"), "a node that comes")
    check(nodes_of(stream, "live")[0]["queues"] == ["w"], "its queues")
    stream.until(lambda s: any(n == "leader" and d["node"] for _, n, d in s.events), "a leader")
    worker.terminate()
    worker.wait()
    stream.until(lambda s: nodes_of(s, "gone"), "a node that goes")


def comes_back(stream):
    """With the last id it goes on; with one of another life it begins anew."""
    other = Stream().ready()
    last = other.last_id()
    other.socket.close()
    enqueue("b", "goes")
    stream.until(has("goes", 1), "while it is away")
    api("/queues/goes?force=true", method="DELETE")
    stream.until(lambda s: s.queue("goes") is None and s.queue("b")["pending"] == 2, "while it is away")
    again = Stream(after=last)
    again.until(has("b", 2), "it comes back")
    again.until(lambda s: any(d.get("queue") == "goes" for _, n, d in s.events if n == "queue_removed"), "what went")
    check(all(id is not None and id > last for id, _, _ in again.events), f"it has that already: {again.events}")
    check(again.queue("a") is None, "what has not changed is not told again")
    for id in (1, last + 10**9, "x"):
        check(Stream(after=id).ready().events[0][1] == "start", f"begins anew behind {id}")


def tokens(stream):
    enqueue("few1", "secret")
    stream.until(has("secret", 1), "for everybody")
    stream.until(has("few1", 1), "the same")
    some = Stream(token=os.environ["EVENTS_TOKEN"]).ready()
    check({d["queue"] for _, n, d in some.events if n == "queue"} == {"few1"}, f"not its own: {some.events}")
    check(not [n for _, n, _ in some.events if n == "leader"], "a leader is of all queues")
    only = Stream(query="?queue=f*").ready()
    check({d["queue"] for _, n, d in only.events if n == "queue"} == {"few1"}, f"a pattern: {only.events}")
    subprocess.run([MILLRACE, "--quiet", "token", "revoke", os.environ["EVENTS_TOKEN_ID"]], check=True)
    some.until(lambda s: s.closed, "a token that was revoked")


def many(stream):
    """All of them see it, the stuck one beside them or not."""
    readers = [Stream(query="?queue=m*").ready() for _ in range(READERS)]
    enqueue("m")
    for reader in readers:
        reader.until(has("m", 1), "one of many")
    stream.until(has("m", 1), "and who was there before")
    for reader in readers:
        reader.socket.close()


def main():
    stream = first_sight()
    changes(stream)
    comes_back(stream)
    tokens(stream)
    enqueue(*(f"q{i:04}-{'x' * 60}" for i in range(QUEUES)))
    stream.until(lambda s: sum(n == "queue" and d["queue"][0] == "q" for _, n, d in s.events) >= QUEUES, "many queues")
    stuck = Stream(small=True)
    many(stream)
    stream.until(lambda s: s.comments > 0, "a word now and then")
    deadline, port = time.monotonic() + WAIT_S, stuck.socket.getsockname()[1]
    while is_open(port):
        check(time.monotonic() < deadline, "the stuck reader is still there")
        time.sleep(0.1)
    stuck.until(lambda s: s.closed, "what was on its way")
    check(not any(name == "ready" for _, name, _ in stuck.events), "it was not stuck")
    enqueue("a")
    stream.until(has("a", 4), "everybody else goes on")


main()
