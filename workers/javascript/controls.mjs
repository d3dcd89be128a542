// The orders of operators, folded from the stream `controls` (docs/protocol.md, section 9).
import { now } from "./job.mjs";

const DAY = 86_400;

export class Controls {
  paused = new Set();
  cancelled = new Map(); // jid → when
  quiet = false; // true for good: a process that is told to be quiet or to stop never takes it back
  stop = false;
  #names;
  #bootAt;
  #last = -1; // the offset of the last order that counted

  constructor({ identity, nonce, bootAt }) {
    this.#names = new Set(["*", identity, nonce]);
    this.#bootAt = bootAt;
  }

  /** The stream is read anew, perhaps from another one of that name, in which offsets begin again. */
  rewind() {
    this.#last = -1;
  }

  /** The entry of a message at this offset. Whatever others may append: what this does not know has no effect. */
  apply(entry, offset) {
    if (entry?.type === "control") {
      this.#last = offset;
      this.#apply(entry);
    }
    // One whose writer had not yet read the last order would take that back; another one follows.
    if (entry?.type === "controls_snapshot" && !(entry.after < this.#last)) this.#replace(entry);
    for (const [jid, at] of this.cancelled) if (!(at > now() - DAY)) this.cancelled.delete(jid);
  }

  #apply({ op, queue, jid, process, at }) {
    if (op === "pause") this.paused.add(queue);
    else if (op === "resume") this.paused.delete(queue);
    else if (op === "cancel") this.cancelled.set(jid, at);
    // An order to "*" must not stop a process that was started after it, perhaps because of it.
    else if (this.#names.has(process) && this.#bootAt < at) {
      if (op === "quiet") this.quiet = true;
      if (op === "stop") this.stop = true;
    }
  }

  #replace({ paused, cancelled, orders }) {
    this.paused = new Set(list(paused));
    this.cancelled = new Map(list(cancelled).map((each) => [each?.jid, each?.at]));
    for (const order of list(orders)) if (order) this.#apply(order);
  }
}

const list = (value) => (Array.isArray(value) ? value : []);
