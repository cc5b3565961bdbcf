package main

import (
	"context"
	"net/http"
	"time"

	"github.com/etcdkit/etcdkit/internal/examples/program"
)

// phase is one part of the demo: the same happens to all its orders.
type phase struct {
	Name    string
	What    string
	run     func(*demo, context.Context) ([]result, error)
	promise *promise // nil for the other ways
	breaks  bool     // stops members of etcd
}

// Codes of idemhttp.
const (
	inProgress  = "in-progress"
	unknown     = "unknown"
	reused      = "reused"
	unavailable = "unavailable"
)

func phases() []phase {
	const ok = http.StatusCreated
	once := exactly(1)
	return []phase{
		{Name: "duplicates are refused", What: "409 while the payment is in progress, and then a replay", run: (*demo).refused,
			promise: &promise{Good: once, Conflict: exactly(4), Charges: once, Codes: []string{inProgress}, Later: []int{ok}, Originals: once}},
		{Name: "duplicates wait", What: "five responses that differ only in Date and the replay header", run: (*demo).wait,
			promise: &promise{Good: exactly(5), Charges: once, Later: []int{ok}, Originals: once}},
		{Name: "the provider is out of service", What: "nothing was charged, so the key is released, and the next request is charged", run: (*demo).declined,
			promise: &promise{Conflict: exactly(4), Other: once, Charges: once, Codes: []string{inProgress}, Later: []int{ok}, Originals: once}},
		{Name: "a payment slower than the TTL", What: "a claim lasts as long as its process lives", run: (*demo).slow,
			promise: &promise{Good: once, Conflict: exactly(4), Charges: once, Codes: []string{inProgress}, Later: []int{ok}, Originals: once}},
		{Name: "the client hangs up", What: "the payment continues, and a repeated request gets its response", run: (*demo).hangUp,
			promise: &promise{Good: exactly(5), Charges: once, Later: []int{ok}}},
		{Name: "the body differs", What: "422, during and after the payment", run: (*demo).differs,
			promise: &promise{Good: once, Other: exactly(4), Charges: once, Codes: []string{reused}, Later: []int{422, ok}, Originals: once}},
		{Name: "server killed, TakeOver", What: "the provider takes keys: a duplicate sends the charge again with the same key", run: (*demo).killedTakeOver,
			promise: &promise{Good: between(0, 4), Other: between(1, 5), Charges: once, Later: []int{ok}, Originals: between(0, 1)}},
		{Name: "server killed, Refuse", What: "the provider takes no keys: nothing executes again until an operator has read its book", run: (*demo).killedRefuse,
			promise: &promise{Conflict: between(0, 4), Other: between(1, 5), Charges: once, Codes: []string{unknown}, Later: []int{ok}, Originals: between(0, 1), Reported: true}},
		{Name: "etcd's leader restarted", What: "payments continue", run: (*demo).leaderRestarted, breaks: true,
			promise: &promise{Good: between(0, 5), Conflict: between(0, 1), Other: between(0, 5), Charges: once, Codes: []string{unavailable, inProgress}, Later: []int{ok}, Originals: between(0, 1)}},
		{Name: "etcd without a majority after the charge", What: "the key is not released, a client that has paid may get 409 and retry, and the outcome is recorded when etcd is available again", run: (*demo).majorityLost, breaks: true,
			promise: &promise{Good: between(0, 5), Conflict: between(0, 1), Other: between(0, 5), Charges: once, Codes: []string{unavailable, inProgress}, Later: []int{ok}, Originals: between(0, 1)}},
	}
}

// atOnce is the number of orders that are paid at the same time.
const atOnce = 4

// each creates n orders and pays them.
func (d *demo) each(ctx context.Context, way string, n int, pay func(ctx context.Context, i int, x request) (result, error)) ([]result, error) {
	all, pays, places := make([]result, n), make([]func() error, n), make(chan struct{}, atOnce)
	for i := range n {
		x := d.request(way)
		pays[i] = func() (err error) {
			places <- struct{}{}
			defer func() { <-places }()
			if err = d.client.create(ctx, x.order, x.amount); err == nil {
				all[i], err = pay(ctx, i, x)
			}
			return err
		}
	}
	return all, together(pays...)
}

// settle returns the result of an order, after all its requests were answered.
func (d *demo) settle(ctx context.Context, x request, first []answer, later ...answer) (r result, err error) {
	r = result{Order: x.order, First: first, Later: later}
	if r.Book, err = d.bank.closedBook(ctx, x.order); err == nil {
		r.Paid, err = d.paid(ctx, x.order)
	}
	return r, err
}

// held sends a payment and n-1 duplicates, and waits until the provider holds the payment at that
// stage. It returns the server that made the payment.
func (d *demo) held(ctx context.Context, x request, stage string, fail, n int) (answers <-chan answer, server string, err error) {
	if err = d.bank.plan(ctx, plan{Order: x.order, Hold: stage, Fail: fail}); err != nil {
		return nil, "", err
	}
	answers = d.client.burst(ctx, x, n)
	waiting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	server, err = d.bank.held(waiting, x.order)
	return answers, server, err
}

// soon bounds the wait for expected answers. If one is missing, the judge reports it.
const soon = 15 * time.Second

func collectSoon(ctx context.Context, answers <-chan answer, n int) []answer {
	ctx, cancel := context.WithTimeout(ctx, soon)
	defer cancel()
	return collect(ctx, answers, n)
}

// refused holds each payment until its duplicates are answered, so that they arrive during the
// payment on a busy machine, too.
func (d *demo) refused(ctx context.Context) ([]result, error) {
	return d.each(ctx, byNoWait, d.orders, func(ctx context.Context, _ int, x request) (result, error) {
		fail, _ := failures(x.order)
		answers, _, err := d.held(ctx, x, holdAsked, fail, copies)
		if err != nil {
			return result{}, err
		}
		first := collectSoon(ctx, answers, copies-1)
		if err := d.bank.release(ctx, x.order); err != nil {
			return result{}, err
		}
		first = append(first, collect(ctx, answers, copies)...)
		return d.settle(ctx, x, first, d.client.send(ctx, x))
	})
}

func (d *demo) wait(ctx context.Context) ([]result, error) {
	return d.each(ctx, byWait, d.orders, func(ctx context.Context, _ int, x request) (result, error) {
		first := collect(ctx, d.client.burst(ctx, x, copies), copies)
		return d.settle(ctx, x, first, d.client.send(ctx, x))
	})
}

// always is more failures than an order has calls.
const always = 1000

func (d *demo) declined(ctx context.Context) ([]result, error) {
	return d.each(ctx, byNoWait, d.few(), func(ctx context.Context, _ int, x request) (result, error) {
		answers, _, err := d.held(ctx, x, holdAsked, always, copies)
		if err != nil {
			return result{}, err
		}
		first := collectSoon(ctx, answers, copies-1)
		if err := d.bank.release(ctx, x.order); err != nil {
			return result{}, err
		}
		first = append(first, collect(ctx, answers, copies)...)
		if err := d.bank.plan(ctx, plan{Order: x.order}); err != nil {
			return result{}, err
		}
		return d.settle(ctx, x, first, d.client.insist(ctx, x)...)
	})
}

func (d *demo) slow(ctx context.Context) ([]result, error) {
	return d.each(ctx, byNoWait, d.few(), func(ctx context.Context, _ int, x request) (result, error) {
		answers, _, err := d.held(ctx, x, holdAsked, 0, copies-1)
		if err != nil {
			return result{}, err
		}
		first := collectSoon(ctx, answers, copies-2)
		if program.Sleep(ctx, d.config.TTL+time.Second) != nil {
			return result{}, context.Cause(ctx)
		}
		first = append(first, d.client.send(ctx, x))
		if err := d.bank.release(ctx, x.order); err != nil {
			return result{}, err
		}
		first = append(first, collect(ctx, answers, copies)...)
		return d.settle(ctx, x, first, d.client.send(ctx, x))
	})
}

func (d *demo) hangUp(ctx context.Context) ([]result, error) {
	return d.each(ctx, byWait, d.few(), func(ctx context.Context, _ int, x request) (result, error) {
		calling, hangUp := context.WithCancel(ctx)
		defer hangUp()
		if err := d.bank.plan(ctx, plan{Order: x.order, Hold: holdAsked}); err != nil {
			return result{}, err
		}
		dropped := d.client.burst(calling, x, 1)
		if _, err := d.bank.held(ctx, x.order); err != nil {
			return result{}, err
		}
		hangUp()
		collect(ctx, dropped, 1)
		select {
		case <-d.noticed(x.order):
		case <-ctx.Done():
			return result{}, context.Cause(ctx)
		}
		answers := d.client.burst(ctx, x, copies)
		if err := d.bank.release(ctx, x.order); err != nil {
			return result{}, err
		}
		return d.settle(ctx, x, collect(ctx, answers, copies), d.client.send(ctx, x))
	})
}

func (d *demo) differs(ctx context.Context) ([]result, error) {
	return d.each(ctx, byNoWait, d.few(), func(ctx context.Context, _ int, x request) (result, error) {
		other := x
		other.amount++
		answers, _, err := d.held(ctx, x, holdAsked, 0, 1)
		if err != nil {
			return result{}, err
		}
		first := collectSoon(ctx, d.client.burst(ctx, other, copies-1), copies-1)
		if err := d.bank.release(ctx, x.order); err != nil {
			return result{}, err
		}
		first = append(first, collect(ctx, answers, 1)...)
		return d.settle(ctx, x, first, d.client.send(ctx, other), d.client.send(ctx, x))
	})
}

// together runs functions at the same time.
func together(all ...func() error) error {
	return program.Each(len(all), func(i int) error { return all[i]() })
}
