# frozen_string_literal: true

# The orders of operators, folded from the stream `controls` (docs/protocol.md, section 9).
class Controls
  DAY = 86_400

  attr_reader :paused, :cancelled

  # `names`: what orders may call this process, besides "*".
  def initialize(names, boot_at)
    @names = ["*", *names]
    @boot_at = boot_at
    @paused = []
    @cancelled = {} # jid → when
    @last = -1 # the offset of the last order that counted
    @quiet = @stop = false # true for good: a process that is told to be quiet or to stop never takes it back
  end

  def quiet? = @quiet

  def stop? = @stop

  # The stream is read anew, perhaps from another one of that name, in which offsets begin again.
  def rewind = @last = -1

  # The entry of a message at this offset. Whatever others may append: what this does not know has no effect.
  def apply(entry, offset)
    return unless entry.is_a?(Hash)

    case entry["type"]
    when "control"
      @last = offset
      order(entry)
    when "controls_snapshot"
      # One whose writer had not yet read the last order would take that back; another one follows.
      replace(entry) unless entry["after"].is_a?(Integer) && entry["after"] < @last
    end
    oldest = Time.now.to_f - DAY
    @cancelled.select! { |_, at| at.is_a?(Numeric) && at > oldest }
  end

  private

  def order(entry)
    case entry["op"]
    when "pause" then @paused |= [entry["queue"]]
    when "resume" then @paused -= [entry["queue"]]
    when "cancel" then @cancelled[entry["jid"]] = entry["at"]
    when "quiet" then @quiet ||= mine?(entry)
    when "stop" then @stop ||= mine?(entry)
    end
  end

  # An order to "*" must not stop a process that was started after it, perhaps because of it.
  def mine?(entry)
    @names.include?(entry["process"]) && entry["at"].is_a?(Numeric) && @boot_at < entry["at"]
  end

  def replace(entry)
    @paused = Array(entry["paused"])
    cancelled = Array(entry["cancelled"]).grep(Hash)
    @cancelled = cancelled.to_h { |each| each.values_at("jid", "at") }
    Array(entry["orders"]).grep(Hash).each { |each| order(each) }
  end
end
