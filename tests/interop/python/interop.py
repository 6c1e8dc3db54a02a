#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A standard gRPC client, made from the .proto files alone, against a running server.

Usage: interop.py PROTO_DIR ADDRESS [--tls CA CERT KEY] [--token FILE]

Producer, worker, viewer, health and reflection; prints one line per check and exits 1 at the first that
fails. The interpreter is Debian's, which has python3-grpcio and python3-grpc-tools.
"""

import argparse
import os
import queue
import sys
import tempfile
import threading
import time

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from grpc_tools import protoc

PATIENCE = 60


# ---- from .proto to classes ------------------------------------------------------------------------


def compile_stubs(proto_dir, out):
    names = sorted(os.listdir(os.path.join(proto_dir, "millrace/v1")))
    files = ["millrace/v1/" + name for name in names if name.endswith(".proto")]
    done = protoc.main(
        ["protoc", "-I" + proto_dir, "--python_out=" + out, "--grpc_python_out=" + out] + files
    )
    assert done == 0, "protoc failed"
    sys.path.insert(0, out)


class Dynamic:
    """Classes from descriptors, for packages whose name ("grpc") the library itself has taken."""

    def __init__(self):
        self.pool = descriptor_pool.DescriptorPool()
        self.factory = message_factory.MessageFactory(self.pool)

    def add_compiled(self, proto_dir, out, path):
        binary = os.path.join(out, "set.bin")
        done = protoc.main(["protoc", "-I" + proto_dir, "--descriptor_set_out=" + binary, path])
        assert done == 0, "protoc failed"
        with open(binary, "rb") as file:
            for described in descriptor_pb2.FileDescriptorSet.FromString(file.read()).file:
                self.pool.Add(described)

    def kind(self, name):
        return self.factory.GetPrototype(self.pool.FindMessageTypeByName(name))


# ---- producer --------------------------------------------------------------------------------------


def code_of(call):
    """The status a call ends with, and the Code in its trailer."""
    try:
        call()
    except grpc.RpcError as error:
        trailers = dict(error.trailing_metadata() or ())
        return error.code(), trailers.get("millrace-code")
    return grpc.StatusCode.OK, None


def check_producer(t):
    tasks = t.tasks.Enqueue(
        t.pb.EnqueueRequest(
            tasks=[
                t.new_task(queue="py", id="py-1", payload=b"\x00\xff", headers={"k": b"v"}),
                t.new_task(queue="py", priority=5.0),
                t.new_task(queue="py", id="py-1"),
                t.new_task(queue="no{good"),
            ]
        )
    )
    codes = [result.code for result in tasks.results]
    assert codes == [t.task_pb.OK, t.task_pb.OK, t.task_pb.CONFLICT, t.task_pb.INVALID], codes
    assert tasks.results[0].state == t.task_pb.PENDING
    assert "queue" in tasks.results[3].message
    task = t.tasks.Get(t.pb.GetRequest(id="py-1"))
    assert task.payload == b"\x00\xff" and task.headers[0].value == b"v"
    assert code_of(lambda: t.tasks.Get(t.pb.GetRequest(id="nowhere"))) == (
        grpc.StatusCode.NOT_FOUND,
        "NOT_FOUND",
    )
    listed = t.tasks.List(t.pb.ListRequest(queue="py"))
    assert len(listed.tasks) == 2


def check_stream(t):
    def requests():
        for i in range(200):
            yield t.pb.EnqueueRequest(tasks=[t.new_task(queue="stream", id="s%d" % i)])

    ids = [answer.results[0].id for answer in t.tasks.EnqueueStream(requests())]
    assert ids == ["s%d" % i for i in range(200)]


def check_refused_in_stream(t):
    """A request that is refused is answered at its place, and the stream goes on."""
    good = t.pb.EnqueueRequest(tasks=[t.new_task(queue="stream")])
    many = t.pb.EnqueueRequest(tasks=[t.new_task()] * 1001)
    big = t.pb.EnqueueRequest(tasks=[t.new_task(payload=b"x" * (1 << 20)) for _ in range(5)])
    for compression in (grpc.Compression.NoCompression, grpc.Compression.Gzip):
        requests = iter([good, many, big, good])
        answers = list(t.tasks.EnqueueStream(requests, compression=compression))
        codes = [answer.code for answer in answers]
        assert codes == [t.task_pb.OK, t.task_pb.TOO_BIG, t.task_pb.TOO_BIG, t.task_pb.OK], codes
        assert "1001 tasks" in answers[1].message and not answers[1].results
        assert answers[3].results[0].code == t.task_pb.OK


def check_compressed(t):
    request = t.pb.EnqueueRequest(tasks=[t.new_task(queue="zip", payload=b"z" * 100000)])
    answer = t.tasks.Enqueue(request, compression=grpc.Compression.Gzip)
    assert answer.results[0].code == t.task_pb.OK


def check_too_big(t):
    big = t.pb.EnqueueRequest(tasks=[t.new_task(payload=b"x" * (1 << 20)) for _ in range(5)])
    status, _ = code_of(lambda: t.tasks.Enqueue(big))
    assert status == grpc.StatusCode.RESOURCE_EXHAUSTED, status
    fits = t.pb.EnqueueRequest(tasks=[t.new_task(queue="big", payload=b"x" * (1 << 20))])
    assert t.tasks.Enqueue(fits).results[0].code == t.task_pb.OK


def check_deadline(t):
    never = threading.Event()

    def silence():
        never.wait(PATIENCE)
        return
        yield  # makes it a generator

    status, _ = code_of(lambda: list(t.tasks.EnqueueStream(silence(), timeout=0.2)))
    never.set()
    assert status == grpc.StatusCode.DEADLINE_EXCEEDED, status


# ---- worker ----------------------------------------------------------------------------------------


class Worker:
    """One stream of Work.Attach."""

    def __init__(self, t, queue_name, incarnation, holds=(), types=()):
        self.t = t
        self.out = queue.Queue()
        self.call = t.work.Attach(iter(self.out.get, None))
        hello = t.work_pb.Hello(
            node="python",
            incarnation=incarnation,
            queues=[t.work_pb.QueueWeight(name=queue_name)],
            slots=4,
            lease_ms=15000,
            holds=holds,
            types=types,
        )
        self.say(hello=hello)
        self.welcome = self.hear("welcome")

    def say(self, **kind):
        self.out.put(self.t.work_pb.WorkerMessage(**kind))

    def hear(self, kind):
        message = next(self.call)
        assert message.WhichOneof("kind") == kind, message
        return getattr(message, kind)

    def take(self, n):
        self.say(take=self.t.work_pb.Take(tag=1, max=n, wait_ms=PATIENCE * 1000))
        taken = self.hear("tasks")
        assert taken.tag == 1 and taken.code == self.t.task_pb.OK, taken
        return taken.tasks

    def finish(self, task, **outcome):
        item = self.t.work_pb.FinishItem(id=task.id, epoch=task.epoch, **outcome)
        self.say(finish=self.t.work_pb.Finish(tag=2, items=[item]))
        finished = self.hear("finished")
        assert finished.code == self.t.task_pb.OK
        return finished.codes[0] if finished.codes else self.t.task_pb.OK

    def end(self):
        self.say(bye=self.t.work_pb.Bye())
        assert not list(self.call)
        assert self.call.code() == grpc.StatusCode.OK
        self.out.put(None)

    def break_off(self):
        self.call.cancel()
        self.out.put(None)


def check_worker(t):
    t.put("w", "done", retention_ms=60000)
    t.put("w", "again")
    worker = Worker(t, "w", 1)
    assert not worker.welcome.resumed
    done = worker.take(1)[0]
    worker.say(begun=t.work_pb.Begun(slots=[0], epochs=[done.epoch]))
    progress = t.work_pb.Progress(epoch=done.epoch, percent=50, text="half")
    worker.say(beat=t.work_pb.Beat(tag=7, progress=[progress]))
    assert worker.hear("beaten").tag == 7
    assert t.tasks.Get(t.pb.GetRequest(id="done")).progress == "50 half"
    assert worker.finish(done, result=b"\x01\x02") == t.task_pb.OK
    assert worker.finish(done) == t.task_pb.STALE
    kept = t.tasks.Get(t.pb.GetRequest(id="done"))
    assert kept.state == t.task_pb.COMPLETED and kept.result == b"\x01\x02"
    again = worker.take(1)[0]
    failed = worker.finish(again, outcome=t.work_pb.FAIL, error=b"oh", delay_ms=1)
    assert failed == t.task_pb.OK
    again = worker.take(1)[0]
    assert again.id == "again" and again.attempt == 2
    worker.end()
    assert t.tasks.Get(t.pb.GetRequest(id="again")).state == t.task_pb.PENDING


def check_cancel(t):
    t.put("c", "cancelled")
    worker = Worker(t, "c", 2)
    task = worker.take(1)[0]
    item = t.pb.ControlItem(verb=t.pb.CANCEL, id="cancelled")
    assert list(t.tasks.Control(t.pb.ControlRequest(items=[item])).codes) == [t.task_pb.OK]
    stop = worker.hear("stop")
    assert stop.epoch == task.epoch and stop.reason == t.work_pb.Stop.CANCELLED_BY_CALLER
    assert worker.finish(task, outcome=t.work_pb.FAIL_FOR_GOOD) == t.task_pb.OK
    worker.end()


def check_come_back(t):
    t.put("b", "kept")
    worker = Worker(t, "b", 3)
    task = worker.take(1)[0]
    worker.break_off()
    worker = Worker(t, "b", 3, holds=[task.epoch])
    assert worker.welcome.resumed
    assert worker.finish(task) == t.task_pb.OK
    worker.end()


# ---- looking ---------------------------------------------------------------------------------------


def check_wait(t):
    t.put("wait", "awaited", retention_ms=60000)
    end = t.tasks.Wait.future(t.pb.WaitRequest(id="awaited"), timeout=PATIENCE)
    worker = Worker(t, "wait", 4)
    assert worker.finish(worker.take(1)[0], result=b"good") == t.task_pb.OK
    task = end.result()
    assert task.state == t.task_pb.COMPLETED and task.result == b"good"
    worker.end()
    timed_out = grpc.StatusCode.DEADLINE_EXCEEDED
    t.put("wait", "never")
    request = t.pb.WaitRequest(id="never", timeout_ms=50)
    assert code_of(lambda: t.tasks.Wait(request)) == (timed_out, "TIMEOUT")
    request = t.pb.WaitRequest(id="never")
    assert code_of(lambda: t.tasks.Wait(request, timeout=0.2))[0] == timed_out
    request = t.pb.WaitRequest(id="nowhere")
    assert code_of(lambda: t.tasks.Wait(request)) == (grpc.StatusCode.NOT_FOUND, "NOT_FOUND")


def check_why_and_nodes(t):
    def why():
        return t.tasks.Why(t.pb.GetRequest(id="alone")).reasons[0]

    t.put("lonely", "alone")
    assert why().reason == "no_worker" and "lonely" in why().text, why()
    worker = Worker(t, "lonely", 5, types=["other", "more*"])
    assert why().reason == "no_handler", why()
    nodes = t.nodes.List(t.nodes_pb.NodeListRequest()).nodes
    node = [node for node in nodes if node.queues[0].name == "lonely"][0]
    assert node.node == "python" and node.concurrency == 4
    assert node.state == t.nodes_pb.NODE_LIVE and list(node.types) == ["other", "more*"]
    worker.end()
    assert why().reason == "no_worker"


def check_events(t):
    request = t.events_pb.WatchRequest(
        queue="ev-*", kinds=[t.events_pb.EVENT_QUEUE, t.events_pb.EVENT_NODE], interval_ms=100
    )
    stream = t.events.Watch(request, timeout=PATIENCE)
    assert next(stream).WhichOneof("kind") == "start"
    t.put("other", "unseen")
    t.put("ev-1", "seen")
    event = next(stream)
    assert event.queue.queue == "ev-1" and event.queue.pending == 1, event
    worker = Worker(t, "ev-1", 6)
    event = next(stream)
    assert event.node.node == "python" and event.node.state == t.nodes_pb.NODE_LIVE, event
    worker.end()
    event = next(stream)
    assert event.node.state == t.nodes_pb.NODE_CLOSED, event
    stream.cancel()


# ---- the standard services -------------------------------------------------------------------------


def check_health(t):
    kinds = Dynamic()
    kinds.add_compiled(t.proto_dir, t.out, "grpc/health/v1/health.proto")
    request = kinds.kind("grpc.health.v1.HealthCheckRequest")
    response = kinds.kind("grpc.health.v1.HealthCheckResponse")
    ways = dict(
        request_serializer=request.SerializeToString, response_deserializer=response.FromString
    )
    check = t.channel.unary_unary("/grpc.health.v1.Health/Check", **ways)
    watch = t.channel.unary_stream("/grpc.health.v1.Health/Watch", **ways)
    assert check(request()).status == 1
    assert check(request(service="millrace.v1.Work")).status == 1
    assert check(request(service="millrace.v1.Timers")).status == 1
    assert code_of(lambda: check(request(service="x")))[0] == grpc.StatusCode.NOT_FOUND
    stream = watch(request())
    assert next(stream).status == 1
    stream.cancel()


def check_reflection(t, version):
    """Finds out everything by asking, and enqueues with nothing else."""
    package = "grpc.reflection." + version
    kinds = Dynamic()
    kinds.add_compiled(t.proto_dir, t.out, "grpc/reflection/%s/reflection.proto" % version)
    request = kinds.kind(package + ".ServerReflectionRequest")
    response = kinds.kind(package + ".ServerReflectionResponse")
    questions = queue.Queue()
    answers = t.channel.stream_stream(
        "/%s.ServerReflection/ServerReflectionInfo" % package,
        request_serializer=request.SerializeToString,
        response_deserializer=response.FromString,
    )(iter(questions.get, None))

    def ask(**question):
        questions.put(request(**question))
        return next(answers)

    names = [row.name for row in ask(list_services="*").list_services_response.service]
    assert "millrace.v1.Tasks" in names and "grpc.health.v1.Health" in names, names
    assert "millrace.v1.Names" not in names, names  # a nameserver's
    assert ask(file_containing_symbol="no.such.Thing").error_response.error_code == 5
    found = Dynamic()
    files = {}
    wanted = [ask(file_containing_symbol="millrace.v1.Tasks")]
    while wanted:
        for data in wanted.pop().file_descriptor_response.file_descriptor_proto:
            described = descriptor_pb2.FileDescriptorProto.FromString(data)
            files[described.name] = described
            wanted += [ask(file_by_filename=n) for n in described.dependency if n not in files]
    for name in ("millrace/v1/task.proto", "millrace/v1/tasks.proto"):
        found.pool.Add(files[name])
    enqueue = t.channel.unary_unary(
        "/millrace.v1.Tasks/Enqueue",
        request_serializer=found.kind("millrace.v1.EnqueueRequest").SerializeToString,
        response_deserializer=found.kind("millrace.v1.EnqueueResponse").FromString,
    )
    message = found.kind("millrace.v1.EnqueueRequest")()
    message.tasks.add(queue="reflected")
    assert enqueue(message).results[0].code == 0
    questions.put(None)
    assert not list(answers)


def timer_op(t, name, verb=0, **fields):
    """An operation on a timer of the app "interop"; a put carries its definition."""
    pb = t.timer_pb
    definition = None
    if verb == pb.TIMER_PUT:
        definition = pb.TimerDefinition(app="interop", name=name, **fields)
        fields = {}
    return pb.TimerOperation(
        verb=verb, app="interop", name=name, definition=definition, **fields
    )


def send_timers(t, operations, **fields):
    request = t.timers_pb.TimerSendRequest(operations=operations, **fields)
    results = list(t.timers.Send(request, timeout=PATIENCE).results)
    assert len(results) == len(operations), results
    return results


def wait_for_firing(t, name, state):
    """Waits until the newest firing is in this state, and answers it."""
    request = t.timers_pb.TimerHistoryRequest(app="interop", name=name)
    for _ in range(PATIENCE * 20):
        firings = t.timers.History(request).firings
        if firings and firings[0].state == state:
            return firings[0]
        time.sleep(0.05)
    raise AssertionError("no firing of %s in state %d: %s" % (name, state, firings))


def check_timers(t):
    """Acceptance 100: every call of a producer and of an admin, from the .proto files alone."""
    pb, one = t.timer_pb, t.timers_pb.TimerRequest(app="interop", name="nightly")
    [made] = send_timers(
        t,
        [timer_op(t, "nightly", kind=pb.TIMER_CRON, expression="30 2 * * *", tz="Europe/Berlin")],
    )
    assert made.code == t.task_pb.OK and made.id and made.version, made
    timer = t.timers.Get(one)
    assert timer.id == made.id and timer.version == made.version, timer
    assert timer.state == pb.TIMER_ACTIVE and timer.definition.queue == "interop", timer
    times = t.timers.Next(t.timers_pb.TimerNextRequest(app="interop", name="nightly")).times_ms
    assert len(times) == 10 and times[0] == timer.next_ms, times
    tried = pb.TimerDefinition(kind=pb.TIMER_EVERY, expression="1h")
    times = t.timers.Next(t.timers_pb.TimerNextRequest(definition=tried, limit=3)).times_ms
    assert len(times) == 3 and times[1] - times[0] == 3600 * 1000, times
    # It is changed, if nobody else has.
    change = timer_op(t, "nightly", kind=pb.TIMER_EVERY, expression="10m")
    change.id, change.created_ms, change.if_version = timer.id, timer.created_ms, timer.version
    again = pb.TimerOperation()
    again.CopyFrom(change)
    results = send_timers(t, [change]) + send_timers(t, [again])
    assert [r.code for r in results] == [t.task_pb.OK, t.task_pb.CONFLICT], results
    # One that is wrong is refused with the reason, the others are not.
    results = send_timers(
        t,
        [
            timer_op(t, "one", kind=pb.TIMER_MANUAL),
            timer_op(t, "wrong", kind=pb.TIMER_CRON, expression="61 * * * *"),
            timer_op(t, "two", kind=pb.TIMER_MANUAL),
        ],
        wait=t.timers_pb.WAIT_DURABLE,
    )
    assert [r.code for r in results] == [t.task_pb.OK, t.task_pb.INVALID, t.task_pb.OK], results
    assert "61" in results[1].why, results[1]
    check_firings(t)
    listed = t.timers.List(t.timers_pb.TimerListRequest(app="interop")).timers
    names = [timer.definition.name for timer in listed]
    assert names == sorted(names) and {"nightly", "one", "two"} <= set(names), names
    status = t.timers.Status(t.timers_pb.TimerStatusRequest())
    assert status.store.startswith("sqlite") and status.active >= 3, status
    assert "interop" in [app.app for app in status.apps], status
    dead = t.tasks.List(t.pb.ListRequest(queue="\x02timers", state=t.task_pb.ARCHIVED)).tasks
    assert not dead and status.operations_dead == 0, dead
    [gone] = send_timers(t, [timer_op(t, "nightly", verb=pb.TIMER_DELETE)])
    [gone_again] = send_timers(t, [timer_op(t, "nightly", verb=pb.TIMER_DELETE)])
    assert (gone.code, gone_again.code) == (t.task_pb.OK, t.task_pb.NOT_FOUND), gone_again
    assert code_of(lambda: t.timers.Get(one)) == (grpc.StatusCode.NOT_FOUND, "NOT_FOUND")


def check_firings(t):
    """Run, look, stop, run again."""
    pb = t.timer_pb
    [ran] = send_timers(t, [timer_op(t, "one", verb=pb.TIMER_RUN)])
    assert ran.code == t.task_pb.OK, ran
    firing = wait_for_firing(t, "one", pb.FIRING_DISPATCHED)
    assert firing.cause == pb.FIRING_MANUAL and firing.task_id, firing
    task = t.tasks.Get(t.pb.GetRequest(id=firing.task_id))
    assert task.queue == "interop", task
    which = {"planned_ms": firing.planned_ms}
    [stopped] = send_timers(t, [timer_op(t, "one", verb=pb.TIMER_STOP, **which)])
    assert stopped.code == t.task_pb.OK, stopped
    wait_for_firing(t, "one", pb.FIRING_CANCELLED)
    [again] = send_timers(t, [timer_op(t, "one", verb=pb.TIMER_RERUN, **which)])
    assert again.code == t.task_pb.OK, again
    assert wait_for_firing(t, "one", pb.FIRING_DISPATCHED).run == 1


def check_jobs(t):
    """A job by streams: in, watched, its parts done by hand, its result taken."""
    pb, jobs = t.job_pb, t.jobs_pb

    def requests(parts):
        definition = pb.JobDefinition(name="py", queue="pyjobs", stages=["shout"], reduce="lines")
        yield jobs.JobSubmitRequest(definition=definition)
        for part in parts:
            yield jobs.JobSubmitRequest(parts=[part])

    assert code_of(lambda: t.jobs.Submit(requests([])))[1] == "INVALID"
    parts = [b"one", b"two", b"three"]
    job = t.jobs.Submit(requests(parts))
    assert job.total == 3 and job.state == pb.JOB_CREATED and job.definition.name == "py", job
    one = jobs.JobRequest(id=job.id)
    assert code_of(lambda: list(t.jobs.Result(one)))[1] == "WRONG_STATE"
    watch = t.jobs.Watch(jobs.JobWatchRequest(id=job.id))
    assert next(watch).job.version == job.version
    worker = Worker(t, "pyjobs", 7)
    for _ in parts:
        [task] = worker.take(1)
        assert task.type == "shout" and task.id.startswith(job.id), task
        assert worker.finish(task, result=task.payload.upper()) == t.task_pb.OK
    seen = list(watch)
    assert [e.job.version for e in seen] == [job.version + 1 + i for i in range(len(seen))], seen
    assert seen[-1].end and seen[-1].job.state == pb.JOB_SUCCEEDED, seen[-1]
    assert not any(event.end for event in seen[:-1])
    worker.end()
    assert b"".join(piece.bytes for piece in t.jobs.Result(one)) == b"ONE\nTWO\nTHREE\n"
    assert not list(t.jobs.Watch(jobs.JobWatchRequest(id=job.id, after=seen[-1].job.version)))
    listed = t.jobs.ListParts(jobs.PartListRequest(id=job.id, states=[pb.PART_DONE])).parts
    assert [part.index for part in listed] == [0, 1, 2], listed
    assert job.id in [j.id for j in t.jobs.List(jobs.JobListRequest(queue="pyjobs")).jobs]
    assert code_of(lambda: t.jobs.Cancel(one))[1] == "WRONG_STATE"
    other = t.jobs.Submit(requests(parts))
    cancelled = t.jobs.Cancel(jobs.JobRequest(id=other.id))
    assert cancelled.state == pb.JOB_CANCELLED, cancelled
    none = jobs.JobRequest(id="01a1e36b-0000-7000-8000-000000000000")
    assert code_of(lambda: t.jobs.Get(none)) == (grpc.StatusCode.NOT_FOUND, "NOT_FOUND")
    assert code_of(lambda: list(t.jobs.Watch(jobs.JobWatchRequest(id=none.id))))[1] == "NOT_FOUND"


def check_wrong_token(t):
    wrong = (("authorization", "Bearer sesame"),)
    status, _ = code_of(lambda: t.tasks.Get(t.pb.GetRequest(id="x"), metadata=wrong))
    assert status == grpc.StatusCode.UNAUTHENTICATED, status


# ---- all of it -------------------------------------------------------------------------------------


class Test:
    """The stubs on one channel, and what the checks do over and over."""

    def __init__(self, proto_dir, out, channel):
        from millrace.v1 import (  # pylint: disable=import-outside-toplevel
            events_pb2,
            events_pb2_grpc,
            job_pb2,
            jobs_pb2,
            jobs_pb2_grpc,
            nodes_pb2,
            nodes_pb2_grpc,
            task_pb2,
            tasks_pb2,
            tasks_pb2_grpc,
            timer_pb2,
            timers_pb2,
            timers_pb2_grpc,
            work_pb2,
            work_pb2_grpc,
        )

        self.proto_dir, self.out, self.channel = proto_dir, out, channel
        self.task_pb, self.pb, self.work_pb = task_pb2, tasks_pb2, work_pb2
        self.events_pb, self.nodes_pb = events_pb2, nodes_pb2
        self.events = events_pb2_grpc.EventsStub(channel)
        self.nodes = nodes_pb2_grpc.NodesStub(channel)
        self.tasks = tasks_pb2_grpc.TasksStub(channel)
        self.work = work_pb2_grpc.WorkStub(channel)
        self.timer_pb, self.timers_pb = timer_pb2, timers_pb2
        self.timers = timers_pb2_grpc.TimersStub(channel)
        self.job_pb, self.jobs_pb = job_pb2, jobs_pb2
        self.jobs = jobs_pb2_grpc.JobsStub(channel)

    def new_task(self, headers=(), **fields):
        task = self.task_pb.NewTask(**fields)
        for name in headers:
            task.headers.add(name=name, value=headers[name])
        return task

    def put(self, queue_name, task_id, **fields):
        task = self.new_task(queue=queue_name, id=task_id, **fields)
        answer = self.tasks.Enqueue(self.pb.EnqueueRequest(tasks=[task]))
        assert answer.results[0].code == self.task_pb.OK, answer


CHECKS = [
    ("producer", check_producer),
    ("stream of a producer", check_stream),
    ("a refused request in a stream", check_refused_in_stream),
    ("compressed request", check_compressed),
    ("5 MiB refused, 1 MiB taken", check_too_big),
    ("deadline", check_deadline),
    ("worker", check_worker),
    ("cancel stops a run", check_cancel),
    ("a worker comes back", check_come_back),
    ("waiting for a task", check_wait),
    ("why, and the nodes", check_why_and_nodes),
    ("events", check_events),
    ("100: timers", check_timers),
    ("jobs", check_jobs),
    ("health", check_health),
    ("reflection v1", lambda t: check_reflection(t, "v1")),
    ("reflection v1alpha", lambda t: check_reflection(t, "v1alpha")),
    ("wrong token", check_wrong_token),
]


def open_channel(options):
    credentials = None
    if options.tls:
        ca, cert, key = (open(path, "rb").read() for path in options.tls)
        credentials = grpc.ssl_channel_credentials(ca, key, cert)
        if options.token:
            with open(options.token, encoding="ascii") as file:
                token = grpc.access_token_call_credentials(file.read().strip())
            credentials = grpc.composite_channel_credentials(credentials, token)
    limits = [("grpc.max_send_message_length", -1)]
    if credentials:
        return grpc.secure_channel(options.address, credentials, limits)
    return grpc.insecure_channel(options.address, limits)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("proto_dir")
    parser.add_argument("address")
    parser.add_argument("--tls", nargs=3)
    parser.add_argument("--token")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as out, open_channel(options) as channel:
        compile_stubs(options.proto_dir, out)
        test = Test(options.proto_dir, out, channel)
        for name, check in CHECKS:
            check(test)
            print("ok", name)


if __name__ == "__main__":
    main()
