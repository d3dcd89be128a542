// A worker in plain amqp091-go, written from docs/protocol.md.
//
//	.cache/go/worker -q default -c 4
package main

import (
	"crypto/rand"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

const version = "1.0.0"

// A Worker knows its queues and who it is. It serves one connection after the other until it is told to stop.
type Worker struct {
	url         string
	queues      []string
	concurrency int
	timeout     time.Duration
	hostname    string
	identity    string
	nonce       string
	bootAt      float64
	controls    *Controls
	stopping    bool
	signals     chan os.Signal
}

// NewWorker has booted now.
func NewWorker(url string, queues []string, concurrency int, timeout time.Duration) *Worker {
	hostname, _ := os.Hostname()
	w := &Worker{url: url, queues: queues, concurrency: concurrency, timeout: timeout, hostname: hostname}
	w.identity = fmt.Sprintf("%s:%d:go", hostname, os.Getpid())
	w.nonce, w.bootAt = newID(), now()
	w.controls = NewControls(w.bootAt, w.identity, w.nonce)
	w.signals = make(chan os.Signal, 1)
	return w
}

// Run returns when the worker has stopped.
func (w *Worker) Run() {
	pause := 500 * time.Millisecond
	for !w.stopping {
		session := newSession(w)
		err := session.serve()
		if err == nil {
			return
		}
		if session.caughtUp {
			pause = 500 * time.Millisecond
		}
		say("broker: %v; again in %v", err, pause)
		select {
		case <-time.After(pause):
		case <-w.signals:
			w.stopping = true
		}
		if pause *= 2; pause > 5*time.Second {
			pause = 5 * time.Second
		}
	}
}

// wants says whether to take jobs of a queue.
func (w *Worker) wants(queue string) bool {
	return !w.stopping && !w.controls.Quiet && !w.controls.Paused[queue]
}

func (w *Worker) paused() (paused []string) {
	for _, queue := range w.queues {
		if w.controls.Paused[queue] {
			paused = append(paused, queue)
		}
	}
	return paused
}

func (w *Worker) state() string {
	switch paused := w.paused(); {
	case w.stopping:
		return "stopping"
	case w.controls.Quiet:
		return "quiet"
	case len(paused) > 0:
		return "paused: " + strings.Join(paused, ", ")
	default:
		return "running"
	}
}

func (w *Worker) heartbeat(state string, runs map[uint64]*run) map[string]any {
	running := []map[string]any{}
	for _, run := range runs {
		running = append(running, map[string]any{
			"jid": run.job.Jid, "class": run.job.Class, "queue": run.job.Queue, "started_at": run.startedAt,
		})
	}
	beat := map[string]any{
		"type": "heartbeat", "identity": w.identity, "nonce": w.nonce, "hostname": w.hostname, "pid": os.Getpid(),
		"tag": "go", "concurrency": w.concurrency, "busy": len(running), "beat": now(), "boot_at": w.bootAt,
		"rss_kb": residentKB(), "queues": w.queues, "version": version, "state": state, "running": running,
	}
	if paused := w.paused(); len(paused) > 0 {
		beat["paused"] = paused
	}
	return beat
}

func residentKB() int {
	var total, resident int
	statm, _ := os.ReadFile("/proc/self/statm")
	fmt.Sscan(string(statm), &total, &resident)
	return resident * os.Getpagesize() / 1024
}

func now() float64 { return float64(time.Now().UnixMicro()) / 1e6 }

func newID() string {
	id := make([]byte, 12)
	if _, err := rand.Read(id); err != nil {
		panic(err) // an operating system without randomness
	}
	return hex.EncodeToString(id)
}

func say(format string, args ...any) { fmt.Printf("go worker: "+format+"\n", args...) }

// names is a flag that may be given several times.
type names []string

func (n *names) String() string { return strings.Join(*n, ",") }

func (n *names) Set(name string) error {
	*n = append(*n, name)
	return nil
}

func main() {
	var queues names
	flag.Var(&queues, "q", "a queue (default: default)")
	concurrency := flag.Int("c", 4, "how many jobs at once")
	timeout := flag.Float64("t", 25, "seconds that jobs have to end when the worker stops")
	flag.Parse()
	if queues == nil {
		queues = names{"default"}
	}
	url := os.Getenv("AMQPJOBS_URL")
	if url == "" {
		url = "amqp://guest:guest@127.0.0.1:5672"
	}
	worker := NewWorker(url, queues, *concurrency, time.Duration(*timeout*float64(time.Second)))
	signal.Notify(worker.signals, syscall.SIGTERM, syscall.SIGINT)
	worker.Run()
}
