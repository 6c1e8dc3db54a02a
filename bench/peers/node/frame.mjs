// SPDX-License-Identifier: Apache-2.0
//
// The frame of the clients in JavaScript: what ../client.h says of those in C.
//
//     node CLIENT.mjs ADDRESS single|batch|run SECONDS TASKS

import { once } from "node:events";

export const SINGLE = 64; // calls of one task in flight
export const BATCH = 256; // tasks of a batch
export const BATCHES = 4; // batches in flight
// Tasks in hand at once. Handlers that do nothing need no more slots to keep a core busy, but each has
// a round trip to wait for.
export const CONCURRENCY = 64;
// 100 bytes of JSON.
export const payload = { p: "x".repeat(92) };

// Calls begin, which answers with the number of tasks, again and again, so many at a time, until the time
// is over; how many tasks it were in all.
export async function repeat(phase, inFlight, begin) {
  let tasks = 0;
  const loop = async () => {
    while (!phase.over()) tasks += await begin();
  };
  await Promise.all(Array.from({ length: inFlight }, loop));
  return tasks;
}

// Counts ends; all resolves when as many as there are tasks have been counted, or the time is over.
export class Counter {
  constructor(phase) {
    this.done = 0;
    this.phase = phase;
    this.all = new Promise((resolve) => {
      this.resolve = resolve;
    });
    this.timer = setTimeout(this.resolve, phase.seconds * 1000);
  }

  add(n) {
    this.done += n;
    if (this.done >= this.phase.tasks) {
      clearTimeout(this.timer);
      this.resolve();
    }
  }
}

class Phase {
  constructor(seconds, tasks) {
    this.seconds = seconds;
    this.tasks = tasks;
  }

  begin() {
    this.begun = performance.now();
  }

  elapsed() {
    return (performance.now() - this.begun) / 1000;
  }

  over() {
    return this.elapsed() >= this.seconds;
  }
}

// peer: open(address, phase name), single(phase), batch(phase), run(phase), close(). Each phase answers with the number
// of tasks that were acknowledged, or whose end was.
export async function main(peer) {
  const [address, name, seconds, tasks] = process.argv.slice(2);
  if (!["single", "batch", "run"].includes(name)) throw new Error(`unknown phase ${name}`);
  const phase = new Phase(Number(seconds), Number(tasks));
  await peer.open(address, name);
  console.log("ready");
  await once(process.stdin, "data");
  phase.begin();
  const done = await peer[name](phase);
  console.log(JSON.stringify({ tasks: done, seconds: phase.elapsed() }));
  process.stdin.resume();
  if (!process.stdin.readableEnded) await once(process.stdin, "end");
  await peer.close();
  process.exit(0);
}
