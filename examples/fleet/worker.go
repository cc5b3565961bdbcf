package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/examples/metrics"
	"github.com/etcdkit/etcdkit/internal/examples/program"
	"github.com/etcdkit/etcdkit/internal/hostclock"
)

// workerEnv is the environment variable that makes the program a worker. Its value is settings
// as JSON.
const workerEnv = "FLEET_WORKER"

// semaphoreName is the name of the semaphore, in a namespace that is new for each run.
const semaphoreName = "executions"

// settings are the settings of a worker process.
type settings struct {
	program.Place
	Limit     int
	TTL       time.Duration
	Margin    time.Duration
	MaxHold   time.Duration
	Unchecked bool // see sabotage.go
}

// worker is a worker process. It reads jobs from its standard input and reports events on its
// standard output, each event in one write, so that a kill loses no event.
type worker struct {
	settings
	out  io.Writer
	sess *concurrency.Session
	sem  *concurrency.Semaphore
	job  job
}

// workerMain is the main function of a worker process. It returns at the end of in.
func workerMain(raw string, in io.Reader, out io.Writer) error {
	signal.Ignore(os.Interrupt) // Ctrl-C reaches the parent too, which closes our input
	w := &worker{out: out}
	if err := json.Unmarshal([]byte(raw), &w.settings); err != nil {
		return fmt.Errorf("settings: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	jobs := make(chan job)
	go func() {
		defer cancel()
		for dec := json.NewDecoder(in); ; {
			var j job
			if dec.Decode(&j) != nil {
				return
			}
			select {
			case jobs <- j:
			case <-ctx.Done():
				return
			}
		}
	}()
	stop, err := w.open(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	defer stop()
	w.report(event{Kind: evReady})
	for {
		select {
		case <-ctx.Done():
			return nil
		case w.job = <-jobs:
			w.attempt(ctx)
		}
	}
}

// open starts the worker's session.
func (w *worker) open(ctx context.Context) (stop func(), err error) {
	hooks, _, err := metrics.Join(w.Metrics, fmt.Sprint("worker-", os.Getpid())) // until the process ends
	if err != nil {
		return nil, err
	}
	client, err := w.Dial()
	if err != nil {
		return nil, err
	}
	start, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	w.sess, err = concurrency.NewSession(start, client, w.Namespace, &concurrency.SessionOptions{TTL: w.TTL, Margin: w.Margin, Hooks: hooks})
	if err == nil {
		w.sem, err = concurrency.NewSemaphore(w.sess, semaphoreName, w.Limit, nil)
	}
	if err != nil {
		_ = client.Close()
		return nil, err
	}
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		_ = w.sess.Close(ctx)
		_ = client.Close()
	}, nil
}

// attempt runs one job and reports its end.
func (w *worker) attempt(ctx context.Context) {
	w.report(event{Kind: evWait})
	err := w.execute(ctx)
	done := event{Kind: evDone, End: classify(err)}
	if err != nil {
		done.Error = err.Error()
	}
	if done.End == panicked {
		done.Leaked = w.leaked(ctx)
	}
	w.report(done)
}

// execute works under a permit. It recovers a panic of the work, after Do has released the
// permit.
func (w *worker) execute(ctx context.Context) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = &panicError{value: r}
		}
	}()
	note := fmt.Sprintf("execution %d, attempt %d", w.job.Execution, w.job.Attempt)
	return w.sem.Do(ctx, func(ctx context.Context, p *concurrency.Permit) error {
		w.report(event{Kind: evHold})
		defer func() {
			w.report(event{Kind: evReleasing, Deadline: hostclock.At(p.Deadline()), Lost: p.Err() != nil})
		}()
		return w.work(ctx, p)
	}, concurrency.MaxHold(w.MaxHold), concurrency.Note(note))
}

var errBroken = errors.New("the work failed")

// work runs the steps of the job up to its planned end.
func (w *worker) work(ctx context.Context, p *concurrency.Permit) error {
	for n := 1; n <= w.job.Steps; n++ {
		if n == w.job.At {
			switch w.job.End {
			case failed:
				return errBroken
			case panicked:
				panic("a bug in the work")
			case stuck: // it ignores ctx, and continues later
				time.Sleep(w.MaxHold + 300*time.Millisecond)
			}
		}
		if err := w.step(ctx, p, n); err != nil {
			return err
		}
	}
	return nil
}

// stepMargin is the longest time that a step may take. A step that could outlive its permit is
// not begun: when MaxHold or the deadline ends a permit, the session releases it at once, and
// the next holder can follow within milliseconds.
const stepMargin = 100 * time.Millisecond

// step runs one step, if the permit is valid just before it.
func (w *worker) step(ctx context.Context, p *concurrency.Permit, n int) error {
	for time.Until(p.Deadline()) < stepMargin && !w.Unchecked {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(5 * time.Millisecond): // the next renewal extends the deadline
		}
	}
	// The timestamp is taken before the check of the permit. If the process is paused between
	// the two, the check finds that the permit has ended.
	begin := event{Kind: evBegin, Step: n, Deadline: hostclock.At(p.Deadline()), At: hostclock.Now()}
	if err := p.Err(); err != nil && !w.Unchecked {
		return err
	}
	if ctx.Err() != nil && !w.Unchecked {
		return context.Cause(ctx)
	}
	w.report(begin)
	time.Sleep(step)
	w.report(event{Kind: evEnd, Step: n})
	return nil
}

// leaked returns the number of requests of this process in etcd.
func (w *worker) leaked(ctx context.Context) (n int) {
	st, err := w.sem.Status(ctx)
	if err != nil {
		return 0 // leftBehind counts again at the end of the run
	}
	for _, r := range append(st.Holders, st.Waiters...) {
		if r.Owner == w.sess.Owner() {
			n++
		}
	}
	return n
}

// report writes an event to the parent.
func (w *worker) report(e event) {
	if e.At == 0 {
		e.At = hostclock.Now()
	}
	e.Execution, e.Attempt = w.job.Execution, w.job.Attempt
	line, err := json.Marshal(e)
	if err == nil {
		_, err = w.out.Write(append(line, '\n'))
	}
	if err != nil {
		os.Exit(1) // the parent has ended
	}
}

type panicError struct{ value any }

func (e *panicError) Error() string { return fmt.Sprintf("panic: %v", e.value) }

// classify returns the ending of an attempt that returned err.
func classify(err error) ending {
	var p *panicError
	switch {
	case err == nil:
		return succeeded
	case errors.As(err, &p):
		return panicked
	case errors.Is(err, concurrency.ErrTooLong):
		return stuck
	case errors.Is(err, concurrency.ErrLost):
		return lost
	case errors.Is(err, context.Canceled) || errors.Is(err, concurrency.ErrClosed):
		return stopped
	}
	return failed
}
