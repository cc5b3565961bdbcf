package main

import (
	"context"
	"net/http"
	"time"

	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/idemhttp"
	"github.com/etcdkit/etcdkit/internal/examples/program"
)

// The phases in which processes are killed, and members of etcd stopped.

func (d *demo) killedTakeOver(ctx context.Context) ([]result, error) {
	return d.killed(ctx, byTakeOver, []string{holdAsked, holdCharged}, func([]request) (map[string]bool, error) { return nil, nil })
}

func (d *demo) killedRefuse(ctx context.Context) ([]result, error) {
	return d.killed(ctx, byWait, []string{holdAsked, holdCharged}, func(all []request) (map[string]bool, error) { return d.resolve(ctx, all) })
}

// killed kills the servers of payments, one at each of the stages, calls operator, and repeats the
// requests of the clients.
func (d *demo) killed(ctx context.Context, way string, stages []string, operator func([]request) (map[string]bool, error)) ([]result, error) {
	n := len(stages)
	requests, answers, owners, first := make([]request, n), make([]<-chan answer, n), map[string]bool{}, make([][]answer, n)
	for i, stage := range stages {
		x := d.request(way)
		if err := d.client.create(ctx, x.order, x.amount); err != nil {
			return nil, err
		}
		all, server, err := d.held(ctx, x, stage, 0, copies)
		if err != nil {
			return nil, err
		}
		requests[i], answers[i], owners[server] = x, all, true
	}
	var kills []func() error
	for server := range owners {
		kills = append(kills, func() error { return d.replace(ctx, server) })
	}
	if err := together(kills...); err != nil {
		return nil, err
	}
	for i := range requests {
		first[i] = collect(ctx, answers[i], copies)
	}
	reported, err := operator(requests)
	if err != nil {
		return nil, err
	}
	results := make([]result, n)
	for i, x := range requests {
		if results[i], err = d.settle(ctx, x, first[i], d.client.insist(ctx, x)...); err != nil {
			return nil, err
		}
		results[i].Reported = reported[x.order]
	}
	return results, nil
}

// resolve is the operator: it lists the payments with an unknown outcome until all requests are
// among them, asks the provider whether it has charged, and resolves each. It returns the orders
// that were listed.
func (d *demo) resolve(ctx context.Context, requests []request) (reported map[string]bool, err error) {
	refs, reported := map[idempotency.Ref]request{}, map[string]bool{}
	for _, x := range requests {
		refs[d.store.Ref(idempotency.Key{Op: "POST " + x.path(), ID: x.key})] = x
	}
	for end := time.Now().Add(patience); len(reported) < len(requests) && time.Now().Before(end); {
		for rec, err := range d.store.List(ctx, idempotency.Filter{State: idempotency.Unknown}) {
			if err != nil {
				return nil, err
			}
			if x, ok := refs[rec.Ref]; ok {
				reported[x.order] = true
				if err := d.lookUp(ctx, rec.Ref, x); err != nil {
					return nil, err
				}
			}
		}
		if program.Sleep(ctx, 100*time.Millisecond) != nil {
			return nil, context.Cause(ctx)
		}
	}
	return reported, nil
}

// lookUp resolves a payment by the provider's book.
func (d *demo) lookUp(ctx context.Context, ref idempotency.Ref, x request) error {
	book, err := d.bank.closedBook(ctx, x.order)
	if err != nil {
		return err
	}
	what := idempotency.NotDone()
	if book.Charges > 0 {
		if what, err = d.wasDone(ctx, x, book.Receipts[0]); err != nil {
			return err
		}
	}
	return d.store.Resolve(ctx, ref, what)
}

// wasDone writes the receipt that the lost attempt would have written, and returns its response.
func (d *demo) wasDone(ctx context.Context, x request, charge string) (what idempotency.Resolution, err error) {
	if _, err = d.etcd.Put(ctx, d.orderKey(x.order), order{Amount: x.amount, Paid: charge}.String()); err != nil {
		return what, err
	}
	res := idemhttp.Response{Status: http.StatusCreated, Header: http.Header{"Content-Type": {"application/json"}},
		Body: jsonLine(receipt{Order: x.order, Amount: x.amount, Charge: charge, Server: "operator"})}
	return idempotency.WasDone(res.Encode()), nil
}

// leaderRestarted restarts the leader while one payment is charged and not recorded, and others are
// in progress.
func (d *demo) leaderRestarted(ctx context.Context) (results []result, err error) {
	x := d.request(byTakeOver)
	if err := d.client.create(ctx, x.order, x.amount); err != nil {
		return nil, err
	}
	answers, _, err := d.held(ctx, x, holdCharged, 0, copies)
	if err != nil {
		return nil, err
	}
	leader, err := d.Own.WaitLeader(ctx)
	if err != nil {
		return nil, err
	}
	err = together(func() error {
		if err := d.Own.Stop(leader); err != nil {
			return err
		}
		if _, err := d.Own.WaitLeader(ctx); err != nil {
			return err
		}
		if err := d.Own.Restart(ctx, leader); err != nil {
			return err
		}
		return d.bank.release(ctx, x.order)
	}, func() (err error) {
		results, err = d.each(ctx, byTakeOver, d.few(), func(ctx context.Context, _ int, x request) (result, error) {
			first := collect(ctx, d.client.burst(ctx, x, copies), copies)
			return d.settle(ctx, x, first, d.client.insist(ctx, x)...)
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	first := collect(ctx, answers, copies)
	r, err := d.settle(ctx, x, first, d.client.insist(ctx, x)...)
	return append(results, r), err
}

// majorityLost crashes two of three members after a charge, before the provider's answer.
func (d *demo) majorityLost(ctx context.Context) ([]result, error) {
	x := d.request(byTakeOver)
	if err := d.client.create(ctx, x.order, x.amount); err != nil {
		return nil, err
	}
	answers, _, err := d.held(ctx, x, holdCharged, 0, copies)
	if err != nil {
		return nil, err
	}
	if err := together(func() error { return d.Own.Crash(0) }, func() error { return d.Own.Crash(1) }); err != nil {
		return nil, err
	}
	err = d.bank.release(ctx, x.order)
	if err == nil {
		_, err = d.bank.closedBook(ctx, x.order) // the server has the answer
	}
	if err != nil {
		return nil, err
	}
	if err := d.Own.Restart(ctx, 0, 1); err != nil {
		return nil, err
	}
	first := collect(ctx, answers, copies)
	r, err := d.settle(ctx, x, first, d.client.insist(ctx, x)...)
	return []result{r}, err
}
