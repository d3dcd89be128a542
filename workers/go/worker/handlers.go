package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"
)

// A Handler runs a job. The context is cancelled when an operator cancels the job: a handler that passes it on stops.
type Handler func(ctx context.Context, job *Job) error

var handlers = map[string]Handler{"echo": echo, "fail": fail, "flaky": flaky, "slow": slow}

func echo(_ context.Context, job *Job) error {
	var line bytes.Buffer
	if err := json.Compact(&line, job.Args); err != nil {
		return err
	}
	line.WriteByte('\n')
	out, err := os.OpenFile(os.Getenv("OUT"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer out.Close()
	_, err = out.Write(line.Bytes())
	return err
}

func fail(context.Context, *Job) error {
	return errors.New("this job always fails")
}

func flaky(_ context.Context, job *Job) error {
	var failures int
	if err := job.Argument(0, "failures", &failures); err != nil {
		return err
	}
	if job.RetryCount < failures {
		return fmt.Errorf("run %d fails", job.RetryCount+1)
	}
	return nil
}

func slow(ctx context.Context, job *Job) error {
	var seconds float64
	if err := job.Argument(0, "seconds", &seconds); err != nil {
		return err
	}
	select {
	case <-time.After(time.Duration(seconds * float64(time.Second))):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
