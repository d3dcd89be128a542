// The handlers by class. Each gets a context ({ job, signal }) and the arguments: spread when they came as a list,
// one object when they came by name. One that computes for long holds up the event loop, and with it the heartbeats:
// such work belongs into node:worker_threads.
import { appendFile } from "node:fs/promises";
import { setTimeout as sleep } from "node:timers/promises";

export const handlers = new Map(Object.entries({ echo, fail, flaky, slow }));

async function echo({ job }) {
  await appendFile(process.env.OUT, `${JSON.stringify(job.args)}\n`);
}

async function fail() {
  throw new Error("this job always fails");
}

async function flaky({ job }, failures) {
  if (job.retryCount < failures) throw new Error(`run ${job.retryCount + 1} fails`);
}

/** Passing the signal on is all that it takes to be cancelled. */
async function slow({ signal }, seconds) {
  await sleep(seconds * 1000, undefined, { signal });
}
