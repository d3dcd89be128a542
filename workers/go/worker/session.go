package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

const beatEvery = 10 * time.Second
const longestConfirm = 10 * time.Second

// A session is one connection's life: it consumes, runs, records. What is unacked when it is lost comes again to
// somebody. All of it happens on the goroutine of serve, except the handlers; they hand in what became of their job.
type session struct {
	worker    *Worker
	ended     context.Context // over when the session is: nobody receives any more
	end       context.CancelFunc
	conn      *amqp.Connection
	reader    *amqp.Connection // of the stream controls
	jobs      *amqp.Channel
	publisher *amqp.Channel
	confirms  chan amqp.Confirmation
	returns   chan amqp.Return
	lost      chan error
	arrived   chan delivery
	orders    chan amqp.Delivery
	done      chan *run
	consumers map[string]bool
	waiting   []delivery // delivered, not started
	running   map[uint64]*run
	marker    string
	caughtUp  bool
	told      string // the state in the last heartbeat
}

type delivery struct {
	amqp.Delivery
	queue string
}

type run struct {
	delivery
	job       *Job
	startedAt float64
	ctx       context.Context
	cancel    context.CancelFunc
	failure   *Failure
}

func newSession(worker *Worker) *session {
	s := &session{worker: worker, consumers: map[string]bool{}, running: map[uint64]*run{}}
	s.ended, s.end = context.WithCancel(context.Background())
	s.lost, s.arrived = make(chan error, 8), make(chan delivery)
	s.orders, s.done = make(chan amqp.Delivery), make(chan *run)
	return s
}

// serve returns nil when the worker was told to stop and has, and an error when the connection was lost.
func (s *session) serve() error {
	defer s.close()
	if err := s.open(); err != nil {
		return err
	}
	beats := time.NewTicker(beatEvery)
	defer beats.Stop()
	if err := s.until(beats.C, nil, func() bool { return s.worker.stopping }); err != nil {
		return err
	}
	// Take nothing more, give back what has not begun, finish what runs, say goodbye.
	if err := s.obey(); err != nil {
		return err
	}
	deadline := time.After(s.worker.timeout)
	if err := s.until(beats.C, deadline, func() bool { return len(s.running) == 0 }); err != nil {
		return err
	}
	return s.beat("stopped")
}

// until handles one event after the other.
func (s *session) until(beats, deadline <-chan time.Time, over func() bool) (err error) {
	for err == nil && !over() {
		select {
		case err = <-s.lost:
		case each := <-s.arrived:
			s.waiting = append(s.waiting, each)
			err = s.startNext()
		case each := <-s.done:
			err = s.settle(each)
		case each := <-s.orders:
			err = s.readOrder(each)
		case <-beats:
			err = s.beat(s.worker.state())
		case <-s.worker.signals:
			s.worker.stopping = true
		case <-deadline:
			return nil
		}
	}
	return err
}

func (s *session) open() (err error) {
	if s.conn, err = s.connect(); err != nil {
		return err
	}
	// Two channels: a mistake closes a channel, and with the consuming one go all its unacked deliveries.
	if s.publisher, err = s.channel(s.conn); err != nil {
		return err
	}
	// Not PublishWithDeferredConfirm: in amqp091-go 1.5 it waits for ever for a confirm that is quicker than it is.
	s.confirms = s.publisher.NotifyPublish(make(chan amqp.Confirmation, 1))
	s.returns = s.publisher.NotifyReturn(make(chan amqp.Return, 1))
	if err = s.publisher.Confirm(false); err != nil {
		return err
	}
	if s.jobs, err = s.channel(s.conn); err != nil {
		return err
	}
	if err = s.jobs.Qos(s.worker.concurrency, 0, false); err != nil { // for each consumer
		return err
	}
	if err = s.beat(s.worker.state()); err != nil {
		return err
	}
	return s.readControls()
}

func (s *session) connect() (*amqp.Connection, error) {
	config := amqp.Config{Heartbeat: 10 * time.Second, Properties: amqp.NewConnectionProperties()}
	config.Properties.SetClientConnectionName("go worker " + s.worker.identity)
	return amqp.DialConfig(s.worker.url, config)
}

// close waits for the broker's answer: a process that just ends may take its last acks with it.
func (s *session) close() {
	s.end()
	for _, conn := range []*amqp.Connection{s.conn, s.reader} {
		if conn != nil {
			conn.Close()
		}
	}
}

func (s *session) channel(conn *amqp.Connection) (*amqp.Channel, error) {
	channel, err := conn.Channel()
	if err != nil {
		return nil, err
	}
	closed := channel.NotifyClose(make(chan *amqp.Error, 1))
	cancelled := channel.NotifyCancel(make(chan string, 1))
	go func() {
		select {
		case err := <-closed:
			s.lose(fmt.Errorf("closed: %w", err))
		case <-cancelled:
			s.lose(errors.New("a queue or stream that it read was deleted"))
		}
	}()
	return channel, nil
}

func (s *session) lose(err error) {
	select {
	case s.lost <- err:
	default: // told already
	}
}

// append returns once the entry is confirmed, with an error when it was returned, refused or lost.
func (s *session) append(stream string, entry map[string]any) error {
	body, err := json.Marshal(entry)
	if err != nil {
		return err
	}
	message := amqp.Publishing{Body: body, ContentType: "application/json", DeliveryMode: amqp.Persistent}
	if err := s.publisher.PublishWithContext(context.Background(), "", stream, true, false, message); err != nil {
		return err
	}
	select {
	case confirm := <-s.confirms:
		if !confirm.Ack { // refused, or the channel was closed
			return fmt.Errorf("an entry for %s was not confirmed", stream)
		}
	case <-time.After(longestConfirm): // a broker that was killed may have forgotten it, on a connection that lives
		return fmt.Errorf("an entry for %s was not confirmed within %v", stream, longestConfirm)
	}
	select {
	case <-s.returns: // a returned message is confirmed as well; the return comes first
		return fmt.Errorf("there is no stream %s", stream)
	default:
		return nil
	}
}

func (s *session) beat(state string) error {
	s.told = state
	return s.append("heartbeats", s.worker.heartbeat(state, s.running))
}

func (s *session) startNext() error {
	waiting := s.waiting
	s.waiting = nil
	for _, each := range waiting {
		var err error
		if !s.worker.wants(each.queue) {
			err = each.Nack(false, true)
		} else if len(s.running) < s.worker.concurrency {
			err = s.start(each)
		} else {
			s.waiting = append(s.waiting, each)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *session) start(each delivery) error {
	job, err := ReadJob(each.Body, each.queue, each.MessageId)
	if err != nil {
		if err := s.append("dead_jobs", unreadable(each.Body, each.queue, err, now(), s.worker.identity)); err != nil {
			return err
		}
		return each.Ack(false)
	}
	run := &run{delivery: each, job: job, startedAt: now()}
	if _, cancelled := s.worker.controls.Cancelled[job.Jid]; cancelled {
		return s.record(run, "cancelled")
	}
	if job.expired(run.startedAt) {
		return s.record(run, "expired")
	}
	run.ctx, run.cancel = context.WithCancel(context.Background())
	s.running[each.DeliveryTag] = run
	say("%s %s starts", job.Jid, job.Class)
	go s.attempt(run)
	return nil
}

func (s *session) settle(run *run) error {
	delete(s.running, run.DeliveryTag)
	status := "success"
	if run.failure != nil {
		status = "failed"
	}
	// What fails after it was told to stop has stopped: it is not tried again.
	if run.failure != nil && run.ctx.Err() != nil {
		status = "cancelled"
	}
	run.cancel()
	if err := s.record(run, status); err != nil {
		return err
	}
	return s.startNext()
}

// record keeps the order that is the point: what happened is confirmed by the broker before the job is acked.
func (s *session) record(run *run, status string) error {
	job, endedAt, why := run.job, now(), ""
	if status == "failed" {
		why = fmt.Sprintf(": %s: %s", run.failure.Class, run.failure.Message)
		stream, entry := failed(job, run.failure, endedAt, s.worker.identity, run.Delivery)
		if stream != "" {
			if err := s.append(stream, entry); err != nil {
				return err
			}
		}
	}
	entry := metric(job, status, run.failure, run.startedAt, endedAt, s.worker.identity)
	if err := s.append("job_metrics", entry); err != nil {
		return err
	}
	say("%s %s retry_count=%d %s%s", job.Jid, job.Class, job.RetryCount, status, why)
	return run.Ack(false)
}

// attempt runs the handler and hands in what became of it, whatever that is: an error, a panic, or a goroutine that was
// ended, which no return value tells of.
func (s *session) attempt(run *run) {
	run.failure = &Failure{Class: "Goexit", Message: "the handler ended its goroutine"}
	defer func() {
		if panicked := recover(); panicked != nil {
			run.failure = &Failure{"panic", fmt.Sprint(panicked), string(debug.Stack())}
		}
		select {
		case s.done <- run:
		case <-s.ended.Done(): // the connection was lost: the broker gives the job again
		}
	}()
	handler := handlers[run.job.Class]
	if run.job.tracked() {
		run.failure = &Failure{Class: "Tracked", Message: trackedJob}
	} else if handler == nil {
		run.failure = &Failure{Class: "UnknownJobClass", Message: "no handler for " + run.job.Class}
	} else if err := handler(run.ctx, run.job); err != nil {
		run.failure = &Failure{Class: fmt.Sprintf("%T", err), Message: err.Error()}
	} else {
		run.failure = nil
	}
}
