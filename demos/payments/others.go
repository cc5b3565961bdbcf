package main

import (
	"context"
	"time"

	"github.com/etcdkit/etcdkit/internal/examples/program"
)

// others are the phases of the other ways.
func others() []phase {
	phases := []phase{
		{Name: "no guard", What: "read the order, charge, mark it as paid", run: naive(byNothing)},
		{Name: "a flag inside each process", What: "one payment for an order at a time, in each of four processes", run: naive(byFlag)},
		{Name: "compare-and-set on the status", What: "mark it as paid only if it is open", run: naive(byStatus)},
		{Name: "unique key", What: "write a bill first, of which there can be one", run: naive(byUnique)},
		{Name: "optimistic version", What: "with three retries", run: naive(byVersion)},
		{Name: "a lock over the work", What: "duplicates wait for it", run: naive(byLock)},
		{Name: "a lock, server killed", What: "after the charge", run: (*demo).lockKilled},
		{Name: "a marker with one lifetime", What: "for claim and result, without an owner", run: naive(byMarker)},
		{Name: "a marker, slow payment", What: "slower than the lifetime", run: (*demo).markerSlow},
		{Name: "a marker, store failure", What: "after the charge", run: (*demo).markerStoreFails},
	}
	return phases
}

// naive sends the same requests as the phases of idempotency.Store. For every fourth order, the
// provider is out of service during the first requests. Then the client repeats its request.
func naive(way string) func(*demo, context.Context) ([]result, error) {
	return func(d *demo, ctx context.Context) ([]result, error) {
		return d.each(ctx, way, max(atOnce, d.orders/2), func(ctx context.Context, i int, x request) (result, error) {
			if i%4 == 3 {
				if err := d.bank.plan(ctx, plan{Order: x.order, Fail: always}); err != nil {
					return result{}, err
				}
			}
			first := collect(ctx, d.client.burst(ctx, x, copies), copies)
			if i%4 == 3 {
				if err := d.bank.plan(ctx, plan{Order: x.order}); err != nil {
					return result{}, err
				}
			}
			return d.settle(ctx, x, first, d.client.send(ctx, x))
		})
	}
}

func (d *demo) lockKilled(ctx context.Context) ([]result, error) {
	return d.killed(ctx, byLock, []string{holdCharged}, func([]request) (map[string]bool, error) { return nil, nil })
}

// markerSlow repeats the request after the marker has expired, while the payment is in progress.
func (d *demo) markerSlow(ctx context.Context) ([]result, error) {
	return d.each(ctx, byMarker, d.few(), func(ctx context.Context, _ int, x request) (result, error) {
		answers, _, err := d.held(ctx, x, holdAsked, 0, copies)
		if err != nil {
			return result{}, err
		}
		first := collectSoon(ctx, answers, copies-1)
		for expired := false; !expired; {
			resp, err := d.etcd.Get(ctx, d.markerKey(x.key))
			if err != nil {
				return result{}, err
			}
			expired = len(resp.Kvs) == 0
			if !expired && program.Sleep(ctx, 50*time.Millisecond) != nil {
				return result{}, context.Cause(ctx)
			}
		}
		later := d.client.send(ctx, x)
		if err := d.bank.release(ctx, x.order); err != nil {
			return result{}, err
		}
		first = append(first, collect(ctx, answers, copies)...)
		return d.settle(ctx, x, first, later)
	})
}

// markerStoreFails makes the store fail once, after the charge.
func (d *demo) markerStoreFails(ctx context.Context) ([]result, error) {
	return d.each(ctx, byMarker, d.few(), func(ctx context.Context, _ int, x request) (result, error) {
		failing := x
		failing.storeFails = true
		first := collect(ctx, d.client.burst(ctx, failing, 1), 1)
		first = append(first, collect(ctx, d.client.burst(ctx, x, copies-1), copies-1)...)
		return d.settle(ctx, x, first, d.client.send(ctx, x))
	})
}
