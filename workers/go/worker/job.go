package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	amqp "github.com/rabbitmq/amqp091-go"
)

const month = 30 * day

var numberText = regexp.MustCompile(`^[+-]?\d+(\.\d*)?([eE][+-]?\d+)?$`)

// A Job as this worker understands it; sent is the object as it came.
type Job struct {
	Jid, Class, Queue string
	Args              json.RawMessage // a list or an object
	Retry, RetryCount int
	EnqueuedAt        *float64 // seconds since 1970
	raw               json.RawMessage
	sent              map[string]json.RawMessage
}

// ReadJob reads what others wrote (section 7). Its error says why a message is no job: it is kept as it came.
func ReadJob(body []byte, queue, messageID string) (*Job, error) {
	if !utf8.Valid(body) { // encoding/json would put a replacement character in silence
		return nil, errors.New("not UTF-8")
	}
	raw := bytes.TrimSpace(bytes.TrimPrefix(body, []byte("\ufeff")))
	// A map, since the fields of a struct would be found in capital letters too.
	var sent map[string]json.RawMessage
	if err := json.Unmarshal(raw, &sent); err != nil || sent == nil {
		return nil, fmt.Errorf("not a JSON object: %v", err)
	}
	job := &Job{raw: raw, sent: sent, Args: sent["args"]}
	if json.Unmarshal(sent["class"], &job.Class) != nil || job.Class == "" {
		return nil, errors.New("no class")
	}
	if job.Args == nil || string(job.Args) == "null" {
		job.Args = json.RawMessage("[]")
	}
	if job.Args[0] != '[' && job.Args[0] != '{' {
		return nil, errors.New("args is neither a list nor an object")
	}
	job.Jid = firstOf(name(sent["jid"]), messageID, newID())
	job.Queue = firstOf(name(sent["queue"]), queue)
	job.Retry, job.RetryCount = whole(sent["retry"], 25), whole(sent["retry_count"], 0)
	job.EnqueuedAt = number(sent["enqueued_at"])
	if job.EnqueuedAt != nil && *job.EnqueuedAt >= 1e11 { // milliseconds
		*job.EnqueuedAt /= 1000
	}
	if name(sent["queue"]) == "" { // a retry must lead back to where it came from
		job.raw = []byte(fmt.Sprintf("%s,\"queue\":%q}", raw[:len(raw)-1], queue))
	}
	return job, nil
}

// Argument reads one of the arguments, which came as a list or by name.
func (job *Job) Argument(index int, name string, into any) error {
	var list []json.RawMessage
	var byName map[string]json.RawMessage
	if json.Unmarshal(job.Args, &list) == nil && index < len(list) {
		return json.Unmarshal(list[index], into)
	}
	if json.Unmarshal(job.Args, &byName) == nil && byName[name] != nil {
		return json.Unmarshal(byName[name], into)
	}
	return fmt.Errorf("no argument %q", name)
}

const trackedJob = "it is tracked, and this worker takes no leases: workers of amqpjobs (Python) do"

// tracked is whether a worker needs a lease to run it (docs/tracked.md). Without one, two could run it at once.
func (job *Job) tracked() bool {
	return string(job.sent["track"]) == "true" || name(job.sent["key"]) != ""
}

func firstOf(names ...string) string {
	for _, each := range names {
		if each != "" {
			return each
		}
	}
	return ""
}

// name is a string, or the digits of a number; "" for anything else.
func name(raw json.RawMessage) string {
	var text string
	var digits json.Number
	if json.Unmarshal(raw, &text) != nil && json.Unmarshal(raw, &digits) == nil {
		return digits.String()
	}
	return text
}

// number is nil for what is none, or not finite.
func number(raw json.RawMessage) *float64 {
	found, err := strconv.ParseFloat(string(raw), 64) // what JSON calls a number begins with a digit or a minus
	if err != nil || !numberText.Match(raw) {
		return nil
	}
	return &found
}

// whole is a count between 0 and 1000: the whole part of a number, also one in text; false is none.
func whole(raw json.RawMessage, otherwise int) int {
	text := strings.Trim(string(raw), `"`)
	if string(raw) == "false" {
		return 0
	}
	if !numberText.MatchString(text) {
		return otherwise
	}
	found, _ := strconv.ParseFloat(text, 64) // too large is infinite, and held like any other
	return int(math.Max(0, math.Min(1000, found)))
}

// expired says whether the job waited in its queue for longer than it may.
func (job *Job) expired(now float64) bool {
	limit := number(job.sent["expires_in"])
	return limit != nil && *limit > 0 && job.EnqueuedAt != nil && now > *job.EnqueuedAt+*limit
}

// backoff is how many seconds pass until the next try (section 6).
func (job *Job) backoff() float64 {
	count := float64(job.RetryCount)
	delay := math.Pow(count, 4) + 15 + rand.Float64()*30*(count+1)
	var delays []json.RawMessage
	least, most := number(job.sent["min_backoff"]), number(job.sent["max_backoff"])
	if json.Unmarshal(job.sent["retry_delays"], &delays) == nil && len(delays) > 0 {
		delay = orElse(number(delays[int(math.Min(count, float64(len(delays)-1)))]), 0)
	} else if least != nil || most != nil {
		delay = math.Min(orElse(least, 1)*math.Pow(2, count), orElse(most, month))
	}
	return math.Max(0, math.Min(month, delay))
}

func orElse(value *float64, otherwise float64) float64 {
	if value == nil {
		return otherwise
	}
	return *value
}

// A Failure is a failed run, in the words of an entry.
type Failure struct{ Class, Message, Backtrace string }

// failed is the stream and the entry of a failed run: tried again, dead, or ("") discarded. The job is spliced in as it
// came, digit by digit.
func failed(job *Job, failure *Failure, at float64, identity string, sent amqp.Delivery) (string, map[string]any) {
	entry := map[string]any{
		"jid": job.Jid, "failed_at": at, "attempt": job.RetryCount + 1, "worker_identity": identity,
		"error_class": failure.Class, "error_message": failure.Message, "backtrace": failure.Backtrace,
		"properties": kept(sent), "job": job.raw,
	}
	if job.RetryCount < job.Retry {
		entry["type"], entry["retry_at"], entry["retry_count"] = "retry", at+job.backoff(), job.RetryCount+1
		return "retries", entry
	}
	if string(job.sent["dead"]) == "false" {
		return "", nil
	}
	entry["type"], entry["died_at"], entry["retry_count"] = "dead_job", at, job.RetryCount
	return "dead_jobs", entry
}

// unreadable is the dead_jobs entry of what is no job.
func unreadable(body []byte, queue string, problem error, at float64, identity string) map[string]any {
	entry := map[string]any{
		"type": "dead_job", "jid": newID(), "died_at": at, "retry_count": 0, "queue": queue,
		"error_class": "Malformed", "error_message": problem.Error(), "worker_identity": identity,
	}
	if utf8.Valid(body) {
		entry["raw"] = string(body)
	} else {
		entry["raw_base64"] = base64.StdEncoding.EncodeToString(body)
	}
	return entry
}

// metric is the job_metrics entry of a run, or of a job that was taken and not run.
func metric(job *Job, status string, failure *Failure, startedAt, endedAt float64, identity string) map[string]any {
	entry := map[string]any{
		"type": "job_metric", "timestamp": endedAt, "jid": job.Jid, "job_class": job.Class, "queue": job.Queue,
		"status": status, "duration_ms": math.Max(0, endedAt-startedAt) * 1000, "attempt": job.RetryCount + 1,
		"worker_identity": identity,
	}
	if job.EnqueuedAt != nil {
		entry["wait_ms"] = math.Max(0, startedAt-*job.EnqueuedAt) * 1000
	}
	if failure != nil {
		entry["error_class"] = failure.Class
	}
	return entry
}

// kept is what of a delivery's properties must be there again when the job is released.
func kept(sent amqp.Delivery) map[string]any {
	headers := map[string]any{}
	for key, value := range sent.Headers {
		switch value.(type) {
		case string, bool, int16, int32, int64, float32, float64:
			if !strings.HasPrefix(key, "x-") {
				headers[key] = value
			}
		}
	}
	return map[string]any{"priority": sent.Priority, "correlation_id": sent.CorrelationId, "headers": headers}
}
