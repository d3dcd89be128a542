# frozen_string_literal: true

# One connection of the worker. Each job runs in a thread of its own, so a slow one holds up neither the heartbeats nor
# the connection. Everything that touches a channel happens on the main thread, which takes one event after the other:
# channels are not for sharing.
require "bunny"
require "json"
require "timeout"
require_relative "broker"
require_relative "handlers"
require_relative "job"

BEAT_EVERY = 10 # seconds
LONGEST_CONFIRM = 10 # seconds
TEN_MINUTES = 600 # the scheduler repeats all controls every five

Run = Struct.new(:job, :tag, :properties, :context, :started_at, keyword_init: true)
Delivery = Struct.new(:queue, :tag, :properties, :body)

# The connection is gone, or as good as that. Whatever was unacked comes again, to somebody.
class Lost < StandardError; end

# Bunny raises a loss in the thread that opened the connection, in the middle of anything, unless it is given another
# object to raise it in. This one makes an event of it, which comes in turn, and wakes who waits for a confirm.
Losses = Struct.new(:events, :confirms) do
  def raise(*error)
    events << [:lost, error.first]
    confirms << :lost
  end
end

# One connection's life: consumes, runs, records.
class Session
  def initialize(worker)
    @worker = worker
    @events = Thread::Queue.new
    @confirms = Thread::Queue.new
    @connections = []
    @running = {} # by delivery tag
    @waiting = [] # delivered, not started
    @consumers = {} # by queue
    @caught_up = false
  end

  def ready? = @caught_up

  def serve
    open
    read_controls
    handle(*@events.pop) until @caught_up || @worker.stopping
    @worker.say("ready: #{@worker.queues.join(', ')}, #{@worker.concurrency} at once")
    handle(*@events.pop) until @worker.stopping
    drain
  ensure
    @beats&.kill
    @connections.each { |connection| close(connection) }
  end

  # From any thread, and from a signal's trap.
  def wake = @events << [:wake]

  private

  def open
    @connection = connect
    # Two channels: a mistake closes a channel, and with the consuming one go all its unacked deliveries.
    @publisher = @connection.create_channel
    @publisher.confirm_select(->(_tag, _multiple, refused) { @confirms << (refused ? :refused : :confirmed) })
    @publisher.default_exchange.on_return { |info, *| @returned = info }
    # One thread that hands deliveries over; the last number bounds how long a cancel waits for it, in seconds.
    @jobs = @connection.create_channel(nil, 1, false, 0.1)
    @jobs.prefetch(@worker.concurrency) # for each consumer
    beat
    @beats = Thread.new do
      loop do
        Kernel.sleep(BEAT_EVERY)
        @events << [:beat]
      end
    end
  end

  def connect
    # Bunny would recover by itself, its consumers at the offsets of old and its acks on other deliveries.
    connection = Broker.session(heartbeat: 10, connection_timeout: 10,
                                automatically_recover: false, recover_from_connection_close: false,
                                session_error_handler: Losses.new(@events, @confirms), logger: Logger.new(nil),
                                client_properties: { connection_name: "ruby worker #{@worker.identity}" })
    @connections << connection
    connection.start
  end

  def close(connection)
    connection.close
  rescue StandardError
    nil # it was lost already
  end

  # Appends to a stream; returns once it is confirmed. Raises when it was returned, refused or lost.
  def append(stream, entry)
    @returned = nil
    @publisher.basic_publish(entry, "", stream, persistent: true, mandatory: true, content_type: "application/json")
    # A broker that was killed may have forgotten it, on a connection that lives.
    outcome = Timeout.timeout(LONGEST_CONFIRM, Lost, "an entry for #{stream} was not confirmed") { @confirms.pop }
    raise Lost, "an entry for #{stream} was #{outcome}" unless outcome == :confirmed
    # A returned message is confirmed as well; the return comes first.
    raise Lost, "there is no stream #{stream}" if @returned
  end

  def handle(event, *details)
    case event
    when :delivery then (@waiting << Delivery.new(*details)) && start_next
    when :done then settle(*details)
    when :control then read_control(*details)
    when :beat then beat
    when :lost then raise Lost, details.first.to_s
    end
  end

  def beat(state = @worker.state)
    @told = state
    append("heartbeats", JSON.generate(@worker.heartbeat(state, @running.values)))
  end

  # --- controls: a stream, read from ten minutes back --------------------------------------------------------------

  def read_controls
    # A connection of its own: most mistakes with a stream close all of it.
    channel = connect.create_channel
    channel.prefetch(100) # streams demand one
    @worker.controls.rewind
    from = { "x-stream-offset" => Time.now - TEN_MINUTES }
    channel.queue("controls", passive: true)
           .subscribe(manual_ack: true, arguments: from, on_cancellation: deleted("controls")) do |info, properties, body|
      @events << [:control, body, properties.headers["x-stream-offset"]]
      channel.ack(info.delivery_tag)
    end
    # An entry of a type that nobody knows: when it comes back, everything before it has been read.
    @marker = new_id
    append("controls", JSON.generate(type: "marker", nonce: @marker))
  end

  def deleted(queue) = ->(*) { @events << [:lost, "#{queue} was deleted"] }

  def read_control(body, offset)
    value = parse(body.force_encoding(Encoding::UTF_8))
    entries = value.is_a?(Array) ? value : [value] # one entry or an array of them
    entries.each { |entry| @worker.controls.apply(entry, offset) }
    @caught_up ||= entries.any? { |entry| entry.is_a?(Hash) && entry["nonce"] == @marker }
    obey if @caught_up # before that, a pause may be one that was resumed since
  rescue NotAJob
    nil # not JSON: it concerns nobody
  end

  # Make what is consumed and what runs agree with what is ordered.
  def obey
    controls = @worker.controls
    @worker.stop if controls.stop?
    @running.each_value { |run| run.context.cancel if controls.cancelled.key?(run.job.jid) }
    @worker.queues.each do |queue|
      wanted = @worker.wants?(queue)
      consume(queue) if wanted && !@consumers.key?(queue)
      release(queue) if !wanted && @consumers.key?(queue)
    end
    beat if @told != @worker.state
  end

  def consume(queue)
    ensure_queue(queue)
    taken = @jobs.queue("queue.#{queue}", passive: true)
    cancelled = deleted("queue.#{queue}")
    @consumers[queue] = taken.subscribe(manual_ack: true, on_cancellation: cancelled) do |info, properties, body|
      @events << [:delivery, queue, info.delivery_tag, properties, body]
    end
  end

  # Stop consuming; what was delivered and has not begun goes back to where it was.
  def release(queue)
    @consumers.delete(queue).cancel
    back, @waiting = @waiting.partition { |delivery| delivery.queue == queue }
    back.each { |delivery| @jobs.nack(delivery.tag, false, true) }
  end

  # Passive first: a queue that exists is good as it is.
  def ensure_queue(queue)
    return if @connection.queue_exists?("queue.#{queue}")

    making = @connection.create_channel
    arguments = { "x-max-priority" => 10, "x-queue-type" => "classic" }
    making.queue("queue.#{queue}", durable: true, arguments: arguments).bind("jobs.direct", routing_key: queue)
    making.close
  end

  # --- jobs ----------------------------------------------------------------------------------------------------------

  def start_next
    while @running.size < @worker.concurrency && (delivery = @waiting.shift)
      if @worker.wants?(delivery.queue) then start(delivery)
      else @jobs.nack(delivery.tag, false, true) # it arrived while its consumer was being cancelled
      end
    end
  end

  def start(delivery)
    job = read_job(delivery.body, delivery.queue, delivery.properties.message_id)
    run = Run.new(job: job, tag: delivery.tag, properties: delivery.properties, context: Context.new(job),
                  started_at: now)
    @running[run.tag] = run
    return settle(run, "cancelled") if @worker.controls.cancelled.key?(job.jid)
    return settle(run, "expired") if expired?(job)

    @worker.say("#{job.jid} #{job.job_class} starts")
    Thread.new do
      failure = attempt(run.context)
      @events << [:done, run, failure ? "failed" : "success", failure]
    end
  rescue NotAJob => e
    append("dead_jobs", unreadable(delivery.body, delivery.queue, e, @worker.identity))
    @jobs.ack(delivery.tag)
  end

  # The order is the point: what happened is confirmed by the broker before the job is acked.
  def settle(run, status, failure = nil)
    job = run.job
    at = now
    # What fails after it was told to stop has stopped: it is not tried again.
    status = "cancelled" if status == "failed" && run.context.cancelled?
    outcome = status == "failed" && failed(job, failure, at, @worker.identity, run.properties)
    append(*outcome) if outcome
    append("job_metrics", metric(job, status, run.started_at, at, @worker.identity, failure&.fetch(:error_class)))
    @jobs.ack(run.tag)
    @running.delete(run.tag)
    why = ": #{failure.fetch(:error_class)}: #{failure.fetch(:error_message)}" if status == "failed"
    @worker.say("#{job.jid} #{job.job_class} retry_count=#{job.retry_count} #{status}#{why}")
    start_next
  end

  # Take nothing more, give back what has not begun, finish what runs, say goodbye.
  def drain
    obey
    Thread.new do
      Kernel.sleep(@worker.timeout)
      @events << [:deadline]
    end
    until @running.empty?
      event = @events.pop
      break if event == [:deadline]

      handle(*event)
    end
    beat("stopped")
  end
end

# Runs the handler; what it raised, in the words of an entry. Exception: a handler's `exit` is one failed run.
def attempt(context)
  job = context.job
  return failure("Tracked", TRACKED, []) if tracked?(job)

  handler = HANDLERS[job.job_class]
  return failure("UnknownJobClass", "no handler for #{job.job_class}", []) unless handler

  if job.args.is_a?(Hash) then handler.call(context, **job.args.transform_keys(&:to_sym))
  else handler.call(context, *job.args)
  end
  nil
rescue Exception => e # rubocop:disable Lint/RescueException
  failure(e.class.to_s, worded(e), e.backtrace || [])
end

def worded(error)
  error.message.to_s
rescue StandardError
  "its message could not be told"
end

def failure(error_class, message, backtrace)
  { error_class: error_class, error_message: text(message), backtrace: text(backtrace.join("\n")) }
end
