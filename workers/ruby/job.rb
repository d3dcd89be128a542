# frozen_string_literal: true

# What a job is: reading what others wrote, and writing what became of it (docs/protocol.md, sections 4 to 8).
require "base64"
require "json"
require "securerandom"

MONTH = 30 * 86_400
NUMBER = /\A[+-]?\d+(\.\d*)?([eE][+-]?\d+)?\z/.freeze

# Why a message cannot be run; it goes to `dead_jobs` as it came.
class NotAJob < StandardError; end

# `sent` is the object as it came, for its optional members; `raw` is its text.
Job = Struct.new(:jid, :job_class, :args, :queue, :retries, :retry_count, :enqueued_at, :sent, :raw, keyword_init: true)

def now = Time.now.to_f

def new_id = SecureRandom.hex(12)

# Raises NotAJob, and nothing else.
def read_job(body, queue, message_id)
  raw = body.dup.force_encoding(Encoding::UTF_8).delete_prefix("\uFEFF")
  sent = parse(raw)
  raise NotAJob, "a job is an object, not a #{sent.class}" unless sent.is_a?(Hash)
  raise NotAJob, "no class" unless sent["class"].is_a?(String) && !sent["class"].empty?

  args = sent["args"].nil? ? [] : sent["args"]
  raise NotAJob, "args is neither a list nor an object" unless args.is_a?(Array) || args.is_a?(Hash)

  named = name(sent["queue"])
  Job.new(jid: name(sent["jid"]) || name(message_id) || new_id, job_class: sent["class"], args: args,
          queue: named || queue, retries: whole(sent["retry"], 25), retry_count: whole(sent["retry_count"], 0),
          enqueued_at: instant(sent["enqueued_at"]), sent: sent,
          # The text as it came is what travels on, digit by digit. Only a queue that it does not name is added, since
          # a retry must lead back to where it came from.
          raw: named ? raw : "#{raw.rstrip.delete_suffix('}')},\"queue\":#{JSON.generate(queue)}}")
end

def parse(raw)
  raise NotAJob, "not UTF-8" unless raw.valid_encoding?

  JSON.parse(raw, allow_nan: true, max_nesting: 200)
rescue JSON::ParserError => e
  raise NotAJob, "not JSON: #{text(e.message)[0, 200]}"
end

# Whether a worker needs a lease to run it (docs/tracked.md). Without one, two could run it at once.
def tracked?(job) = job.sent["track"] == true || !name(job.sent["key"]).nil?

TRACKED = "it is tracked, and this worker takes no leases: workers of amqpjobs (Python) do"

# A string that is not empty; a number is its digits.
def name(value)
  return value.to_s if value.is_a?(Numeric)

  text(value) if value.is_a?(String) && !value.empty?
end

# Text that JSON can hold: a message may be in any encoding, and half of a surrogate pair is a valid escape.
def text(value)
  value = value.dup.force_encoding(Encoding::UTF_8) if value.encoding == Encoding::BINARY
  value.encode(Encoding::UTF_8, invalid: :replace, undef: :replace).scrub
end

def number(value)
  value.to_f if value.is_a?(Numeric) && value.to_f.finite?
end

# Seconds since 1970; from 1e11 on a number counts milliseconds.
def instant(value)
  value = number(value)
  value && value >= 1e11 ? value / 1000 : value
end

# A count between 0 and 1000: the whole part of a number, also one in text; false is none.
def whole(value, otherwise)
  return 0 if value == false

  value = value.to_f if value.is_a?(String) && NUMBER.match?(value)
  return otherwise if !value.is_a?(Numeric) || value.to_f.nan?

  value.clamp(0, 1000).to_i
end

# Whether it waited in its queue for longer than it may.
def expired?(job)
  limit = number(job.sent["expires_in"])
  !limit.nil? && limit.positive? && !job.enqueued_at.nil? && now > job.enqueued_at + limit
end

# Seconds until the next try (section 6).
def backoff(job)
  count = job.retry_count
  delays, least, most = job.sent.values_at("retry_delays", "min_backoff", "max_backoff")
  least = number(least)
  most = number(most)
  delay = if delays.is_a?(Array) && delays.any? then number(delays[[count, delays.size - 1].min]) || 0
          elsif least || most then [(least || 1) * 2.0**[count, 64].min, most || MONTH].min
          else count**4 + 15 + rand * 30 * (count + 1)
          end
  delay.clamp(0, MONTH)
end

# The stream and the entry of a failed run: tried again, dead, or (nil) discarded.
def failed(job, failure, at, identity, properties)
  again = job.retry_count < job.retries
  return if !again && job.sent["dead"] == false

  entry = if again then { type: "retry", retry_at: at + backoff(job), retry_count: job.retry_count + 1 }
          else { type: "dead_job", died_at: at, retry_count: job.retry_count }
          end
  entry.update(jid: job.jid, failed_at: at, attempt: job.retry_count + 1, worker_identity: identity,
               properties: kept(properties), **failure)
  [again ? "retries" : "dead_jobs", "#{JSON.generate(entry).delete_suffix('}')},\"job\":#{job.raw}}"]
end

# The `dead_jobs` entry of what is no job.
def unreadable(body, queue, error, identity)
  raw = body.dup.force_encoding(Encoding::UTF_8)
  kept = raw.valid_encoding? ? { raw: raw } : { raw_base64: Base64.strict_encode64(body) }
  JSON.generate(type: "dead_job", jid: new_id, died_at: now, retry_count: 0, queue: queue, error_class: "Malformed",
                error_message: error.message, worker_identity: identity, **kept)
end

# The `job_metrics` entry of a run, or of a job that was taken and not run.
def metric(job, status, started_at, ended_at, identity, error_class)
  waited = job.enqueued_at && [0, started_at - job.enqueued_at].max * 1000
  entry = { type: "job_metric", timestamp: ended_at, jid: job.jid, job_class: text(job.job_class), queue: job.queue,
            status: status, duration_ms: [0, ended_at - started_at].max * 1000, attempt: job.retry_count + 1,
            wait_ms: waited, worker_identity: identity, error_class: error_class }
  JSON.generate(entry.compact)
end

# What of a delivery's properties must be there again when the job is released.
def kept(properties)
  headers = (properties.headers || {}).reject { |key, _| key.start_with?("x-") }
  headers = headers.select { |_, value| [String, Integer, Float, TrueClass, FalseClass].include?(value.class) }
  { priority: properties.priority, correlation_id: properties.correlation_id&.then { |id| text(id) },
    headers: headers.transform_values { |value| value.is_a?(String) ? text(value) : value } }.compact
end
