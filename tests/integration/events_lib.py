#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What tests of event streams share: calls of the API, and a reader of a stream."""

import json
import os
import socket
import sys
import urllib.request

HOST, PORT = os.environ["EVENTS_HTTP"].rsplit(":", 1)
MILLRACE = os.environ["MILLRACE"]
WAIT_S = 60


def check(fine, what):
    if not fine:
        sys.exit(f"FAILED: {what}")


def api(path, body=None, method=None):
    data = json.dumps(body).encode() if body is not None else None
    request = urllib.request.Request(f"http://{HOST}:{PORT}/api/v1{path}", data, method=method)
    with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
        return json.load(answer)


class Reader:
    """A connection to a stream, and what has come over it: events as (id or None, name, data)."""

    def __init__(self, path, after=None, token=None, small=False):
        self.bytes, self.events, self.comments, self.closed, self.status = b"", [], 0, False, None
        self.taken = 0  # bytes, in all
        self.socket = socket.socket()
        if small:  # it will not read; nobody must hold much for it
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        self.socket.settimeout(WAIT_S)
        self.socket.connect((HOST, int(PORT)))
        lines = [f"GET /api/v1{path} HTTP/1.0", "Accept: text/event-stream"]
        if after is not None:
            lines.append(f"Last-Event-ID: {after}")
        if token is not None:
            lines.append(f"Authorization: Bearer {token}")
        self.socket.sendall("\r\n".join(lines + ["", ""]).encode())

    def take(self):
        """Reads what there is, or waits for it."""
        try:
            more = self.socket.recv(256 * 1024)
        except ConnectionError:
            more = b""
        self.closed = not more
        self.taken += len(more)
        self.bytes += more
        if self.status is None and b"\r\n\r\n" in self.bytes:
            head, self.bytes = self.bytes.split(b"\r\n\r\n", 1)
            self.status = int(head.split()[1])
        *blocks, self.bytes = self.bytes.split(b"\n\n") if self.status else [self.bytes]
        for block in blocks:
            self.block(block.decode())

    def block(self, text):
        if text.startswith(":"):
            self.comments += 1
            return
        fields = dict(line.split(": ", 1) for line in text.split("\n"))
        self.events.append((int(fields["id"]) if "id" in fields else None, fields["event"], json.loads(fields["data"])))

    def until(self, done, what):
        """Reads until done(self)."""
        self.socket.settimeout(WAIT_S)
        while not done(self):
            check(not self.closed, f"{what}: the stream ended")
            try:
                self.take()
            except TimeoutError:
                check(False, f"{what}: nothing came; last {self.events[-3:]}")
