// One connection of the worker. Its channels are used by one thread, the event loop, so nothing needs a lock.
import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { connect } from "./broker.mjs";
import { handlers } from "./handlers.mjs";
import { expired, failed, metric, newId, NotAJob, now, readJob, TRACKED, tracked, unreadable } from "./job.mjs";

const BEAT_EVERY = 10_000;
const LONGEST_CONFIRM = 10_000;
const TEN_MINUTES = 600; // the scheduler repeats all controls every five
export const say = (line) => console.log(`javascript worker: ${line}`);

/** One connection's life: consumes, runs, records. What is unacked when it is lost comes again to somebody. */
export class Session {
  running = new Map(); // delivery tag → { job, startedAt, abort, done }
  waiting = []; // delivered, not started
  consumers = new Map(); // queue → consumer tag
  returned = new Set();
  connections = [];
  aligning = Promise.resolve();
  caughtUp = false;

  constructor(worker) {
    this.worker = worker;
    this.lost = new Promise((_, reject) => (this.lose = reject));
    this.lost.catch(() => {}); // it may be lost while nobody waits for it
  }

  async serve() {
    try {
      await this.open();
      await Promise.race([this.lost, this.readControls()]);
      say(`ready: ${this.worker.queues.join(", ")}, ${this.worker.concurrency} at once`);
      await Promise.race([this.lost, this.worker.stopped]);
      await Promise.race([this.lost, this.drain()]);
    } finally {
      clearInterval(this.timer);
      // One that the broker is closing itself may never answer.
      await Promise.race([Promise.allSettled(this.connections.map(async (each) => each.close())), sleep(2000)]);
    }
  }

  async open() {
    const connection = await this.connect();
    this.connection = connection;
    // Two channels: a mistake closes a channel, and with the consuming one go all its unacked deliveries.
    this.jobs = this.watched(await connection.createChannel());
    this.publisher = this.watched(await connection.createConfirmChannel());
    this.publisher.on("return", ({ properties }) => this.returned.add(properties.messageId));
    await this.jobs.prefetch(this.worker.concurrency); // for each consumer
    await this.beat();
    this.timer = setInterval(() => this.beat().catch(this.lose), BEAT_EVERY);
  }

  async connect() {
    const properties = { connection_name: `javascript worker ${this.worker.identity}` };
    // With this heartbeat a broker that vanished is noticed after twenty seconds.
    const connection = await connect({ heartbeat: "10" }, { clientProperties: properties, timeout: 10_000 });
    this.connections.push(connection);
    connection.on("close", () => this.lose(new Error("the connection was closed")));
    return this.watched(connection);
  }

  watched(channelOrConnection) {
    return channelOrConnection.on("error", this.lose); // without a listener an "error" event ends the process
  }

  /** Append to a stream; resolves once it is confirmed. Rejects when it was returned, refused or lost. */
  append(stream, text) {
    return new Promise((resolve, reject) => {
      const messageId = randomUUID();
      const options = { persistent: true, mandatory: true, messageId };
      // A broker that was killed may have forgotten it, on a connection that lives.
      const forgotten = () => reject(new Error(`an entry for ${stream} was not confirmed`));
      const limit = setTimeout(forgotten, LONGEST_CONFIRM);
      this.publisher.publish("", stream, Buffer.from(text), options, (error) => {
        clearTimeout(limit);
        // A returned message is confirmed as well; the return comes first.
        if (this.returned.delete(messageId)) reject(new Error(`there is no stream ${stream}`));
        else if (error) reject(error);
        else resolve();
      });
    });
  }

  beat(state = this.worker.state) {
    this.told = state;
    return this.append("heartbeats", JSON.stringify(this.worker.heartbeat(state, [...this.running.values()])));
  }

  // --- controls: a stream, read from ten minutes back --------------------------------------------------------------

  /** Resolves once all that was ordered before is known; no job may start earlier. */
  async readControls() {
    const marker = newId();
    const offset = { "!": "timestamp", value: Math.floor(now() - TEN_MINUTES) };
    // A connection of its own: most mistakes with a stream close all of it.
    const channel = this.watched(await (await this.connect()).createChannel());
    await channel.prefetch(100); // streams demand one
    this.worker.controls.rewind();
    let marked;
    const everythingRead = new Promise((resolve) => (marked = resolve));
    const read = (message) => {
      if (message === null) return this.lose(new Error("the stream controls was deleted"));
      if (this.readControl(message, marker)) marked();
      return channel.ack(message);
    };
    await channel.consume("controls", read, { arguments: { "x-stream-offset": offset } });
    // An entry of a type that nobody knows: when it comes back, everything before it has been read. Only now: a reader
    // that a stream gets while its first entry is written may miss it.
    await this.append("controls", JSON.stringify({ type: "marker", nonce: marker }));
    await everythingRead;
    this.caughtUp = true;
    await this.obey();
  }

  readControl({ content, properties }, marker) {
    let entries;
    try {
      entries = [JSON.parse(content)].flat(); // one entry or an array of them
    } catch {
      return false; // it concerns nobody
    }
    const offset = Number(properties.headers["x-stream-offset"]);
    for (const entry of entries) this.worker.controls.apply(entry, offset);
    if (this.caughtUp) this.obey().catch(this.lose); // before that, a pause may be one that was resumed since
    return entries.some((entry) => entry?.nonce === marker);
  }

  /** Make what is consumed and what runs agree with what is ordered. */
  async obey() {
    const { controls } = this.worker;
    if (controls.stop) this.worker.stop();
    for (const { job, abort } of this.running.values()) if (controls.cancelled.has(job?.jid)) abort.abort();
    this.aligning = this.aligning.then(() => this.align()); // one after the other: each awaits answers of the broker
    await this.aligning;
    if (this.told !== this.worker.state) await this.beat();
  }

  async align() {
    for (const queue of this.worker.queues) {
      const wanted = this.worker.wants(queue);
      if (wanted && !this.consumers.has(queue)) await this.consume(queue);
      if (!wanted && this.consumers.has(queue)) await this.release(queue);
    }
  }

  async consume(queue) {
    await this.ensureQueue(queue);
    const take = (message) => {
      if (message === null) return this.lose(new Error(`queue.${queue} was deleted`));
      this.waiting.push({ queue, message });
      return this.startNext();
    };
    const { consumerTag } = await this.jobs.consume(`queue.${queue}`, take);
    this.consumers.set(queue, consumerTag);
  }

  /** Stop consuming; what was delivered and has not begun goes back to where it was. */
  async release(queue) {
    await this.jobs.cancel(this.consumers.get(queue));
    this.consumers.delete(queue);
    const back = this.waiting.filter((each) => each.queue === queue);
    this.waiting = this.waiting.filter((each) => each.queue !== queue);
    for (const { message } of back) this.jobs.nack(message, false, true);
  }

  /** Passive first: a queue that exists is good as it is. A 404 closes the channel, hence one to throw away. */
  async ensureQueue(queue) {
    const asking = await this.connection.createChannel();
    asking.on("error", () => {}); // the 404: the promise tells it too
    try {
      await asking.checkQueue(`queue.${queue}`);
      await asking.close();
    } catch (error) {
      if (error.code !== 404) throw error;
      const making = this.watched(await this.connection.createChannel());
      await making.assertQueue(`queue.${queue}`, { arguments: { "x-max-priority": 10, "x-queue-type": "classic" } });
      await making.bindQueue(`queue.${queue}`, "jobs.direct", queue);
      await making.close();
    }
  }

  // --- jobs ----------------------------------------------------------------------------------------------------------

  startNext() {
    while (this.running.size < this.worker.concurrency) {
      const next = this.waiting.findIndex(({ queue }) => this.worker.wants(queue));
      if (next < 0) return;
      const [{ queue, message }] = this.waiting.splice(next, 1);
      const run = { startedAt: now(), abort: new AbortController() };
      this.running.set(message.fields.deliveryTag, run);
      run.done = this.process(run, queue, message).catch(this.lose);
    }
  }

  /** The order is the point: what happened is confirmed by the broker before the job is acked. */
  async process(run, queue, message) {
    const { worker } = this;
    try {
      run.job = readJob(message.content, queue, message.properties.messageId);
      await this.settle(run, message.properties);
    } catch (error) {
      if (!(error instanceof NotAJob)) throw error;
      await this.append("dead_jobs", unreadable(message.content, queue, error, worker.identity));
    }
    this.jobs.ack(message);
    this.running.delete(message.fields.deliveryTag);
    this.startNext();
  }

  async settle({ job, startedAt, abort }, properties) {
    const { cancelled } = this.worker.controls;
    let status = "success";
    let failure;
    if (cancelled.has(job.jid)) status = "cancelled";
    else if (expired(job)) status = "expired";
    else if ((failure = await attempt({ job, signal: abort.signal }))) {
      // What fails after it was told to stop has stopped: it is not tried again.
      status = cancelled.has(job.jid) ? "cancelled" : "failed";
    }
    const endedAt = now();
    const { identity } = this.worker;
    const outcome = status === "failed" && failed(job, failure, endedAt, identity, properties);
    if (outcome) await this.append(...outcome);
    await this.append("job_metrics", metric(job, status, startedAt, endedAt, identity, failure?.error_class));
    const why = status === "failed" ? `: ${failure.error_class}: ${failure.error_message}` : "";
    say(`${job.jid} ${job.jobClass} retry_count=${job.retryCount} ${status}${why}`);
  }

  /** Take nothing more, give back what has not begun, finish what runs, say goodbye. */
  async drain() {
    await this.obey();
    const done = [...this.running.values()].map((run) => run.done);
    await Promise.race([Promise.all(done), sleep(this.worker.timeout * 1000)]);
    await this.beat("stopped");
  }
}

/** Run the handler; what it threw, in the words of an entry. */
async function attempt(context) {
  const { jid, jobClass, args } = context.job;
  say(`${jid} ${jobClass} starts`);
  if (tracked(context.job)) return { error_class: "Tracked", error_message: TRACKED, backtrace: "" };
  const handler = handlers.get(jobClass);
  if (!handler) return { error_class: "UnknownJobClass", error_message: `no handler for ${jobClass}`, backtrace: "" };
  try {
    await (Array.isArray(args) ? handler(context, ...args) : handler(context, args));
    return undefined;
  } catch (thrown) {
    const error = thrown instanceof Error ? thrown : new Error(`threw a ${typeof thrown}`);
    return { error_class: error.name, error_message: String(error.message), backtrace: error.stack ?? "" };
  }
}
