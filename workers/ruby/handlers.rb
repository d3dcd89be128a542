# frozen_string_literal: true

require "json"

# Raised in a handler that waits, when an operator cancels its job.
class Cancelled < StandardError; end

# What a handler may know: its job, and whether somebody wants it to stop.
class Context
  attr_reader :job

  def initialize(job)
    @job = job
    @lock = Mutex.new
    @changed = ConditionVariable.new
    @cancelled = false
  end

  # For loops: `raise Cancelled if context.cancelled?`. Thread#raise would do it for them, in the middle of anything.
  def cancelled? = @cancelled

  def cancel
    @lock.synchronize do
      @cancelled = true
      @changed.broadcast
    end
  end

  # Sleeps for so many seconds; raises Cancelled as soon as the job is.
  def sleep(seconds)
    ends = Process.clock_gettime(Process::CLOCK_MONOTONIC) + seconds
    @lock.synchronize do
      until @cancelled || (left = ends - Process.clock_gettime(Process::CLOCK_MONOTONIC)) <= 0
        @changed.wait(@lock, left)
      end
    end
    raise Cancelled, "cancelled" if @cancelled
  end
end

# The handlers by class. Each gets a context and the arguments: positional, or keywords when they came by name.
HANDLERS = {
  "echo" => lambda { |context, *, **|
    File.open(ENV.fetch("OUT"), "a") { |out| out.puts(JSON.generate(context.job.args)) }
  },
  "fail" => ->(_, *, **) { raise "this job always fails" },
  "flaky" => lambda { |context, failures|
    raise "run #{context.job.retry_count + 1} fails" if context.job.retry_count < failures
  },
  "slow" => ->(context, seconds) { context.sleep(seconds) }
}.freeze
