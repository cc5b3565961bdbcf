package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/examples/child"
	"github.com/etcdkit/etcdkit/internal/examples/program"
	"github.com/etcdkit/etcdkit/internal/hostclock"
	"github.com/etcdkit/etcdkit/schedlock"
)

// demo is one run, with its etcd.
func demo(ctx context.Context, c config, progress io.Writer) (r *outcome, err error) {
	if !child.CanPause {
		fmt.Fprintln(os.Stderr, "cron: processes cannot be paused on this system: that part is left out")
	}
	err = c.Run(ctx, 1, progress, func(ctx context.Context, at program.Place) (err error) {
		r, err = experiment(ctx, c, settings{Place: at, TTL: c.TTL, Margin: c.Margin()})
		return err
	})
	return r, err
}

// experiment is one run on an etcd. It leaves no process and no key.
func experiment(ctx context.Context, c config, s settings) (r *outcome, err error) {
	begun := time.Now()
	f, ctx := newFleet(ctx, c, s)
	defer f.fail(nil)
	started := false
	defer func() {
		if err != nil {
			f.fail(err)
			f.stopAll()
		}
		if started {
			err = errors.Join(err, f.clean())
		}
	}()
	jobs, err := f.startAll(ctx)
	if err != nil {
		return nil, because(ctx, err)
	}
	started = true
	faults := plannedFaults()
	go watchStalls(ctx, f.log.add)
	client, err := s.Dial()
	if err != nil {
		return nil, err
	}
	defer client.Close()
	go watchEtcd(ctx, client, f.Namespace, f.log.add)
	fmt.Fprintf(os.Stderr, "%d processes, the same %d jobs in each; 35 s with the default flags\n", c.workers, len(jobs))
	quiet := program.ShowProgress(os.Stderr, 5*time.Second, func() string { return progress(f.log, jobs) })
	restarts, err := f.strikeAll(ctx, jobs, faults)
	if err == nil && program.Sleep(ctx, time.Until(jobs[0].Until.Add(c.skew))) != nil {
		err = context.Cause(ctx)
	}
	if err == nil {
		f.stopAll()
		err = context.Cause(ctx) // if one has ended by itself
	}
	quiet()
	if err != nil {
		return nil, because(ctx, err)
	}
	history, err := f.history(ctx, jobs)
	if err != nil {
		return nil, err
	}
	v := judge(evidence{config: c, jobs: jobs, events: f.log.all(), members: f.all, faults: faults, history: history, clock: hostTime{time.Now(), hostclock.Now()}})
	return newOutcome(c, v, recoveries(faults, f.log.all()), restarts, history, time.Since(begun)), nil
}

// because returns the reason why ctx has ended, if it has, and otherwise err.
func because(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// session opens a session of the parent's own.
func (f *fleet) session(ctx context.Context, use func(*concurrency.Session, *clientv3.Client) error) error {
	client, err := f.Dial()
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	sess, err := concurrency.NewSession(ctx, client, f.Namespace, nil)
	if err != nil {
		return err
	}
	return errors.Join(use(sess, client), sess.Close(ctx))
}

// history reads the records of all ticks from etcd.
func (f *fleet) history(ctx context.Context, jobs []job) (all map[string][]schedlock.Record, err error) {
	all = map[string][]schedlock.Record{}
	err = f.session(ctx, func(sess *concurrency.Session, _ *clientv3.Client) error {
		lk, err := schedlock.New(sess, nil)
		if err != nil {
			return err
		}
		for _, j := range jobs {
			if all[j.Name], err = lk.History(ctx, j.Name); err != nil && !errors.Is(err, schedlock.ErrUnknownJob) {
				return err
			}
		}
		return nil
	})
	return all, err
}

// clean removes all keys of the run from etcd.
func (f *fleet) clean() error {
	var prefix string
	err := f.session(context.Background(), func(sess *concurrency.Session, _ *clientv3.Client) error {
		prefix = sess.NamespacePrefix()
		return nil
	})
	if err != nil {
		return fmt.Errorf("clean up: %w", err)
	}
	client, err := f.Dial()
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_, err = client.Delete(ctx, prefix, clientv3.WithPrefix())
	return err
}
