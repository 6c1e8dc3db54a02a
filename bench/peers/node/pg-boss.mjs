// SPDX-License-Identifier: Apache-2.0
// pg-boss on a PostgreSQL. Its work() waits between two looks, half a second at least; so jobs are fetched
// and completed in batches, which is how it says one can be faster.

import { PgBoss } from "pg-boss";
import { BATCH, BATCHES, SINGLE, main, payload, repeat } from "./frame.mjs";

const NAME = "peers";
const CONNECTIONS = 10;
let boss;

await main({
  async open(address) {
    boss = new PgBoss({ connectionString: address, max: CONNECTIONS, supervise: false, schedule: false });
    boss.on("error", (error) => {
      throw error;
    });
    await boss.start();
    await boss.createQueue(NAME);
  },
  single: (phase) =>
    repeat(phase, SINGLE, async () => {
      await boss.send(NAME, payload);
      return 1;
    }),
  batch: (phase) => {
    const jobs = Array.from({ length: BATCH }, () => ({ data: payload }));
    return repeat(phase, BATCHES, async () => {
      await boss.insert(NAME, jobs);
      return jobs.length;
    });
  },
  async run(phase) {
    let done = 0;
    const loop = async () => {
      while (done < phase.tasks && !phase.over()) {
        const jobs = await boss.fetch(NAME, { batchSize: BATCH });
        if (jobs.length === 0) return;
        await boss.complete(
          NAME,
          jobs.map((job) => job.id),
        );
        done += jobs.length;
      }
    };
    await Promise.all(Array.from({ length: BATCHES }, loop));
    return done;
  },
  close: () => boss.stop({ graceful: false }),
});
