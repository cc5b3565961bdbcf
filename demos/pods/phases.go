package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/demos/internal/backend"
	"github.com/etcdkit/etcdkit/internal/examples/child"
	"github.com/etcdkit/etcdkit/internal/examples/program"
	"github.com/etcdkit/etcdkit/internal/hostclock"
)

// phase is one part of the demo.
type phase struct {
	name   string
	run    func(*demo, context.Context) error
	breaks bool // stops etcd
}

// phases returns all phases, in their order.
func phases() []phase {
	all := []phase{
		{name: "steady load", run: (*demo).steady},
		{name: "burst", run: (*demo).burstPhase},
		{name: "limit changed", run: (*demo).changed},
		{name: "instance killed", run: (*demo).killed},
	}
	if child.CanPause {
		all = append(all, phase{name: "instance paused", run: (*demo).paused})
	}
	for _, o := range outages {
		all = append(all, phase{name: "etcd stopped, " + o.name, run: o.run, breaks: true})
	}
	return all
}

// calm is the promise of a row in which nothing fails. On a busy machine an instance that gets no time
// to run can lose its permits, and its requests that wait get no answer of etcd in time: they get 503.
// As many as one instance has in the burst are allowed.
func (d *demo) calm(bound int) promise {
	return promise{Bound: bound, Least: 1, Served: some, Full: anyNumber, Unavailable: span{0, d.burst() / instances}}
}

func (d *demo) steady(ctx context.Context) error {
	p := d.calm(d.limit)
	p.Least = lowered + 1
	if err := d.next(ctx, fmt.Sprintf("%d clients", d.clients), &p); err != nil {
		return err
	}
	defer d.load(ctx, "Closed")()
	return program.Sleep(ctx, 2*time.Second)
}

// burstPhase sends more requests at once than can be served within the wait.
func (d *demo) burstPhase(ctx context.Context) error {
	p := d.calm(d.limit)
	p.Full = some
	if err := d.next(ctx, fmt.Sprintf("%d requests at once", d.burst()), &p); err != nil {
		return err
	}
	d.atOnce(ctx, "Closed", d.burst())
	return nil
}

// changed lowers the limit while requests arrive, and raises it again. Calls that run when the limit
// is lowered are not ended: it holds as soon as those above it have ended.
func (d *demo) changed(ctx context.Context) error {
	full := d.calm(d.limit)
	full.Served = anyNumber
	if err := d.next(ctx, fmt.Sprintf("limit set to %d, while calls run", lowered), &full); err != nil {
		return err
	}
	defer d.load(ctx, "Closed")()
	if err := program.Sleep(ctx, time.Second); err != nil {
		return err
	}
	if err := d.setLimit(ctx, lowered); err != nil {
		return err
	}
	for st, err := range d.sem.Watch(ctx) {
		if err != nil {
			return err
		}
		if st.Limit == lowered && st.Used <= lowered {
			break
		}
	}
	p := d.calm(lowered)
	p.Full = some
	if err := d.next(ctx, fmt.Sprintf("limit %d", lowered), &p); err != nil {
		return err
	}
	if err := program.Sleep(ctx, wait+1500*time.Millisecond); err != nil {
		return err
	}
	p = d.calm(d.limit)
	p.Least = lowered + 1
	if err := d.next(ctx, fmt.Sprintf("limit set to %d", d.limit), &p); err != nil {
		return err
	}
	if err := d.setLimit(ctx, d.limit); err != nil {
		return err
	}
	return program.Sleep(ctx, 2*time.Second)
}

func (d *demo) setLimit(ctx context.Context, n int) error {
	d.mark(fmt.Sprintf("limit %d", n))
	return d.sem.SetLimit(ctx, n)
}

// soon bounds the wait for what should happen within seconds. If it does not, the row's promise is
// broken.
const soon = 30 * time.Second

// until waits until ok returns true, for a while. what is the promise that is broken otherwise.
func (d *demo) until(ctx context.Context, what string, ok func() (bool, error)) error {
	for end := time.Now().Add(soon); ; {
		done, err := ok()
		if done || err != nil {
			return err
		}
		if time.Now().After(end) {
			d.wrong("%s: not within %v", what, soon)
			return nil
		}
		if err := program.Sleep(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}

// holds returns how many permits an instance holds, and how many of its requests wait, by etcd.
func (d *demo) holds(ctx context.Context, owner string) (held, waiting int, err error) {
	st, err := d.sem.Status(ctx)
	by := func(all []concurrency.Request) (n int) {
		for _, r := range all {
			if r.Owner == owner {
				n++
			}
		}
		return n
	}
	return by(st.Holders), by(st.Waiters), err
}

// each waits until ok returns true for the state of each instance.
func (d *demo) each(ctx context.Context, what string, ok func(*backend.Server, state) bool) error {
	return d.until(ctx, what, func() (bool, error) {
		for _, pod := range d.pods {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, pod.URL+"/state", nil)
			if err != nil {
				return false, err
			}
			resp, err := d.client.HTTP.Do(req)
			if err != nil {
				return false, err
			}
			var st state
			err = json.NewDecoder(resp.Body).Decode(&st)
			resp.Body.Close()
			if err != nil || !ok(pod, st) {
				return false, err
			}
		}
		return true, nil
	})
}

// inOutage reports whether an instance is in an outage, under a policy.
func (d *demo) inOutage(pod *backend.Server, policy string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.outages[pod.Name+" "+policy]
}

func (d *demo) mark(what string) { d.marks = append(d.marks, mark{hostclock.Now(), what}) }
