#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What is measured: one row each, with what an answer means there.

`kept` is how an acknowledged task is kept, by which rows are compared: "synced" (on disk before the answer),
"later" (written, and synced some time after the answer) or "memory". `acknowledged` says it in words, and `ended`
says what is known of the end of a task when the worker goes on.
"""

import dataclasses
import functools
import typing

import servers


@dataclasses.dataclass
class Subject:
    key: str
    name: str
    server: typing.Callable
    client: str  # of C; of Node where it ends in .mjs
    kept: str
    acknowledged: str
    ended: str
    ours: bool = False

    @property
    def base(self):
        """What it stands on that another one stands on, too; empty: on nothing."""
        for word in ("Redis", "PostgreSQL"):
            if self.name.endswith(f" on {word}"):
                return word
        return ""


KEPT = {"synced": "synced before the answer", "later": "synced some time after the answer", "memory": "in memory"}

with_server = functools.partial
ALWAYS, EACH_SECOND = "append-only file, fsync always", "append-only file, fsync each second"
SAME = "answered, kept alike"

SUBJECTS = [
    # Synced before the answer.
    Subject("millrace-file", "Millrace, embedded", servers.millrace_folder, "millrace", "synced",
            "group commit, fdatasync", SAME, ours=True),
    Subject("beanstalkd-sync", "beanstalkd -b -f 0", with_server(servers.beanstalkd, sync_ms=0), "beanstalkd", "synced",
            "log, fsync at each write", SAME),
    Subject("gearmand-sqlite", "gearmand, SQLite queue", with_server(servers.gearmand, database="queue.db"), "gearmand",
            "synced", "SQLite, a transaction each", "not answered"),
    Subject("millrace-server", "Millrace, server by gRPC", servers.millrace_server, "millrace", "synced",
            "group commit, fdatasync", SAME, ours=True),
    Subject("rabbitmq-classic", "RabbitMQ, classic queue", with_server(servers.rabbitmq, kind="classic"), "rabbitmq",
            "synced", "persistent, confirmed; synced in groups", "not answered"),
    Subject("rabbitmq-quorum", "RabbitMQ, quorum queue", with_server(servers.rabbitmq, kind="quorum"), "rabbitmq", "synced",
            "Raft log of one node, confirmed", "not answered"),
    Subject("millrace-redis-always", "Millrace on Redis", with_server(servers.redis_for_millrace, fsync="always"),
            "millrace", "synced", ALWAYS, SAME, ours=True),
    Subject("bullmq-always", "BullMQ on Redis", with_server(servers.redis, fsync="always"), "bullmq.mjs", "synced",
            ALWAYS, SAME),
    Subject("bee-queue-always", "bee-queue on Redis", with_server(servers.redis, fsync="always"), "bee-queue.mjs", "synced",
            ALWAYS, SAME),
    Subject("graphile-worker-on", "graphile-worker on PostgreSQL", with_server(servers.postgres, synchronous_commit="on"),
            "graphile-worker.mjs", "synced", "synchronous_commit on", SAME),
    Subject("pg-boss-on", "pg-boss on PostgreSQL", with_server(servers.postgres, synchronous_commit="on"), "pg-boss.mjs",
            "synced", "synchronous_commit on", SAME),
    # Synced later.
    Subject("millrace-redis-second", "Millrace on Redis", with_server(servers.redis_for_millrace, fsync="everysec"),
            "millrace", "later", EACH_SECOND, SAME, ours=True),
    Subject("beanstalkd-log", "beanstalkd -b", with_server(servers.beanstalkd, sync_ms=50), "beanstalkd", "later",
            "log, fsync each 50 ms", SAME),
    Subject("nats", "NATS JetStream", servers.nats, "nats", "later", "file store, fsync each 2 minutes", "not answered"),
    Subject("bullmq-second", "BullMQ on Redis", with_server(servers.redis, fsync="everysec"), "bullmq.mjs", "later",
            EACH_SECOND, SAME),
    Subject("bee-queue-second", "bee-queue on Redis", with_server(servers.redis, fsync="everysec"), "bee-queue.mjs",
            "later", EACH_SECOND, SAME),
    Subject("graphile-worker-off", "graphile-worker on PostgreSQL",
            with_server(servers.postgres, synchronous_commit="off"), "graphile-worker.mjs", "later",
            "synchronous_commit off", SAME),
    Subject("pg-boss-off", "pg-boss on PostgreSQL", with_server(servers.postgres, synchronous_commit="off"), "pg-boss.mjs",
            "later", "synchronous_commit off", SAME),
    # In memory.
    Subject("beanstalkd", "beanstalkd", servers.beanstalkd, "beanstalkd", "memory", "memory", SAME),
    Subject("gearmand", "gearmand", servers.gearmand, "gearmand", "memory", "memory", "not answered"),
]
