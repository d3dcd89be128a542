// BullMQ over Redis: `node app.js work`, and `node app.js N JOB`, which enqueues.
// It is run from the folder that benchmarks/setup installed bullmq into.
const { createRequire } = require("node:module");
const { appendFileSync } = require("node:fs");
const { Queue, Worker } = createRequire(process.cwd() + "/")("bullmq");

const connection = { host: "127.0.0.1", port: Number(process.env.BENCH_REDIS_PORT), maxRetriesPerRequest: null };
const data = { arguments: [1, "foo", { k: "v" }] };

async function run(job) {
  if (job.name === "tick") appendFileSync(process.env.BENCH_TICKS, ".");
}

function work() {
  const concurrency = Number(process.env.BENCH_CONCURRENCY ?? 100);
  const worker = new Worker("bench", run, { connection, concurrency });
  process.on("SIGTERM", async () => {
    await worker.close();
    process.exit(0);
  });
}

async function enqueue(jobs, name) {
  const queue = new Queue("bench", { connection });
  const opts = { removeOnComplete: true }; // results are not kept, as in the other products
  const started = process.hrtime.bigint();
  for (let sent = 0; sent < jobs; sent += 1000) {
    const some = Math.min(1000, jobs - sent);
    await queue.addBulk(Array.from({ length: some }, () => ({ name, data, opts })));
  }
  console.log(JSON.stringify({ jobs, seconds: Number(process.hrtime.bigint() - started) / 1e9 }));
  await queue.close();
}

if (process.argv[2] === "work") work();
else enqueue(Number(process.argv[2]), process.argv[3]);
