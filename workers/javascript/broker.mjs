// Where the broker is, as amqplib needs to be told.
import amqp from "amqplib";

const ADDRESS = process.env.AMQPJOBS_URL ?? "amqp://guest:guest@127.0.0.1:5672";

/** A connection; `query` is added to the address. The login is given apart: amqplib reads %C3%A9 in it as two letters. */
export function connect(query = {}, options = {}) {
  const url = new URL(ADDRESS);
  for (const [name, value] of Object.entries(query)) url.searchParams.set(name, value);
  const login = [url.username || "guest", url.password || "guest"].map(decodeURIComponent);
  return amqp.connect(url.href, { credentials: amqp.credentials.plain(...login), ...options });
}
