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
	"github.com/etcdkit/etcdkit/examples/internal/cluster"
	"github.com/etcdkit/etcdkit/internal/hostclock"
)

// workerEnv makes the program a worker. It holds the settings below.
const workerEnv = "FLEET_WORKER"

// The names under which the fleet meets in etcd. The namespace is new for each
// run.
const semaphoreName = "executions"

// settings are what a worker is told at its start.
type settings struct {
	Endpoints []string
	Namespace string
	Limit     int
	TTL       time.Duration
	Margin    time.Duration
	MaxHold   time.Duration
	Deaf      bool // see sabotage.go
}

// worker is one process: it takes jobs from its standard input and tells on its
// standard output what it does, each event in one write, so that nothing of what
// it did is lost with it.
type worker struct {
	settings
	out  io.Writer
	sess *concurrency.Session
	sem  *concurrency.Semaphore
	job  job
}

// workerMain is the life of a worker process. It ends with its standard input.
func workerMain(raw string, in io.Reader, out io.Writer) error {
	signal.Ignore(os.Interrupt) // Ctrl-C reaches the parent too, which sees to it that we end
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
	w.tell(event{Kind: evReady})
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
	client, err := cluster.Dial(w.Endpoints)
	if err != nil {
		return nil, err
	}
	start, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	w.sess, err = concurrency.NewSession(start, client, w.Namespace, &concurrency.SessionOptions{TTL: w.TTL, Margin: w.Margin})
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

// attempt runs one job and tells how it ended.
func (w *worker) attempt(ctx context.Context) {
	w.tell(event{Kind: evWait})
	err := w.execute(ctx)
	done := event{Kind: evDone, End: classify(err)}
	if err != nil {
		done.Error = err.Error()
	}
	if done.End == panicked {
		done.Leaked = w.leaked(ctx)
	}
	w.tell(done)
}

// execute works under a permit. A panic of the work ends here; by then Do has
// given the permit back.
func (w *worker) execute(ctx context.Context) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = &panicError{value: r}
		}
	}()
	note := fmt.Sprintf("execution %d, attempt %d", w.job.Execution, w.job.Attempt)
	return w.sem.Do(ctx, func(ctx context.Context, p *concurrency.Permit) error {
		w.tell(event{Kind: evHold})
		defer func() {
			w.tell(event{Kind: evBack, Deadline: hostclock.At(p.Deadline()), Lost: p.Err() != nil})
		}()
		return w.work(ctx, p)
	}, concurrency.MaxHold(w.MaxHold), concurrency.Note(note))
}

var errBroken = errors.New("the work cannot be done")

// work does the steps of the job, up to the end that it was given.
func (w *worker) work(ctx context.Context, p *concurrency.Permit) error {
	for n := 1; n <= w.job.Steps; n++ {
		if n == w.job.At {
			switch w.job.End {
			case failed:
				return errBroken
			case panicked:
				panic("the work has a bug")
			case stuck: // it hears nothing, sees nothing, and then goes on
				time.Sleep(w.MaxHold + 300*time.Millisecond)
			}
		}
		if err := w.step(ctx, p, n); err != nil {
			return err
		}
	}
	return nil
}

// room is what a step may take in the worst case. A step that could outlive its
// permit is not begun: when MaxHold or the deadline ends a permit, it is given
// back at once and the next holder may follow within milliseconds.
const room = 100 * time.Millisecond

// step does one step, if the permit still lives right before it.
func (w *worker) step(ctx context.Context, p *concurrency.Permit, n int) error {
	for time.Until(p.Deadline()) < room && !w.Deaf {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(5 * time.Millisecond): // the next renewal moves it on
		}
	}
	// The stamp is taken before the look at the permit. A pause between the
	// two makes the step look too early rather than too late, and its permit
	// is seen to have ended.
	begin := event{Kind: evBegin, Step: n, Deadline: hostclock.At(p.Deadline()), At: hostclock.Now()}
	if err := p.Err(); err != nil && !w.Deaf {
		return err
	}
	if ctx.Err() != nil && !w.Deaf {
		return context.Cause(ctx)
	}
	w.tell(begin)
	time.Sleep(step)
	w.tell(event{Kind: evEnd, Step: n})
	return nil
}

// leaked counts the requests of this process that stand in etcd.
func (w *worker) leaked(ctx context.Context) (n int) {
	st, err := w.sem.Status(ctx)
	if err != nil {
		return 0 // what is left at the end of the run is counted in any case
	}
	for _, r := range append(st.Holders, st.Waiters...) {
		if r.Holder == w.sess.Holder() {
			n++
		}
	}
	return n
}

// tell reports an event.
func (w *worker) tell(e event) {
	if e.At == 0 {
		e.At = hostclock.Now()
	}
	e.Execution, e.Attempt = w.job.Execution, w.job.Attempt
	line, err := json.Marshal(e)
	if err == nil {
		_, err = w.out.Write(append(line, '\n'))
	}
	if err != nil {
		os.Exit(1) // nobody listens any more
	}
}

type panicError struct{ value any }

func (e *panicError) Error() string { return fmt.Sprintf("panic: %v", e.value) }

// classify tells from its error how an attempt has ended.
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
