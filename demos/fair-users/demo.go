package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/demos/internal/backend"
	"github.com/etcdkit/etcdkit/demos/internal/downstream"
	"github.com/etcdkit/etcdkit/demos/internal/waits"
	"github.com/etcdkit/etcdkit/internal/examples/program"
)

// demo is one run.
type demo struct {
	config
	settings
	*backend.Fleet
	proxy    backend.Front
	model    downstream.Client
	limiter  *concurrency.KeyedLimiter // the operator's
	client   *waits.Client             // of the proxy
	gateways [gateways]*backend.Server
	progress io.Writer
	begun    time.Time

	mu     sync.Mutex
	events map[backend.Event]int
}

// demonstrate runs the program, and returns its outcome.
func demonstrate(ctx context.Context, c config, progress io.Writer) (o *outcome, err error) {
	front, err := c.front.Front(gateways, true)
	if err != nil {
		return nil, err
	}
	defer front.Close()
	err = c.Run(ctx, 1, progress, func(ctx context.Context, at program.Place) (err error) {
		d := &demo{config: c, proxy: front, progress: progress, begun: time.Now(), events: map[backend.Event]int{}}
		d.settings = settings{Place: at, TTL: c.TTL, Sockets: front.Sockets()}
		d.Fleet, ctx = backend.NewFleet(ctx, childEnv, d.event)
		return d.run(ctx, func() (err error) { o, err = d.experiment(ctx); return err })
	})
	return o, err
}

// run starts all processes for fn, and at the end stops them and removes all keys of the run.
func (d *demo) run(ctx context.Context, fn func() error) error {
	return d.Operate(ctx, d.Place, 0, func(sess *concurrency.Session) (err error) {
		if d.limiter, err = newLimiter(sess); err != nil {
			return err
		}
		if err = d.startAll(ctx); err != nil {
			return err
		}
		url, err := d.proxy.Listen()
		if err != nil {
			return err
		}
		d.client = waits.NewClient(url)
		return fn()
	})
}

// startAll starts the model, then the gateways.
func (d *demo) startAll(ctx context.Context) error {
	model, err := d.Start(ctx, "the model", d.settings)
	if err != nil {
		return err
	}
	d.settings.Model = model.URL
	d.model = downstream.Client{URL: model.URL}
	return program.Each(gateways, func(i int) (err error) {
		s := d.settings
		s.Name = fmt.Sprintf("gateway-%d", i+1)
		if d.gateways[i], err = d.Start(ctx, s.Name, s); err == nil {
			err = d.proxy.Set(i, d.gateways[i].URL)
		}
		return err
	})
}

// event counts an event of a gateway.
func (d *demo) event(_ string, e backend.Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.events[e]++
}

func (d *demo) count(e backend.Event) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.events[e]
}

func (d *demo) say(format string, args ...any) {
	fmt.Fprintf(d.progress, "%5.1f s  %s\n", time.Since(d.begun).Seconds(), fmt.Sprintf(format, args...))
}

// experiment runs all parts, one after the other.
func (d *demo) experiment(ctx context.Context) (*outcome, error) {
	fmt.Fprintf(d.progress, "%d gateways, %d users and a greedy one; half a minute with the default flags\n", gateways, d.users)
	o := &outcome{Front: d.proxy.Name(), Users: d.users, AtOnce: d.greedy, Total: total, PerUser: perUser, Steps: []step{}, Violations: []string{}}
	for _, part := range []struct {
		name string
		run  func(context.Context, *outcome) error
	}{
		{"one queue for all users", func(ctx context.Context, o *outcome) error { return d.share(ctx, oneQueue, &o.OneQueue) }},
		{"a limit for each user, and a total", func(ctx context.Context, o *outcome) error { return d.share(ctx, byUser, &o.ByUser) }},
		{"handlers that never return", d.stuckHandlers},
		{"flows that end in another process", d.flows},
	} {
		if !d.Only.MatchString(part.name) {
			continue
		}
		d.say("%s", part.name)
		if err := part.run(ctx, o); err != nil {
			return nil, fmt.Errorf("%s: %w", part.name, err)
		}
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
	}
	o.judge()
	o.Elapsed = time.Since(d.begun).Round(time.Millisecond).Seconds()
	if d.picture != "" {
		if err := os.WriteFile(d.picture, o.svg(), 0o644); err != nil {
			return nil, err
		}
	}
	return o, nil
}
