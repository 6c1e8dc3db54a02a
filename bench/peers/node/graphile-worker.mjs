// SPDX-License-Identifier: Apache-2.0
// graphile-worker on a PostgreSQL, with the settings that its documents name for throughput: jobs are
// fetched and completed in batches.

import { EventEmitter } from "node:events";
import { Logger, makeWorkerUtils, run } from "graphile-worker";
import { BATCH, BATCHES, CONCURRENCY, Counter, SINGLE, main, payload, repeat } from "./frame.mjs";

const TASK = "noop";
const CONNECTIONS = 10;
const logger = new Logger(() => () => {});
let url, utils;

const preset = {
  worker: {
    localQueue: { size: 500 },
    completeJobBatchDelay: 0,
    failJobBatchDelay: 0,
  },
};

await main({
  async open(address) {
    url = address;
    utils = await makeWorkerUtils({ connectionString: url, maxPoolSize: CONNECTIONS, logger });
    await utils.migrate();
  },
  single: (phase) =>
    repeat(phase, SINGLE, async () => {
      await utils.addJob(TASK, payload);
      return 1;
    }),
  batch: (phase) => {
    const jobs = Array.from({ length: BATCH }, () => ({ identifier: TASK, payload }));
    return repeat(phase, BATCHES, async () => (await utils.addJobs(jobs)).length);
  },
  async run(phase) {
    const counter = new Counter(phase);
    const events = new EventEmitter();
    events.on("job:complete", ({ error }) => {
      if (error) throw error;
      counter.add(1);
    });
    const runner = await run({
      preset,
      connectionString: url,
      concurrency: CONCURRENCY,
      maxPoolSize: CONNECTIONS,
      noHandleSignals: true,
      logger,
      events,
      taskList: { [TASK]: async () => {} },
    });
    await counter.all;
    await runner.stop();
    return counter.done;
  },
  close: () => utils.release(),
});
