package main

import (
	"context"
	"time"

	"github.com/etcdkit/etcdkit/concurrency/limithttp"
	"github.com/etcdkit/etcdkit/demos/internal/backend"
	"github.com/etcdkit/etcdkit/internal/examples/program"
)

// outage is a phase in which etcd is stopped under a policy.
type outage struct {
	name   string // and the path of its requests
	policy limithttp.Outage
	// bound returns the bound that the policy keeps meanwhile; 0 is none.
	bound func(limit int) int
	// gone is what is promised of the answers meanwhile.
	gone promise
}

// The policies, with what docs/limits.md promises.
var outages = []outage{
	{"Closed", limithttp.Closed, func(limit int) int { return limit }, promise{Unavailable: some, Full: anyNumber, Served: anyNumber}},
	{"Open", limithttp.Open, func(int) int { return 0 }, promise{Unavailable: anyNumber, Full: anyNumber, Served: some, Without: some}},
	{"Share", limithttp.Share, func(limit int) int { return 2 * limit }, promise{Unavailable: some, Full: anyNumber, Served: some, Without: some}},
}

// run stops etcd's only member under load, for longer than the TTL, and starts it again. The first
// row is from the stop until all instances know that etcd answers, the second one is after that.
func (o outage) run(d *demo, ctx context.Context) error {
	p := o.gone
	p.Bound, p.Least, p.Early = o.bound(d.limit), 1, true
	if err := d.next(ctx, "etcd is stopped, "+o.name, &p); err != nil {
		return err
	}
	defer d.load(ctx, o.name)()
	err := program.Sleep(ctx, time.Second)
	if err == nil {
		err = d.each(ctx, "each instance has counted the others", func(_ *backend.Server, st state) bool { return st.Sessions == instances })
	}
	if err != nil {
		return err
	}
	d.mark("etcd is stopped")
	if err := d.Own.Crash(0); err != nil {
		return err
	}
	begun := time.Now()
	err = d.each(ctx, "each instance knows of the outage", func(pod *backend.Server, _ state) bool { return d.inOutage(pod, o.name) })
	if err == nil {
		err = program.Sleep(ctx, time.Until(begun.Add(d.config.TTL+3*time.Second))) // no lease is trusted any more
	}
	d.mark("etcd is started")
	if bad := d.Own.Restart(ctx, 0); err == nil {
		err = bad
	}
	if err == nil {
		err = d.each(ctx, "each instance has ended the outage, and its requests without a permit", func(pod *backend.Server, st state) bool {
			return !d.inOutage(pod, o.name) && st.Without == 0
		})
	}
	if err != nil {
		return err
	}
	p = d.calm(d.limit)
	p.Least, p.Unavailable, p.Early = lowered+1, anyNumber, true // some had asked before
	if err := d.next(ctx, "etcd is back, "+o.name, &p); err != nil {
		return err
	}
	for i := range instances {
		if err := d.serving(ctx, i, 0); err != nil {
			return err
		}
	}
	return program.Sleep(ctx, time.Second)
}
