// SPDX-License-Identifier: Apache-2.0
// bee-queue on a Redis, with the settings that its documents name for speed: no events, nothing stored here.

import Queue from "bee-queue";
import { BATCH, BATCHES, CONCURRENCY, Counter, SINGLE, main, payload, repeat } from "./frame.mjs";

let queue;

await main({
  async open(address, name) {
    const [host, port] = address.split(":");
    queue = new Queue("peers", {
      redis: { host, port: Number(port) },
      isWorker: name === "run",
      getEvents: false,
      sendEvents: false,
      storeJobs: false,
      removeOnSuccess: true,
    });
    await queue.ready();
  },
  single: (phase) =>
    repeat(phase, SINGLE, async () => {
      await queue.createJob(payload).save();
      return 1;
    }),
  batch: (phase) =>
    repeat(phase, BATCHES, async () => {
      const jobs = Array.from({ length: BATCH }, () => queue.createJob(payload));
      const errors = await queue.saveAll(jobs);
      if (errors.size > 0) throw errors.values().next().value;
      return jobs.length;
    }),
  async run(phase) {
    const counter = new Counter(phase);
    queue.on("succeeded", () => counter.add(1));
    queue.on("failed", (job, error) => {
      throw error;
    });
    queue.process(CONCURRENCY, async () => {});
    await counter.all;
    return counter.done;
  },
  close: () => queue.close(1000),
});
