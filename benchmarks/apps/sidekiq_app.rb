# Sidekiq over Redis: `sidekiq -r sidekiq_app.rb`, and `ruby sidekiq_app.rb N JOB`, which enqueues.
require "json"
require "sidekiq"

url = "redis://127.0.0.1:#{ENV.fetch("BENCH_REDIS_PORT")}/0"
Sidekiq.configure_server { |config| config.redis = {url: url}; config.logger.level = 2 }
Sidekiq.configure_client { |config| config.redis = {url: url} }

ARGUMENTS = [1, "foo", {"k" => "v"}].freeze

# Nothing.
class Noop
  include Sidekiq::Worker
  def perform(*arguments); end
end

# Shows that it ran.
class Tick
  include Sidekiq::Worker
  def perform(*arguments)
    File.open(ENV.fetch("BENCH_TICKS"), "a") { |file| file.write(".") }
  end
end

if $PROGRAM_NAME == __FILE__
  jobs = Integer(ARGV.fetch(0))
  job = {"noop" => Noop, "tick" => Tick}.fetch(ARGV.fetch(1))
  started = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  jobs.times.each_slice(1000) { |slice| job.perform_bulk(slice.map { ARGUMENTS }) }
  puts JSON.dump({jobs: jobs, seconds: Process.clock_gettime(Process::CLOCK_MONOTONIC) - started})
end
