# frozen_string_literal: true

# A worker in plain bunny, written from docs/protocol.md.
#
#   ruby workers/ruby/worker.rb -q default -c 4
require "optparse"
require "socket"
require_relative "controls"
require_relative "job"
require_relative "session"

VERSION = "1.0.0"

# Queues and who we are; serves one connection after the other until it is told to stop.
class Worker
  attr_reader :queues, :concurrency, :timeout, :identity, :controls, :stopping

  def initialize(queues:, concurrency:, timeout:)
    @queues = queues
    @concurrency = concurrency
    @timeout = timeout
    @identity = "#{Socket.gethostname}:#{Process.pid}:ruby"
    @nonce = new_id
    @boot_at = now
    @controls = Controls.new([@identity, @nonce], @boot_at)
    @stopping = false
  end

  def stop
    @stopping = true
    @session&.wake
  end

  # Whether to take jobs of a queue.
  def wants?(queue) = !@stopping && !@controls.quiet? && !@controls.paused.include?(queue)

  def paused = @queues & @controls.paused

  def state
    return "stopping" if @stopping
    return "quiet" if @controls.quiet?

    paused.empty? ? "running" : "paused: #{paused.join(', ')}"
  end

  def run
    pause = 0.5
    until @stopping
      begin
        @session = Session.new(self)
        @session.serve
      rescue Lost, Bunny::Exception, SystemCallError, Timeout::Error => e
        pause = 0.5 if @session.ready?
        say("broker: #{e.message}; again in #{pause} s")
        sleep(pause)
        pause = [5, pause * 2].min
      end
    end
  end

  def say(line) = puts("ruby worker: #{line}")

  def heartbeat(state, runs)
    running = runs.map do |run|
      { jid: run.job.jid, class: text(run.job.job_class), queue: run.job.queue, started_at: run.started_at }
    end
    beat = { type: "heartbeat", identity: @identity, nonce: @nonce, hostname: Socket.gethostname, pid: Process.pid,
             tag: "ruby", concurrency: @concurrency, busy: running.size, beat: now, boot_at: @boot_at,
             rss_kb: resident_kb, queues: @queues, version: VERSION, state: state, running: running }
    paused.empty? ? beat : beat.merge(paused: paused)
  end

  def resident_kb
    File.read("/proc/self/statm").split[1].to_i * 4
  rescue SystemCallError
    nil
  end
end

options = { queue: [], concurrency: 4, timeout: 25.0 }
OptionParser.new do |parser|
  parser.on("-q", "--queue NAME") { |name| options[:queue] << name }
  parser.on("-c", "--concurrency N", Integer) { |n| options[:concurrency] = n }
  parser.on("-t", "--timeout SECONDS", Float) { |seconds| options[:timeout] = seconds }
end.parse!
$stdout.sync = true
worker = Worker.new(queues: options[:queue].empty? ? ["default"] : options[:queue], concurrency: options[:concurrency],
                    timeout: options[:timeout])
%w[TERM INT].each { |signal| trap(signal) { worker.stop } }
worker.run
