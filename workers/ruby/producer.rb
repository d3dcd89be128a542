# frozen_string_literal: true

# A producer in plain bunny: one confirmed publish (docs/protocol.md, sections 1 and 2).
#
#   ruby workers/ruby/producer.rb enqueue default echo '["hello", 7]'
#   ruby workers/ruby/producer.rb schedule default echo '["later"]' 60
require "bunny"
require "json"
require "securerandom"
require_relative "broker"

# Publishes to a channel of its own, in confirm mode.
class Producer
  class NotTaken < StandardError; end

  def initialize(connection)
    @channel = connection.create_channel
    @channel.confirm_select
    [@channel.direct("jobs.direct", passive: true), @channel.default_exchange].each do |exchange|
      exchange.on_return { |info, *| @returned = info.reply_text }
    end
  end

  # Puts a job on its queue; its jid. Raises when the broker did not take it, or knows no such queue.
  def enqueue(queue, job_class, args, **more)
    jid = SecureRandom.hex(12)
    job = { jid: jid, class: job_class, args: args, queue: queue, retry: 25, enqueued_at: Time.now.to_f }
    publish("jobs.direct", queue, job.merge(more))
    jid
  end

  # Puts a job on its queue at a time (seconds since 1970); its jid.
  def schedule(queue, job_class, args, at, **more)
    jid = SecureRandom.hex(12)
    job = { class: job_class, args: args, queue: queue, retry: 25 }.merge(more)
    publish("", "scheduled_jobs", { type: "scheduled_job", jid: jid, scheduled_at: at, job: job })
    jid
  end

  private

  def publish(exchange, key, value)
    @returned = nil
    @channel.basic_publish(JSON.generate(value), exchange, key, persistent: true, mandatory: true)
    raise NotTaken, "refused" unless @channel.wait_for_confirms
    # What no queue takes is confirmed too, but it is returned first.
    raise NotTaken, @returned if @returned
  end
end

if $PROGRAM_NAME == __FILE__
  verb, queue, job_class, args, seconds = ARGV
  connection = Broker.session
  connection.start
  producer = Producer.new(connection)
  given = [queue, job_class, JSON.parse(args)]
  puts verb == "schedule" ? producer.schedule(*given, Time.now.to_f + Float(seconds)) : producer.enqueue(*given)
  connection.close
end
