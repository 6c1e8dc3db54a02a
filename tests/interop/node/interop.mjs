// SPDX-License-Identifier: Apache-2.0
//
// A standard gRPC client of Node, made from the .proto files alone, against a running server.
//
// Usage: node interop.mjs PROTO_DIR ADDRESS [CA CERT KEY TOKEN_FILE]
//
// Producer, worker, viewer, health and reflection; prints one line per check and exits 1 at the first that
// fails.

import assert from "node:assert/strict";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import grpc from "@grpc/grpc-js";
import loader from "@grpc/proto-loader";

const PATIENCE_MS = 60000;
const [protoDir, address, ca, cert, key, tokenFile] = process.argv.slice(2);

// ---- from .proto to clients ------------------------------------------------------------------------

const definition = loader.loadSync(
  [
    "millrace/v1/tasks.proto",
    "millrace/v1/work.proto",
    "millrace/v1/queues.proto",
    "millrace/v1/nodes.proto",
    "millrace/v1/events.proto",
    "grpc/health/v1/health.proto",
    "grpc/reflection/v1/reflection.proto",
    "grpc/reflection/v1alpha/reflection.proto",
  ],
  { includeDirs: [protoDir], longs: String, enums: String, defaults: true, oneofs: true },
);
const root = grpc.loadPackageDefinition(definition);

function credentials() {
  if (!ca) return grpc.credentials.createInsecure();
  const tls = grpc.credentials.createSsl(...[ca, key, cert].map((file) => readFileSync(file)));
  const token = readFileSync(tokenFile, "ascii").trim();
  const call = grpc.credentials.createFromMetadataGenerator((_, done) => {
    const metadata = new grpc.Metadata();
    metadata.set("authorization", `Bearer ${token}`);
    done(null, metadata);
  });
  return grpc.credentials.combineChannelCredentials(tls, call);
}

const how = credentials();
const tasks = new root.millrace.v1.Tasks(address, how);
const work = new root.millrace.v1.Work(address, how);
const queues = new root.millrace.v1.Queues(address, how);
const nodes = new root.millrace.v1.Nodes(address, how);
const events = new root.millrace.v1.Events(address, how);
const health = new root.grpc.health.v1.Health(address, how);

// A unary call as a promise.
function ask(client, method, request, options = {}) {
  return new Promise((resolve, reject) => {
    client[method](request, new grpc.Metadata(), options, (error, answer) =>
      error ? reject(error) : resolve(answer),
    );
  });
}

// The messages of a stream, one after the other; null at the end, an error as a rejection.
function reader(stream) {
  const got = [];
  const waiting = [];
  const give = (item) => (waiting.length ? waiting.shift()(item) : got.push(item));
  stream.on("data", (message) => give({ message }));
  stream.on("end", () => give({ message: null }));
  stream.on("error", (error) => give({ error }));
  return async () => {
    const item = got.length ? got.shift() : await new Promise((resolve) => waiting.push(resolve));
    if (item.error) throw item.error;
    return item.message;
  };
}

async function put(queue, id, more = {}) {
  const answer = await ask(tasks, "Enqueue", { tasks: [{ queue, id, ...more }] });
  assert.equal(answer.results[0].code, "OK");
}

// ---- producer --------------------------------------------------------------------------------------

async function checkProducer() {
  const answer = await ask(tasks, "Enqueue", {
    tasks: [
      { queue: "js", id: "js-1", payload: Buffer.from([0, 255]) },
      { queue: "js", delayMs: 3600000 },
      { queue: "js", id: "js-1" },
      { queue: "no{good" },
    ],
  });
  assert.deepEqual(
    answer.results.map((result) => result.code),
    ["OK", "OK", "CONFLICT", "INVALID"],
  );
  assert.equal(answer.results[1].state, "SCHEDULED");
  assert.match(answer.results[3].message, /queue/);
  const task = await ask(tasks, "Get", { id: "js-1" });
  assert.deepEqual([...task.payload], [0, 255]);
  await assert.rejects(ask(tasks, "Get", { id: "nowhere" }), (error) => {
    assert.equal(error.code, grpc.status.NOT_FOUND);
    assert.equal(error.details, "task nowhere: not found");
    assert.deepEqual(error.metadata.get("millrace-code"), ["NOT_FOUND"]);
    return true;
  });
  const queue = await ask(queues, "Get", { queue: "js" });
  assert.equal(queue.pending, "1");
  assert.equal(queue.scheduled, "1");
}

async function checkStream() {
  const stream = tasks.EnqueueStream();
  const next = reader(stream);
  for (let i = 0; i < 200; i++) stream.write({ tasks: [{ queue: "stream", id: `js-s${i}` }] });
  stream.end();
  for (let i = 0; i < 200; i++) assert.equal((await next()).results[0].id, `js-s${i}`);
  assert.equal(await next(), null);
}

// A request that is refused is answered at its place, and the stream goes on.
async function checkRefusedInStream() {
  const stream = tasks.EnqueueStream();
  const next = reader(stream);
  const good = { tasks: [{ queue: "stream" }] };
  stream.write(good);
  stream.write({ tasks: Array.from({ length: 1001 }, () => ({})) });
  stream.write(good);
  stream.end();
  assert.equal((await next()).results[0].code, "OK");
  const refused = await next();
  assert.equal(refused.code, "TOO_BIG");
  assert.match(refused.message, /1001 tasks/);
  assert.equal((await next()).results[0].code, "OK");
  assert.equal(await next(), null);
}

async function checkTooBig() {
  const payload = Buffer.alloc(1 << 20);
  const five = { tasks: Array.from({ length: 5 }, () => ({ payload })) };
  await assert.rejects(ask(tasks, "Enqueue", five), { code: grpc.status.RESOURCE_EXHAUSTED });
  await put("big", "js-big", { payload });
}

async function checkDeadline() {
  const stream = tasks.EnqueueStream(new grpc.Metadata(), { deadline: Date.now() + 200 });
  await assert.rejects(reader(stream)(), { code: grpc.status.DEADLINE_EXCEEDED });
}

async function checkUnknown() {
  await assert.rejects(
    new Promise((resolve, reject) => {
      tasks.makeUnaryRequest("/millrace.v1.Tasks/Juggle", (x) => x, (x) => x, Buffer.alloc(0),
        (error, answer) => (error ? reject(error) : resolve(answer)));
    }),
    { code: grpc.status.UNIMPLEMENTED },
  );
}

// ---- worker ----------------------------------------------------------------------------------------

class Worker {
  constructor(queue, incarnation, holds = [], types = []) {
    this.stream = work.Attach();
    this.next = reader(this.stream);
    const hello = { node: "node", incarnation, slots: 4, leaseMs: 15000, holds, types };
    this.stream.write({ hello: { ...hello, queues: [{ name: queue }] } });
  }

  async hear(kind) {
    const message = await this.next();
    assert.equal(message?.kind, kind);
    return message[kind];
  }

  async take(max) {
    this.stream.write({ take: { tag: 1, max, waitMs: PATIENCE_MS } });
    const taken = await this.hear("tasks");
    assert.equal(taken.code, "OK");
    return taken.tasks;
  }

  async finish(task, outcome = {}) {
    this.stream.write({ finish: { tag: 2, items: [{ id: task.id, epoch: task.epoch, ...outcome }] } });
    const finished = await this.hear("finished");
    assert.equal(finished.code, "OK");
    return finished.codes[0] ?? "OK";
  }

  async end() {
    const status = once(this.stream, "status");
    this.stream.write({ bye: {} });
    assert.equal(await this.next(), null);
    assert.equal((await status)[0].code, grpc.status.OK);
    this.stream.end();
  }
}

async function checkWorker() {
  await put("jsw", "js-done", { retentionMs: 60000 });
  const worker = new Worker("jsw", "11");
  assert.equal((await worker.hear("welcome")).resumed, false);
  const [task] = await worker.take(1);
  assert.equal(task.id, "js-done");
  worker.stream.write({ begun: { slots: [0], epochs: [task.epoch] } });
  worker.stream.write({ beat: { tag: 7, progress: [{ epoch: task.epoch, percent: 50, text: "half" }] } });
  assert.equal((await worker.hear("beaten")).tag, 7);
  assert.equal((await ask(tasks, "Get", { id: "js-done" })).progress, "50 half");
  assert.equal(await worker.finish(task, { result: Buffer.from("good") }), "OK");
  assert.equal(await worker.finish(task), "STALE");
  const kept = await ask(tasks, "Get", { id: "js-done" });
  assert.equal(kept.state, "COMPLETED");
  assert.equal(kept.result.toString(), "good");
  await worker.end();
}

async function checkCancel() {
  await put("jsc", "js-cancelled");
  const worker = new Worker("jsc", "12");
  await worker.hear("welcome");
  const [task] = await worker.take(1);
  const answer = await ask(tasks, "Control", { items: [{ verb: "CANCEL", id: "js-cancelled" }] });
  assert.deepEqual(answer.codes, ["OK"]);
  const stop = await worker.hear("stop");
  assert.equal(stop.epoch, task.epoch);
  assert.equal(stop.reason, "CANCELLED_BY_CALLER");
  assert.equal(await worker.finish(task, { outcome: "FAIL_FOR_GOOD" }), "OK");
  await worker.end();
}

async function checkComeBack() {
  await put("jsb", "js-kept");
  // A second stream, as after a break that only one side has noticed: cancelling the first would end
  // it in order, since Node closes its side of a stream before it resets it.
  const first = new Worker("jsb", "13");
  await first.hear("welcome");
  const [task] = await first.take(1);
  const worker = new Worker("jsb", "13", [task.epoch]);
  assert.equal((await worker.hear("welcome")).resumed, true);
  await assert.rejects(first.next(), { code: grpc.status.ABORTED });
  assert.equal(await worker.finish(task), "OK");
  await worker.end();
}

// ---- looking ---------------------------------------------------------------------------------------

async function checkWait() {
  await put("jswait", "js-awaited", { retentionMs: 60000 });
  const end = ask(tasks, "Wait", { id: "js-awaited" }, { deadline: Date.now() + PATIENCE_MS });
  const worker = new Worker("jswait", "14");
  await worker.hear("welcome");
  const [task] = await worker.take(1);
  assert.equal(await worker.finish(task, { result: Buffer.from("good") }), "OK");
  const ended = await end;
  assert.equal(ended.state, "COMPLETED");
  assert.equal(ended.result.toString(), "good");
  await worker.end();
  await put("jswait", "js-never");
  const late = { code: grpc.status.DEADLINE_EXCEEDED };
  await assert.rejects(ask(tasks, "Wait", { id: "js-never", timeoutMs: 50 }), late);
  await assert.rejects(ask(tasks, "Wait", { id: "js-never" }, { deadline: Date.now() + 200 }), late);
}

async function checkWhyAndNodes() {
  const why = async () => (await ask(tasks, "Why", { id: "js-alone" })).reasons[0];
  await put("jslonely", "js-alone");
  assert.equal((await why()).reason, "no_worker");
  const worker = new Worker("jslonely", "15", [], ["other", "more*"]);
  await worker.hear("welcome");
  assert.equal((await why()).reason, "no_handler");
  const listed = (await ask(nodes, "List", {})).nodes;
  const node = listed.find((row) => row.queues[0].name === "jslonely");
  assert.equal(node.node, "node");
  assert.equal(node.state, "NODE_LIVE");
  assert.equal(node.concurrency, 4);
  assert.deepEqual(node.types, ["other", "more*"]);
  await worker.end();
}

async function checkEvents() {
  const stream = events.Watch({ queue: "jsev-*", kinds: ["EVENT_QUEUE"], intervalMs: 100 });
  const next = reader(stream);
  assert.equal((await next()).kind, "start");
  await put("other", "js-unseen");
  await put("jsev-1", "js-seen");
  const event = await next();
  assert.equal(event.kind, "queue");
  assert.equal(event.queue.queue, "jsev-1");
  assert.equal(event.queue.pending, "1");
  stream.cancel();
  await assert.rejects(next(), { code: grpc.status.CANCELLED });
}

// ---- the standard services -------------------------------------------------------------------------

async function checkHealth() {
  assert.equal((await ask(health, "Check", {})).status, "SERVING");
  await assert.rejects(ask(health, "Check", { service: "x" }), { code: grpc.status.NOT_FOUND });
  const watch = health.Watch({});
  const next = reader(watch);
  assert.equal((await next()).status, "SERVING");
  watch.cancel();
  await assert.rejects(next(), { code: grpc.status.CANCELLED });
}

async function checkReflection(version) {
  const service = root.grpc.reflection[version].ServerReflection;
  const stream = new service(address, how).ServerReflectionInfo();
  const next = reader(stream);
  stream.write({ listServices: "*" });
  const names = (await next()).listServicesResponse.service.map((row) => row.name);
  assert.ok(names.includes("millrace.v1.Work") && names.includes("grpc.health.v1.Health"));
  stream.write({ fileContainingSymbol: "millrace.v1.Work.Attach" });
  const file = (await next()).fileDescriptorResponse.fileDescriptorProto[0];
  assert.ok(file.includes("millrace/v1/work.proto"));
  stream.end();
  assert.equal(await next(), null);
}

// ---- all of it -------------------------------------------------------------------------------------

const checks = {
  producer: checkProducer,
  "stream of a producer": checkStream,
  "a refused request in a stream": checkRefusedInStream,
  "5 MiB refused, 1 MiB taken": checkTooBig,
  deadline: checkDeadline,
  "unknown method": checkUnknown,
  worker: checkWorker,
  "cancel stops a run": checkCancel,
  "a worker comes back": checkComeBack,
  "waiting for a task": checkWait,
  "why, and the nodes": checkWhyAndNodes,
  events: checkEvents,
  health: checkHealth,
  "reflection v1": () => checkReflection("v1"),
  "reflection v1alpha": () => checkReflection("v1alpha"),
};

for (const [name, check] of Object.entries(checks)) {
  await check();
  console.log("ok", name);
}
process.exit(0);
