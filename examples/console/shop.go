package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/internal/examples/cluster"
	"github.com/etcdkit/etcdkit/internal/examples/metrics"
	"github.com/etcdkit/etcdkit/internal/examples/program"
	"github.com/etcdkit/etcdkit/schedlock"
)

// work runs the processes of the shop, each with a client and a session of its own, until ctx ends.
func work(ctx context.Context, etcd cluster.Etcd) error {
	return program.Each(4, func(i int) error { return process(ctx, etcd, fmt.Sprintf("web-%d", i+1)) })
}

// process is one process of the shop.
func process(ctx context.Context, etcd cluster.Etcd, name string) error {
	client, err := etcd.Dial()
	if err != nil {
		return err
	}
	defer program.CloseClient(client)
	hooks, err := metrics.Hooks(ctx, name)
	if err != nil {
		return err
	}
	opening, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	sess, err := concurrency.NewSession(opening, client, "shop", &concurrency.SessionOptions{Owner: name, Hooks: hooks})
	if err != nil {
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = sess.Close(closing)
	}()
	charge, err := concurrency.NewSemaphore(sess, "charge", 3, &concurrency.SemaphoreOptions{AdoptLimit: true})
	if err != nil {
		return err
	}
	report, err := concurrency.NewMutex(sess, "report")
	if err != nil {
		return err
	}
	shard, err := concurrency.NewElection(sess, "shard-7")
	if err != nil {
		return err
	}
	api, err := concurrency.NewKeyedLimiter(sess, "api", 2, &concurrency.KeyedLimiterOptions{Total: 6, AdoptLimit: true})
	if err != nil {
		return err
	}
	jobs, err := schedlock.New(sess, nil)
	if err != nil {
		return err
	}
	orders, err := idempotency.NewStore(sess, "orders", &idempotency.Options{OnLost: idempotency.Refuse, Retain: time.Hour, RetainUnknown: time.Hour})
	if err != nil {
		return err
	}
	var all sync.WaitGroup
	forever := func(do func(n int)) {
		all.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				do(n)
			}
		})
	}
	for range 3 {
		forever(func(n int) {
			_ = charge.Do(ctx, some(time.Second), concurrency.Note(fmt.Sprintf("order %d", n)))
		})
		forever(func(int) {
			_ = api.Key(tenants[rand.N(len(tenants))]).Do(ctx, some(300*time.Millisecond))
		})
	}
	forever(func(int) {
		_ = report.Do(ctx, some(5*time.Second), concurrency.Note("sales of today"))
		sleep(ctx, time.Second)
	})
	forever(func(int) { _ = shard.Lead(ctx, some(time.Minute), concurrency.Note(name+".shop.example:8080")) })
	invoices, err := jobs.Job("invoices", schedlock.Periods(5*time.Second), func(ctx context.Context, _ *schedlock.Run) error { return some(time.Second)(ctx, nil) })
	if err != nil {
		return err
	}
	cleanup, err := jobs.Job("cleanup", schedlock.Periods(10*time.Second), func(context.Context, *schedlock.Run) error {
		if rand.N(2) == 0 {
			return errors.New("the disk is full")
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, job := range []*schedlock.Job{invoices, cleanup} { // as a cron library does
		forever(func(int) {
			sleep(ctx, time.Until(job.Next(time.Now())))
			_, _ = job.RunContext(ctx)
		})
	}
	forever(func(n int) { pay(ctx, orders, fmt.Sprintf("%s-%d", name, n)); sleep(ctx, time.Second) })
	all.Wait()
	return nil
}

var tenants = []string{"acme", "globex", "initech", "umbrella"}

// pay executes a payment. One in ten is left with an unknown outcome, and one fails.
func pay(ctx context.Context, orders *idempotency.Store, id string) {
	key := idempotency.Key{Scope: tenants[rand.N(len(tenants))], Op: "POST /payments", ID: id}
	a, _, err := orders.Begin(ctx, key, id)
	if err != nil || a == nil { // or it is done: a former run on this etcd has used the same names
		return
	}
	sleep(ctx, 200*time.Millisecond)
	switch rand.N(10) {
	case 0:
		_ = a.Abandon(ctx)
	case 1:
		_ = a.Fail(ctx, "the card was declined", nil)
	default:
		_ = a.Commit(ctx, []byte(`{"charge":"`+id+`"}`))
	}
}

// some returns work that takes a while, or until its context ends.
func some(most time.Duration) func(context.Context, *concurrency.Permit) error {
	return func(ctx context.Context, _ *concurrency.Permit) error {
		sleep(ctx, most/2+rand.N(most))
		return context.Cause(ctx)
	}
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
