// A worker in plain amqplib, written from docs/protocol.md.
//
//   node workers/javascript/worker.mjs -q default -c 4
import os from "node:os";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import { Controls } from "./controls.mjs";
import { newId, now } from "./job.mjs";
import { say, Session } from "./session.mjs";

const VERSION = "1.0.0";

/** Queues and who we are; serves one connection after the other until it is told to stop. */
class Worker {
  constructor({ queues, concurrency, timeout }) {
    Object.assign(this, { queues, concurrency, timeout });
    this.identity = `${os.hostname()}:${process.pid}:javascript`;
    this.nonce = newId();
    this.bootAt = now();
    this.controls = new Controls(this);
    this.stopping = false;
    this.stopped = new Promise((resolve) => {
      this.stop = () => {
        this.stopping = true;
        resolve();
      };
    });
  }

  /** Whether to take jobs of a queue. */
  wants(queue) {
    return !this.stopping && !this.controls.quiet && !this.controls.paused.has(queue);
  }

  get paused() {
    return this.queues.filter((queue) => this.controls.paused.has(queue));
  }

  get state() {
    if (this.stopping) return "stopping";
    if (this.controls.quiet) return "quiet";
    return this.paused.length ? `paused: ${this.paused.join(", ")}` : "running";
  }

  async run() {
    for (let pause = 500; !this.stopping; pause = Math.min(5000, pause * 2)) {
      const session = new Session(this);
      try {
        await session.serve();
      } catch (error) {
        if (session.caughtUp) pause = 500;
        say(`broker: ${error.message}; again in ${pause} ms`);
        await Promise.race([sleep(pause), this.stopped]);
      }
    }
  }

  heartbeat(state, runs) {
    const running = runs
      .filter(({ job }) => job)
      .map(({ job, startedAt }) => ({ jid: job.jid, class: job.jobClass, queue: job.queue, started_at: startedAt }));
    return {
      type: "heartbeat",
      identity: this.identity,
      nonce: this.nonce,
      hostname: os.hostname(),
      pid: process.pid,
      tag: "javascript",
      concurrency: this.concurrency,
      busy: running.length,
      beat: now(),
      boot_at: this.bootAt,
      rss_kb: Math.round(process.memoryUsage.rss() / 1024),
      queues: this.queues,
      version: VERSION,
      state,
      paused: this.paused.length ? this.paused : undefined,
      running,
    };
  }
}

const { values } = parseArgs({
  options: {
    queue: { type: "string", short: "q", multiple: true, default: ["default"] },
    concurrency: { type: "string", short: "c", default: "4" },
    timeout: { type: "string", short: "t", default: "25" }, // seconds
  },
});
const worker = new Worker({
  queues: values.queue,
  concurrency: Number(values.concurrency),
  timeout: Number(values.timeout),
});
process.on("SIGTERM", worker.stop);
process.on("SIGINT", worker.stop);
// A handler that forgets to await what then fails must not end the worker.
process.on("unhandledRejection", (error) => say(`unhandled: ${error}`));
await worker.run();
process.exit(0); // a handler that is past its time would keep the process alive
