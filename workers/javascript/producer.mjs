// A producer in plain amqplib: one confirmed publish (docs/protocol.md, sections 1 and 2).
//
//   node workers/javascript/producer.mjs enqueue default echo '["hello", 7]'
//   node workers/javascript/producer.mjs schedule default echo '["later"]' 60
import { randomBytes } from "node:crypto";
import { pathToFileURL } from "node:url";
import { connect } from "./broker.mjs";

/** Put a job on its queue; its jid. Rejects when the broker did not take it, or knows no such queue. */
export async function enqueue(channel, queue, jobClass, args, more = {}) {
  const jid = randomBytes(12).toString("hex");
  const job = { jid, class: jobClass, args, queue, retry: 25, retry_count: 0, enqueued_at: Date.now() / 1000, ...more };
  await publish(channel, "jobs.direct", queue, job);
  return jid;
}

/** Put a job on its queue at a time (seconds since 1970); its jid. */
export async function schedule(channel, queue, jobClass, args, at, more = {}) {
  const jid = randomBytes(12).toString("hex");
  const job = { class: jobClass, args, queue, retry: 25, ...more };
  await publish(channel, "", "scheduled_jobs", { type: "scheduled_job", jid, scheduled_at: at, job });
  return jid;
}

function publish(channel, exchange, key, value) {
  return new Promise((resolve, reject) => {
    // `mandatory`: a message that no queue takes is confirmed too, but it is returned first.
    const unroutable = () => reject(new Error(`nothing takes what is sent to "${exchange}" with key "${key}"`));
    channel.once("return", unroutable);
    const options = { persistent: true, mandatory: true };
    channel.publish(exchange, key, Buffer.from(JSON.stringify(value)), options, (error) => {
      channel.off("return", unroutable);
      if (error) reject(error);
      else resolve();
    });
  });
}

async function main([verb, queue, jobClass, args, seconds]) {
  const connection = await connect();
  const channel = await connection.createConfirmChannel();
  const given = [channel, queue, jobClass, JSON.parse(args)];
  if (verb === "schedule") console.log(await schedule(...given, Date.now() / 1000 + Number(seconds)));
  else console.log(await enqueue(...given));
  await connection.close();
}

if (import.meta.url === pathToFileURL(process.argv[1]).href) await main(process.argv.slice(2));
