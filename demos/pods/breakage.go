package main

import (
	"context"
	"errors"
	"time"

	"github.com/etcdkit/etcdkit/demos/internal/backend"
	"github.com/etcdkit/etcdkit/internal/examples/program"
)

// The phases in which processes are killed or paused.

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
	defer d.load(ctx, "Closed")()
	pod := d.pods[victim]
	if err := d.pauseHolding(ctx, pod); err != nil {
		return err
	}
	if err := d.proxy.Set(victim, ""); err != nil {
		return err
	}
	d.mark("killed")
	if err := d.Kill(pod); err != nil {
		return err
	}
	err := d.until(ctx, "the permits of a killed instance are free", func() (bool, error) {
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
	defer d.load(ctx, "Closed")()
	pod := d.pods[victim]
	if err := d.pauseHolding(ctx, pod); err != nil {
		return err
	}
	d.mark("paused")
	err := program.Sleep(ctx, d.config.TTL)
	if err == nil {
		err = d.until(ctx, "the permits of a paused instance are free", func() (bool, error) {
			held, waiting, err := d.holds(ctx, pod.Name)
			return held+waiting == 0, err
		})
	}
	if err == nil {
		err = program.Sleep(ctx, time.Second) // others hold them
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

// pauseHolding pauses an instance that holds a permit. Whether it does is known only while it is paused.
func (d *demo) pauseHolding(ctx context.Context, pod *backend.Server) error {
	if err := program.Sleep(ctx, time.Second); err != nil {
		return err
	}
	return d.until(ctx, "the instance holds a permit", func() (bool, error) {
		if err := pod.Pause(); err != nil {
			return false, err
		}
		held, _, err := d.holds(ctx, pod.Name)
		if held > 0 {
			return true, nil
		}
		return false, errors.Join(err, pod.Continue())
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
	return program.Sleep(ctx, more)
}
