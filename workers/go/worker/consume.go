package main

import (
	"errors"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

const tenMinutes = 10 * time.Minute // the scheduler repeats all controls every five

// readControls begins to read the stream controls, ten minutes back.
func (s *session) readControls() error {
	var err error
	if s.reader, err = s.connect(); err != nil { // of its own: most mistakes with a stream close all of it
		return err
	}
	channel, err := s.channel(s.reader)
	if err != nil {
		return err
	}
	if err = channel.Qos(100, 0, false); err != nil { // streams demand one
		return err
	}
	s.worker.controls.Rewind()
	from := amqp.Table{"x-stream-offset": time.Now().Add(-tenMinutes)}
	orders, err := channel.Consume("controls", "", false, false, false, false, from)
	if err != nil {
		return err
	}
	go func() {
		for each := range orders {
			select {
			case s.orders <- each:
			case <-s.ended.Done():
				return
			}
		}
	}()
	// An entry of a type that nobody knows: when it comes back, everything before it has been read.
	s.marker = newID()
	return s.append("controls", map[string]any{"type": "marker", "nonce": s.marker})
}

func (s *session) readOrder(message amqp.Delivery) error {
	offset, _ := message.Headers["x-stream-offset"].(int64)
	reached := false
	for _, entry := range entries(message.Body) {
		s.worker.controls.Apply(entry, offset, now())
		reached = reached || entry.Nonce == s.marker
	}
	if err := message.Ack(false); err != nil {
		return err
	}
	if reached && !s.caughtUp {
		s.caughtUp = true
		defer say("ready: %s, %d at once", strings.Join(s.worker.queues, ", "), s.worker.concurrency)
	}
	if !s.caughtUp { // a pause may be one that was resumed since, and no job may start before that is known
		return nil
	}
	return s.obey()
}

// obey makes what is consumed and what runs agree with what is ordered.
func (s *session) obey() error {
	w := s.worker
	w.stopping = w.stopping || w.controls.Stop
	for _, run := range s.running {
		if _, cancelled := w.controls.Cancelled[run.job.Jid]; cancelled {
			run.cancel()
		}
	}
	for _, queue := range w.queues {
		var err error
		if w.wants(queue) && !s.consumers[queue] {
			err = s.consume(queue)
		} else if !w.wants(queue) && s.consumers[queue] {
			err = s.release(queue)
		}
		if err != nil {
			return err
		}
	}
	if s.told != w.state() {
		return s.beat(w.state())
	}
	return nil
}

func (s *session) consume(queue string) error {
	if err := s.ensureQueue(queue); err != nil {
		return err
	}
	deliveries, err := s.jobs.Consume("queue."+queue, "jobs of "+queue, false, false, false, false, nil)
	if err != nil {
		return err
	}
	s.consumers[queue] = true
	go func() {
		for each := range deliveries {
			select {
			case s.arrived <- delivery{each, queue}:
			case <-s.ended.Done():
				return
			}
		}
	}()
	return nil
}

// release stops consuming; startNext gives back what was delivered and has not begun.
func (s *session) release(queue string) error {
	delete(s.consumers, queue)
	if err := s.jobs.Cancel("jobs of "+queue, false); err != nil {
		return err
	}
	return s.startNext()
}

// ensureQueue asks passively first: a queue that exists is good as it is. A 404 closes the channel, hence one to throw
// away.
func (s *session) ensureQueue(queue string) error {
	asking, err := s.conn.Channel()
	if err != nil {
		return err
	}
	_, err = asking.QueueDeclarePassive("queue."+queue, true, false, false, false, nil)
	var closed *amqp.Error
	if !errors.As(err, &closed) || closed.Code != amqp.NotFound {
		asking.Close()
		return err
	}
	making, err := s.conn.Channel()
	if err != nil {
		return err
	}
	defer making.Close()
	arguments := amqp.Table{"x-max-priority": 10, "x-queue-type": "classic"}
	if _, err = making.QueueDeclare("queue."+queue, true, false, false, false, arguments); err != nil {
		return err
	}
	return making.QueueBind("queue."+queue, queue, "jobs.direct", false, nil)
}
