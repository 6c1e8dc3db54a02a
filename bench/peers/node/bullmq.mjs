// SPDX-License-Identifier: Apache-2.0
// BullMQ on a Redis. Jobs that are done are removed, as they are with the others.

import { Queue, Worker } from "bullmq";
import { BATCH, BATCHES, CONCURRENCY, Counter, SINGLE, main, payload, repeat } from "./frame.mjs";

const NAME = "peers";
const opts = { removeOnComplete: true };
let connection, queue;

await main({
  async open(address) {
    const [host, port] = address.split(":");
    connection = { host, port: Number(port), maxRetriesPerRequest: null };
    queue = new Queue(NAME, { connection });
    await queue.waitUntilReady();
  },
  single: (phase) =>
    repeat(phase, SINGLE, async () => {
      await queue.add("noop", payload, opts);
      return 1;
    }),
  batch: (phase) => {
    const jobs = Array.from({ length: BATCH }, () => ({ name: "noop", data: payload, opts }));
    return repeat(phase, BATCHES, async () => (await queue.addBulk(jobs)).length);
  },
  async run(phase) {
    const counter = new Counter(phase);
    const worker = new Worker(NAME, async () => {}, { connection, concurrency: CONCURRENCY });
    worker.on("completed", () => counter.add(1));
    worker.on("failed", (job, error) => {
      throw error;
    });
    await counter.all;
    await worker.close();
    return counter.done;
  },
  close: () => queue.close(),
});
