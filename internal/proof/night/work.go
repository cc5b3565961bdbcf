package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/schedlock"
)

// mails is the rate of each of the rates.
var mails = concurrency.Rate{PerSecond: 2, Burst: 4}

// hangs is what the name of a file has at its end that makes a run of a job hang.
const hangs = ".hang"

// loop calls do until ctx ends, with a pause after each call that is half as long to one and a half times as long.
func (w *worker) loop(ctx context.Context, pause time.Duration, do func(n int)) {
	w.work.Go(func() {
		sleep(ctx, rand.N(pause))
		for n := 0; ctx.Err() == nil; n++ {
			do(n)
			sleep(ctx, pause/2+rand.N(pause))
		}
	})
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// some is work that takes a while, or until its context ends.
func some(most time.Duration) func(context.Context, *concurrency.Permit) error {
	return func(ctx context.Context, _ *concurrency.Permit) error {
		sleep(ctx, most/2+rand.N(most/2))
		return context.Cause(ctx)
	}
}

// use uses a name until ctx ends, or leave.
func (w *worker) use(ctx context.Context, i item) error {
	ctx, cancel := context.WithCancel(ctx)
	w.leave[i.name] = cancel
	switch i.kind {
	case "semaphore":
		return w.semaphore(ctx, i)
	case "mutex":
		mu, err := concurrency.NewMutex(w.sess, i.name)
		if err != nil {
			return err
		}
		w.loop(ctx, 8*time.Second, func(int) { _ = mu.Do(ctx, some(200*time.Millisecond)) })
	case "election":
		el, err := concurrency.NewElection(w.sess, i.name)
		if err != nil {
			return err
		}
		w.loop(ctx, time.Second, func(int) { _ = el.Lead(ctx, some(2*time.Minute), concurrency.Note(w.Node+".shop.example")) })
	case "limiter":
		lim, err := concurrency.NewKeyedLimiter(w.sess, i.name, 2, &concurrency.KeyedLimiterOptions{Total: 4, AdoptLimit: true})
		if err != nil {
			return err
		}
		w.loop(ctx, 8*time.Second, func(n int) { _ = lim.Key(fmt.Sprint("tenant-", n%3)).Do(ctx, some(200*time.Millisecond)) })
	case "rate":
		rate, err := concurrency.NewRateLimiter(w.sess, i.name, mails, &concurrency.RateLimiterOptions{AdoptRate: true})
		if err != nil {
			return err
		}
		w.loop(ctx, 2*time.Second, func(int) { _ = rate.Wait(ctx) })
	case "job":
		return w.job(ctx, cancel, i)
	case "store":
		return w.store(ctx, i)
	}
	return nil
}

func (w *worker) semaphore(ctx context.Context, i item) error {
	sem, err := concurrency.NewSemaphore(w.sess, i.name, i.limit, &concurrency.SemaphoreOptions{AdoptLimit: true})
	if err != nil {
		return err
	}
	pause, most := 8*time.Second, 800*time.Millisecond
	if i.limit == wide {
		pause, most = 2*time.Second, 2*time.Second
	}
	for range i.limit / 2 {
		w.loop(ctx, pause, func(n int) { _ = sem.Do(ctx, some(most), concurrency.Note(fmt.Sprint("order ", n))) })
	}
	return nil
}

// job runs a job at its fire times, as a cron library does. A run reads its file.
func (w *worker) job(ctx context.Context, cancel func(), i item) error {
	ending := ctx
	run := func(ctx context.Context, _ *schedlock.Run) error {
		if os.Remove(filepath.Join(w.Files, i.name+hangs)) == nil { // one run, of whichever process
			select {
			case <-ctx.Done(): // it was unlocked
			case <-ending.Done():
			}
			return errors.New("the run did not end by itself")
		}
		_, err := os.ReadFile(filepath.Join(w.Files, i.name))
		return err
	}
	job, err := w.jobs.Job(i.name, schedlock.Periods(w.Period), run)
	if err != nil {
		return err
	}
	w.leave[i.name] = func() {
		cancel()
		_ = job.Remove(context.WithoutCancel(ctx))
	}
	w.work.Go(func() {
		for ctx.Err() == nil {
			sleep(ctx, time.Until(job.Next(time.Now().Add(w.Ahead)).Add(-w.Ahead)))
			if ctx.Err() == nil {
				_, _ = job.RunContext(context.WithoutCancel(ctx))
			}
		}
	})
	return nil
}

func (w *worker) store(ctx context.Context, i item) error {
	st, err := idempotency.NewStore(w.sess, i.name, &idempotency.Options{
		OnLost: idempotency.Refuse, Retain: time.Hour, RetainUnknown: time.Hour, MaxPerScope: -1,
	})
	if err != nil {
		return err
	}
	w.stores[i.name] = st
	begun := time.Now().UnixNano() // a later process of the same name sends other requests
	w.loop(ctx, 4*time.Second, func(n int) {
		id := fmt.Sprint(w.Node, "-", begun, "-", n)
		key := idempotency.Key{Scope: fmt.Sprint("tenant-", n%3), Op: "POST /payments", ID: id}
		_, _ = idempotency.Do(context.WithoutCancel(ctx), st, key, id, func(ctx context.Context, _ *idempotency.Attempt) (string, error) {
			sleep(ctx, 50*time.Millisecond)
			return "paid", nil
		})
	})
	return nil
}
