#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""mute.py NEEDLE PORT...: a network that loses an answer.

For each server port it listens on one of its own and says which, in one line in their order. Everything passes, until a client
sends the needle for the first time: nothing that the server says after that goes back on that connection, and "heard I" is
printed, with the place of the server in the list. When a server closes, so does the client's side.
"""
import select
import socket
import sys


def main():
    needle = sys.argv[1].encode()
    targets = [int(port) for port in sys.argv[2:]]
    listeners = []
    for _ in targets:
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        listener.listen(16)
        listeners.append(listener)
    print(*(f"127.0.0.1:{s.getsockname()[1]}" for s in listeners), flush=True)
    peers, place, from_client, muted = {}, {}, set(), set()
    heard = False

    def drop(sock):
        for end in (sock, peers[sock]):
            end.close()
        for end in (peers[sock], sock):
            peers.pop(end, None)
            muted.discard(end)
            from_client.discard(end)

    while True:
        for sock in select.select(listeners + list(peers), [], [])[0]:
            if sock in listeners:
                client, _ = sock.accept()
                try:
                    server = socket.create_connection(("127.0.0.1", targets[listeners.index(sock)]))
                except OSError:
                    client.close()
                    continue
                peers[client], peers[server] = server, client
                from_client.add(client)
                place[client] = listeners.index(sock)
                continue
            if sock not in peers:
                continue
            try:
                data = sock.recv(65536)
                if sock in from_client and not heard and needle in data:
                    heard = True
                    muted.add(peers[sock])
                    print(f"heard {place[sock]}", flush=True)
                if data and sock not in muted:
                    peers[sock].sendall(data)
            except OSError:
                data = b""
            if not data:
                drop(sock)


main()
