#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Servers for one measurement each: on loopback and a free port, in a folder of their own, gone at the end.

Each function is a context manager that gets a Place and gives a Server.
"""

import contextlib
import ctypes
import dataclasses
import glob
import os
import shutil
import signal
import socket
import subprocess
import time

from measure import Failed

READY_SECONDS = 180
PR_SET_PDEATHSIG = 1
LOOPBACK = "127.0.0.1"
NOBODY = "nobody"  # who runs a PostgreSQL where we are root: it refuses to


@dataclasses.dataclass
class Place:
    """Where a server may put its files, and the program of ours."""

    folder: str
    millrace: str

    def path(self, name):
        return os.path.join(self.folder, name)


@dataclasses.dataclass
class Server:
    address: str
    pids: list


def free_port():
    with socket.socket() as free:
        free.bind((LOOPBACK, 0))
        return free.getsockname()[1]


def find(*names):
    """The first of these programs that there is."""
    for name in names:
        path = shutil.which(name, path=os.environ["PATH"] + ":/usr/sbin:/usr/local/sbin")
        if path:
            return path
    raise Failed(f"there is no {names[0]}: run scripts/setup.sh peers")


def die_with_us():
    """In the child: it does not outlive this program, however that ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


@contextlib.contextmanager
def process(place, command, stop=signal.SIGTERM, **options):
    """Runs it, in a group with what it starts; its output goes to a file named log in the place."""
    with open(place.path("log"), "a", encoding="utf-8") as log:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                 preexec_fn=die_with_us, start_new_session=True, **options)
    try:
        yield child
    finally:
        child.send_signal(stop)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(20)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)  # what is left of it
        child.wait()


def await_true(place, child, ready):
    end = time.monotonic() + READY_SECONDS
    while not ready():
        if child.poll() is not None or time.monotonic() > end:
            with open(place.path("log"), encoding="utf-8", errors="replace") as log:
                raise Failed(f"{child.args[0]} is not ready: {log.read()[-2000:]}")
        time.sleep(0.05)


def answers(port):
    def ready():
        with socket.socket() as probe:
            return probe.connect_ex((LOOPBACK, port)) == 0
    return ready


def logged(place, text):
    def ready():
        with open(place.path("log"), encoding="utf-8", errors="replace") as log:
            return text in log.read()
    return ready


@contextlib.contextmanager
def on_port(place, command, port, **options):
    """A server that is one process and is there when its port is."""
    with process(place, command, **options) as child:
        await_true(place, child, answers(port))
        yield Server(f"{LOOPBACK}:{port}", [child.pid])


# ---- ours -------------------------------------------------------------------------------------------


@contextlib.contextmanager
def millrace_folder(place):
    yield Server(f"file:{place.path('store')}", [])


@contextlib.contextmanager
def millrace_server(place):
    port, http = free_port(), free_port()
    command = [place.millrace, "serve", "--data", place.path("data"), "--grpc", f"{LOOPBACK}:{port}",
               "--listen", f"{LOOPBACK}:{http}"]
    with process(place, command) as child:
        await_true(place, child, logged(place, "ready "))
        yield Server(f"millrace://{LOOPBACK}:{port}", [child.pid])


# ---- what several of them stand on ------------------------------------------------------------------


@contextlib.contextmanager
def redis(place, fsync, prefix=""):
    """With an append-only file, which is synced as fsync says."""
    port = free_port()
    # Where only the tools of Redis are installed, one of them is the server under another name.
    program = find("redis-server", "redis-check-rdb")
    command = ["redis-server", "--port", str(port), "--bind", LOOPBACK, "--dir", place.folder, "--save", "",
               "--appendonly", "yes", "--appendfsync", fsync]
    with on_port(place, command, port, executable=program) as server:
        server.address = prefix + server.address
        yield server


def redis_for_millrace(place, fsync):
    return redis(place, fsync, prefix="redis://")


@contextlib.contextmanager
def postgres(place, synchronous_commit):
    folders = sorted(glob.glob("/usr/lib/postgresql/*/bin"), key=lambda path: int(path.split("/")[-2]))
    folder = folders[-1] if folders else os.path.dirname(find("postgres"))
    home = place.path("postgres")
    os.mkdir(home, 0o700)
    user = {}
    if os.geteuid() == 0:
        shutil.chown(home, NOBODY)
        user = {"user": NOBODY, "group": "nogroup", "extra_groups": []}
    data = os.path.join(home, "data")
    init = [f"{folder}/initdb", "-D", data, "-U", "mill", "-A", "trust", "-E", "UTF8", "--locale=C"]
    subprocess.run(init, check=True, stdout=subprocess.DEVNULL, cwd="/", **user)
    port = free_port()
    command = [f"{folder}/postgres", "-D", data, "-k", home, "-p", str(port), "-c", f"listen_addresses={LOOPBACK}",
               "-c", f"synchronous_commit={synchronous_commit}"]
    with process(place, command, stop=signal.SIGINT, cwd="/", **user) as child:
        await_true(place, child, logged(place, "ready to accept connections"))
        yield Server(f"postgresql://mill@{LOOPBACK}:{port}/postgres", [child.pid])


# ---- peers with a server of their own ---------------------------------------------------------------


def beanstalkd(place, sync_ms=None):
    """sync_ms: None for no log at all, else how often it is synced; 0 is at each write."""
    port = free_port()
    command = [find("beanstalkd"), "-l", LOOPBACK, "-p", str(port)]
    if sync_ms is not None:
        os.mkdir(place.path("log.d"))
        command += ["-b", place.path("log.d"), "-f", str(sync_ms)]
    return on_port(place, command, port)


def gearmand(place, database=None):
    port = free_port()
    with open(place.path("gearmand.conf"), "w", encoding="utf-8"):
        pass  # not the machine's
    command = [find("gearmand"), "-L", LOOPBACK, "-p", str(port), "-b", "1024", "-l", "stderr", "-P", place.path("pid"),
               "--config-file", place.path("gearmand.conf")]
    if os.geteuid() == 0:
        command += ["-u", "root"]
    if database:
        command += ["-q", "libsqlite3", "--libsqlite3-db", place.path(database)]
    return on_port(place, command, port)


def nats(place, settings=""):
    port = free_port()
    with open(place.path("nats.conf"), "w", encoding="utf-8") as config:
        config.write(f"listen: \"{LOOPBACK}:{port}\"\n"
                     f"jetstream {{\n  store_dir: \"{place.path('jetstream')}\"\n  {settings}\n}}\n")
    return on_port(place, [find("nats-server"), "-c", place.path("nats.conf")], port)


@contextlib.contextmanager
def rabbitmq(place, kind):
    """With a port mapper of its own, so that nobody's Erlang is met."""
    port, mapper_port, node_port = free_port(), free_port(), free_port()
    programs = sorted(glob.glob("/usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin/rabbitmq-server"))
    if not programs:
        raise Failed("there is no rabbitmq-server: run scripts/setup.sh peers")
    environment = {
        **os.environ, "HOME": place.folder, "ERL_EPMD_PORT": str(mapper_port), "ERL_EPMD_ADDRESS": LOOPBACK,
        "RABBITMQ_NODENAME": "peers@localhost", "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_NODE_IP_ADDRESS": LOOPBACK, "RABBITMQ_DIST_PORT": str(node_port),
        "RABBITMQ_MNESIA_BASE": place.path("mnesia"), "RABBITMQ_LOG_BASE": place.path("logs"),
        "RABBITMQ_PID_FILE": place.path("pid"), "RABBITMQ_CONFIG_FILE": place.path("none"),
        "RABBITMQ_CONF_ENV_FILE": place.path("none"), "RABBITMQ_ENABLED_PLUGINS_FILE": place.path("plugins"),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
    }
    mapper = [find("epmd"), "-port", str(mapper_port), "-address", LOOPBACK]
    with process(place, mapper, env=environment):
        with on_port(place, [programs[-1]], port, env=environment) as server:
            server.address = f"{kind}@{server.address}"
            yield server
