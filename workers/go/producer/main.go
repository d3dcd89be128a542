// A producer in plain amqp091-go: one confirmed publish (docs/protocol.md, sections 1 and 2).
//
//	.cache/go/producer enqueue default echo '["hello", 7]'
//	.cache/go/producer schedule default echo '["later"]' 60
package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"strconv"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Producer publishes to a channel of its own, in confirm mode. It is not for concurrent use.
type Producer struct {
	channel  *amqp.Channel
	confirms chan amqp.Confirmation
	returns  chan amqp.Return
}

// NewProducer opens the channel.
func NewProducer(connection *amqp.Connection) (*Producer, error) {
	channel, err := connection.Channel()
	if err != nil {
		return nil, err
	}
	// Not PublishWithDeferredConfirm: in amqp091-go 1.5 it waits for ever for a confirm that is quicker than it is.
	confirms := channel.NotifyPublish(make(chan amqp.Confirmation, 1))
	returns := channel.NotifyReturn(make(chan amqp.Return, 1))
	return &Producer{channel, confirms, returns}, channel.Confirm(false)
}

// Enqueue puts a job on its queue and returns its jid. It fails when the broker did not take it, or knows no such queue.
func (p *Producer) Enqueue(queue, class string, args any) (string, error) {
	jid := newID()
	return jid, p.publish("jobs.direct", queue, map[string]any{
		"jid": jid, "class": class, "args": args, "queue": queue, "retry": 25, "enqueued_at": seconds(time.Now()),
	})
}

// Schedule puts a job on its queue at a time and returns its jid.
func (p *Producer) Schedule(queue, class string, args any, at time.Time) (string, error) {
	jid := newID()
	return jid, p.publish("", "scheduled_jobs", map[string]any{
		"type": "scheduled_job", "jid": jid, "scheduled_at": seconds(at),
		"job": map[string]any{"class": class, "args": args, "queue": queue, "retry": 25},
	})
}

func (p *Producer) publish(exchange, key string, value any) error {
	body, err := json.Marshal(value)
	if err != nil {
		return err
	}
	message := amqp.Publishing{Body: body, ContentType: "application/json", DeliveryMode: amqp.Persistent}
	if err := p.channel.PublishWithContext(context.Background(), exchange, key, true, false, message); err != nil {
		return err
	}
	if confirm := <-p.confirms; !confirm.Ack { // refused, or the channel was closed
		return fmt.Errorf("the broker did not confirm it")
	}
	select {
	case returned := <-p.returns: // what no queue takes is confirmed too, but it is returned first
		return fmt.Errorf("returned: %s", returned.ReplyText)
	default:
		return nil
	}
}

func seconds(at time.Time) float64 { return float64(at.UnixMicro()) / 1e6 }

func newID() string {
	id := make([]byte, 12)
	if _, err := rand.Read(id); err != nil {
		panic(err) // an operating system without randomness
	}
	return hex.EncodeToString(id)
}

func main() {
	jid, err := run(os.Args[1:])
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(jid)
}

func run(args []string) (string, error) {
	if len(args) < 4 || (args[0] == "schedule" && len(args) < 5) {
		return "", fmt.Errorf("usage: producer enqueue|schedule QUEUE CLASS ARGS [SECONDS]")
	}
	url := os.Getenv("AMQPJOBS_URL")
	if url == "" {
		url = "amqp://guest:guest@127.0.0.1:5672"
	}
	connection, err := amqp.Dial(url)
	if err != nil {
		return "", err
	}
	defer connection.Close()
	producer, err := NewProducer(connection)
	if err != nil {
		return "", err
	}
	if args[0] == "enqueue" {
		return producer.Enqueue(args[1], args[2], json.RawMessage(args[3]))
	}
	later, err := strconv.ParseFloat(args[4], 64)
	if err != nil {
		return "", err
	}
	at := time.Now().Add(time.Duration(later * float64(time.Second)))
	return producer.Schedule(args[1], args[2], json.RawMessage(args[3]), at)
}
