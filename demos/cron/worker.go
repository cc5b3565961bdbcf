package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/examples/metrics"
	"github.com/etcdkit/etcdkit/internal/examples/program"
	"github.com/etcdkit/etcdkit/internal/hostclock"
	"github.com/etcdkit/etcdkit/schedlock"
)

// workerEnv makes the program a worker. It holds the settings below.
const workerEnv = "CRON_WORKER"

// settings configure a worker at its start.
type settings struct {
	program.Place
	Owner  string
	Shift  time.Duration // of its clock
	TTL    time.Duration
	Margin time.Duration
}

// worker is one process of the fleet. It reports on its standard output what it does, each event in one
// write.
type worker struct {
	settings
	jobs   []job
	out    io.Writer
	client *clientv3.Client
	sess   *concurrency.Session
	locker *schedlock.Locker
	naive  *naive
}

// workerMain is the main function of a worker process. When its standard input ends, it waits for its
// runs and ends.
func workerMain(raw string, in io.Reader, out io.Writer) error {
	signal.Ignore(os.Interrupt) // Ctrl-C reaches the parent too, which ends the workers
	w := &worker{out: out}
	if err := json.Unmarshal([]byte(raw), &w.settings); err != nil {
		return fmt.Errorf("settings: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	jobs := make(chan []job, 1)
	go func() {
		defer cancel()
		var all []job
		for dec := json.NewDecoder(in); dec.Decode(&all) == nil; {
			jobs <- all
		}
	}()
	if err := w.open(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	w.report(event{Kind: evReady})
	go watchStalls(ctx, w.report)
	select {
	case w.jobs = <-jobs:
	case <-ctx.Done():
	}
	var err error
	if w.naive, err = newNaive(w); err != nil {
		return err
	}
	var loops sync.WaitGroup
	for _, j := range w.jobs {
		loops.Go(func() { w.schedule(ctx, j) })
	}
	loops.Wait()
	<-ctx.Done() // the schedule may end earlier
	closing, stop := context.WithTimeout(context.Background(), 5*time.Second)
	defer stop()
	_ = w.sess.Close(closing)
	_ = w.client.Close()
	w.report(event{Kind: evBye})
	return nil
}

// now is the worker's clock: it is wrong.
func (w *worker) now() time.Time { return time.Now().Add(w.Shift) }

func (w *worker) open(ctx context.Context) (err error) {
	if w.client, err = w.Dial(); err != nil {
		return err
	}
	hooks, _, err := metrics.Join(w.Metrics, w.Owner) // until the process ends
	if err != nil {
		return err
	}
	start, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	w.sess, err = concurrency.NewSession(start, w.client, w.Namespace, &concurrency.SessionOptions{TTL: w.TTL, Margin: w.Margin, Owner: w.Owner, Hooks: hooks})
	if err != nil {
		return err
	}
	w.locker, err = schedlock.New(w.sess, &schedlock.Options{Now: w.now, Keep: 1000, Done: func(r schedlock.Result, err error) {
		e := event{Kind: evResult, Way: bySchedlock, Job: r.Job, Tick: r.Tick, Attempt: r.Attempt, Outcome: r.Outcome.String(), Owner: r.Owner}
		if err != nil {
			e.Error = err.Error()
		}
		w.report(e)
	}})
	return err
}

// schedule does what a cron library does: it asks the schedule for the next fire time, waits for it, and
// runs the job in a goroutine. It returns when ctx and all runs have ended.
func (w *worker) schedule(ctx context.Context, j job) {
	var runs sync.WaitGroup
	defer runs.Wait()
	entry, err := w.locker.Job(j.Name, j, func(ctx context.Context, r *schedlock.Run) error {
		return w.work(ctx, j, r)
	}, schedlock.Retries(j.Retries), schedlock.AtMost(time.Hour))
	if err != nil {
		w.report(event{Kind: evResult, Job: j.Name, Error: err.Error()})
		return
	}
	for {
		next := entry.Next(w.now())
		if next.IsZero() {
			return
		}
		t := time.NewTimer(next.Sub(w.now()))
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-t.C:
		}
		runs.Go(entry.Run)
		runs.Go(func() { w.naive.run(j, next) })
	}
}

// room is the longest time that a step may take: a step that could outlive its run is not begun.
const room = 150 * time.Millisecond

// work is a run of a job under schedlock.
func (w *worker) work(ctx context.Context, j job, r *schedlock.Run) error {
	at := event{Way: bySchedlock, Job: j.Name, Tick: r.Tick(), Attempt: r.Attempt()}
	say := func(kind string) {
		at.Kind = kind
		w.report(at)
	}
	say(evBegin)
	defer say(evEnd)
	for begun := time.Now(); time.Since(begun) < j.Takes; {
		for time.Until(r.Deadline()) < room && r.Err() == nil {
			select {
			case <-ctx.Done():
			case <-time.After(5 * time.Millisecond): // the next renewal moves the deadline
			}
		}
		begin := at
		begin.Kind, begin.At = evStep, hostclock.Now() // before the check: a pause between the two makes it too early
		if err := r.Err(); err != nil {
			return err
		}
		w.report(begin)
		time.Sleep(step)
		say(evDid)
	}
	return nil
}

// report reports an event.
func (w *worker) report(e event) {
	if e.At == 0 {
		e.At = hostclock.Now()
	}
	line, err := json.Marshal(e)
	if err == nil {
		_, err = w.out.Write(append(line, '\n'))
	}
	if err != nil {
		os.Exit(1) // the parent has ended
	}
}
