package main

import (
	"context"
	"time"
)

// The phases in which processes are killed or paused, and etcd is stopped.

// victim is the place of the instance that is killed, and of the one that is paused.
const victim = 1

// killed kills an instance while it holds permits. What it held is free when its lease has expired;
// until then fewer calls run. Then another instance starts in its place.
func (d *demo) killed(ctx context.Context) error {
	p := d.calm(d.limit)
	p.Other = anyNumber // 502 of the proxy, for the requests that were with it
	if err := d.next(ctx, "an instance is killed", &p); err != nil {
		return err
	}
	defer d.load(ctx, "closed")()
	pod := d.pods[victim]
	if err := d.working(ctx, pod.Name); err != nil {
		return err
	}
	d.proxy.Set(victim, "")
	d.mark("killed")
	if err := d.Kill(pod); err != nil {
		return err
	}
	held, _, err := d.holds(ctx, pod.Name)
	if err != nil {
		return err
	}
	if held == 0 {
		d.wrong("the instance held no permit when it was killed: the row shows nothing")
	}
	err = d.until(ctx, "the permits of a killed instance are free", func() (bool, error) {
		held, waiting, err := d.holds(ctx, pod.Name)
		return held+waiting == 0, err
	})
	if err != nil {
		return err
	}
	if err := d.startPod(ctx, victim); err != nil {
		return err
	}
	p = d.calm(d.limit)
	p.Least, p.From = lowered+1, d.pods[victim].Name
	if err := d.next(ctx, "another takes its place", &p); err != nil {
		return err
	}
	d.mark("replaced")
	return d.serving(ctx, victim, 2*time.Second)
}

// paused stops an instance for longer than the TTL: its permits are given to others. When it
// continues, it has lost them.
func (d *demo) paused(ctx context.Context) error {
	p := d.calm(d.limit)
	if err := d.next(ctx, "an instance is paused past its TTL", &p); err != nil {
		return err
	}
	defer d.load(ctx, "closed")()
	pod := d.pods[victim]
	if err := d.working(ctx, pod.Name); err != nil {
		return err
	}
	d.mark("paused")
	if err := pod.Pause(); err != nil {
		return err
	}
	err := sleep(ctx, d.ttl)
	if err == nil {
		err = d.until(ctx, "the permits of a paused instance are free", func() (bool, error) {
			held, waiting, err := d.holds(ctx, pod.Name)
			return held+waiting == 0, err
		})
	}
	if err == nil {
		err = sleep(ctx, time.Second) // others hold them
	}
	if err == nil {
		p.Unavailable, p.Full, p.From = anyNumber, anyNumber, pod.Name // for the requests whose permits were lost
		err = d.next(ctx, "it continues", &p)
	}
	d.mark("continued")
	if bad := pod.Continue(); err == nil {
		err = bad
	}
	if err != nil {
		return err
	}
	return d.serving(ctx, victim, 2*time.Second)
}

// working waits until an instance holds a permit.
func (d *demo) working(ctx context.Context, owner string) error {
	if err := sleep(ctx, time.Second); err != nil {
		return err
	}
	return d.until(ctx, "the instance holds a permit", func() (bool, error) {
		held, _, err := d.holds(ctx, owner)
		return held > 0, err
	})
}

// serving waits until the instance in a place has served a request in the present row, and for a
// while more.
func (d *demo) serving(ctx context.Context, i int, more time.Duration) error {
	err := d.until(ctx, "the instance serves requests", func() (bool, error) {
		d.mu.Lock()
		defer d.mu.Unlock()
		for _, a := range d.row.answers {
			if a.Served() && a.Instance == d.pods[i].Name && !a.Without {
				return true, nil
			}
		}
		return false, nil
	})
	if err != nil {
		return err
	}
	return sleep(ctx, more)
}

// outage is a phase in which etcd is stopped under a policy.
type outage struct {
	policy string // its path
	// bound returns the bound that the policy keeps meanwhile; 0 is none.
	bound func(limit int) int
	// gone is what is promised of the answers meanwhile.
	gone promise
}

// The policies, with what docs/limits.md promises.
var outages = []outage{
	{"closed", func(limit int) int { return limit }, promise{Unavailable: some, Full: anyNumber, Served: anyNumber}},
	{"open", func(int) int { return 0 }, promise{Unavailable: anyNumber, Full: anyNumber, Served: some, Without: some}},
}

// run stops etcd's only member under load, for longer than the TTL, and starts it again. The first
// row is from the stop until all instances know that etcd answers, the second one is after that.
func (o outage) run(d *demo, ctx context.Context) error {
	name := nameOf(o.policy)
	p := o.gone
	p.Bound, p.Least, p.Early = o.bound(d.limit), 1, true
	if err := d.next(ctx, "etcd is stopped, "+name, &p); err != nil {
		return err
	}
	defer d.load(ctx, o.policy)()
	if err := sleep(ctx, time.Second); err != nil {
		return err
	}
	d.mark("etcd is stopped")
	if err := d.own.Crash(0); err != nil {
		return err
	}
	begun := time.Now()
	err := d.until(ctx, "each instance knows of the outage", func() (bool, error) { return d.inOutage(o.policy) == instances, nil })
	if err == nil {
		err = sleep(ctx, time.Until(begun.Add(d.ttl+3*time.Second))) // no lease is trusted any more
	}
	d.mark("etcd is started")
	if bad := d.own.Restart(ctx, 0); err == nil {
		err = bad
	}
	if err != nil {
		return err
	}
	err = d.until(ctx, "each instance has ended the outage", func() (bool, error) {
		if d.inOutage(o.policy) > 0 {
			return false, nil
		}
		n, err := d.withoutPermit(ctx)
		return n == 0, err
	})
	if err != nil {
		return err
	}
	p = d.calm(d.limit)
	p.Least, p.Unavailable = lowered+1, anyNumber
	if err := d.next(ctx, "etcd is back, "+name, &p); err != nil {
		return err
	}
	for i := range instances {
		if err := d.serving(ctx, i, 0); err != nil {
			return err
		}
	}
	return sleep(ctx, 2*time.Second)
}
