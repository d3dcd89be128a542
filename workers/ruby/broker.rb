# frozen_string_literal: true

# Where the broker is, as bunny needs to be told.
require "bunny"

module Broker
  # Bunny reads a slash at the end as a virtual host without a name.
  URL = ENV.fetch("AMQPJOBS_URL", "amqp://guest:guest@127.0.0.1:5672").chomp("/")

  # A session that is not yet started. Login as bytes: bunny cannot join text beyond ASCII to its frame.
  def self.session(**options)
    login = AMQ::Settings.parse_amqp_url(URL).slice(:user, :pass).compact.transform_values(&:b)
    Bunny.new(URL, login.merge(options))
  end
end
