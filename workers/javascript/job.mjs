// What a job is: reading what others wrote, and writing what became of it (docs/protocol.md, sections 4 to 8).
import { randomBytes } from "node:crypto";

const MONTH = 30 * 86_400;
const NUMBER = /^[+-]?\d+(\.\d*)?([eE][+-]?\d+)?$/;
const utf8 = new TextDecoder("utf-8", { fatal: true });

export const now = () => Date.now() / 1000;
export const newId = () => randomBytes(12).toString("hex");

/** Why a message cannot be run; it goes to `dead_jobs` as it came. */
export class NotAJob extends Error {}

/** The job in a message's body. Throws NotAJob, and nothing else. */
export function readJob(body, queue, messageId) {
  const [raw, sent] = parse(body);
  if (sent === null || typeof sent !== "object" || Array.isArray(sent)) throw new NotAJob("a job is an object");
  if (typeof sent.class !== "string" || sent.class === "") throw new NotAJob("no class");
  const args = sent.args ?? [];
  if (typeof args !== "object") throw new NotAJob("args is neither a list nor an object");
  const job = {
    jid: name(sent.jid) ?? (messageId || newId()),
    jobClass: sent.class,
    args,
    queue: name(sent.queue) ?? queue,
    retry: whole(sent.retry, 25),
    retryCount: whole(sent.retry_count, 0),
    enqueuedAt: time(sent.enqueued_at),
    sent,
  };
  // The text as it came is what travels on: JSON.parse rounds long integers, so writing `sent` again would change them.
  // Only a queue that it does not name is added, since a retry must lead back to where it came from.
  job.raw = name(sent.queue) ? raw : `${raw.slice(0, -1)},"queue":${JSON.stringify(job.queue)}}`;
  return job;
}

function parse(body) {
  try {
    const raw = utf8.decode(body).trim();
    return [raw, JSON.parse(raw)];
  } catch (error) {
    throw new NotAJob(`not JSON: ${error.message}`);
  }
}

/** A string that is not empty; a number is its digits. */
function name(value) {
  if (typeof value === "number") return JSON.stringify(value);
  return typeof value === "string" && value !== "" ? value : undefined;
}

function number(value) {
  return typeof value === "number" && Number.isFinite(value) ? value : undefined;
}

/** Seconds since 1970; from 1e11 on a number counts milliseconds. */
function time(value) {
  return number(value) >= 1e11 ? value / 1000 : number(value);
}

/** A count between 0 and 1000: the whole part of a number, also one in text; false is none. */
function whole(value, otherwise) {
  if (value === false) return 0;
  const found = typeof value === "string" && NUMBER.test(value) ? Number(value) : value;
  return typeof found === "number" ? Math.trunc(Math.max(0, Math.min(1000, found))) : otherwise;
}

/** Whether a worker needs a lease to run it (docs/tracked.md). Without one, two could run it at once. */
export const tracked = (job) => job.sent.track === true || name(job.sent.key) !== undefined;
export const TRACKED = "it is tracked, and this worker takes no leases: workers of amqpjobs (Python) do";

/** Whether it waited in its queue for longer than it may. */
export function expired(job) {
  const limit = number(job.sent.expires_in);
  return limit > 0 && now() > job.enqueuedAt + limit;
}

/** Seconds until the next try (section 6). */
export function backoff({ retryCount: count, sent }, random = Math.random()) {
  const delays = sent.retry_delays;
  const [least, most] = [number(sent.min_backoff), number(sent.max_backoff)];
  let delay = count ** 4 + 15 + random * 30 * (count + 1);
  if (Array.isArray(delays) && delays.length) delay = number(delays[Math.min(count, delays.length - 1)]) ?? 0;
  else if (least !== undefined || most !== undefined) delay = Math.min((least ?? 1) * 2 ** count, most ?? MONTH);
  return Math.max(0, Math.min(MONTH, delay));
}

/** The stream and the entry of a failed run: tried again, dead, or (undefined) discarded. */
export function failed(job, failure, at, identity, properties) {
  const again = job.retryCount < job.retry;
  if (!again && job.sent.dead === false) return undefined;
  const entry = again
    ? { type: "retry", retry_at: at + backoff(job), retry_count: job.retryCount + 1 }
    : { type: "dead_job", died_at: at, retry_count: job.retryCount };
  Object.assign(entry, { jid: job.jid, failed_at: at, attempt: job.retryCount + 1, worker_identity: identity });
  Object.assign(entry, failure, { properties: kept(properties) });
  return [again ? "retries" : "dead_jobs", `${JSON.stringify(entry).slice(0, -1)},"job":${job.raw}}`];
}

/** The `dead_jobs` entry of what is no job. */
export function unreadable(body, queue, error, identity) {
  const entry = { type: "dead_job", jid: newId(), died_at: now(), retry_count: 0, queue, worker_identity: identity };
  Object.assign(entry, { error_class: "Malformed", error_message: error.message });
  try {
    entry.raw = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(body);
  } catch {
    entry.raw_base64 = body.toString("base64");
  }
  return JSON.stringify(entry);
}

/** The `job_metrics` entry of a run, or of a job that was taken and not run. */
export function metric(job, status, startedAt, endedAt, identity, errorClass) {
  const entry = { type: "job_metric", timestamp: endedAt, jid: job.jid, job_class: job.jobClass, queue: job.queue };
  Object.assign(entry, { status, duration_ms: Math.max(0, endedAt - startedAt) * 1000, attempt: job.retryCount + 1 });
  if (job.enqueuedAt !== undefined) entry.wait_ms = Math.max(0, startedAt - job.enqueuedAt) * 1000;
  return JSON.stringify({ ...entry, worker_identity: identity, error_class: errorClass });
}

/** What of a delivery's properties must be there again when the job is released. */
function kept({ priority, correlationId, headers }) {
  const scalar = ([key, value]) => !key.startsWith("x-") && ["string", "number", "boolean"].includes(typeof value);
  return {
    priority,
    correlation_id: correlationId,
    headers: Object.fromEntries(Object.entries(headers ?? {}).filter(scalar)),
  };
}
