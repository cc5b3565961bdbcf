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
	"github.com/etcdkit/etcdkit/internal/hostclock"
)

// demo is one run.
type demo struct {
	config
	settings
	*backend.Fleet
	proxy      backend.Front
	downstream downstream.Client
	sem        *concurrency.Semaphore // the operator's
	client     *waits.Client
	progress   io.Writer
	begun      int64 // by hostclock

	mu      sync.Mutex
	pods    [instances]*backend.Server
	serial  int
	phase   string          // that runs
	outages map[string]bool // instance and policy
	row     *row            // that answers are counted in; nil between phases
	rows    []*row
	marks   []mark
}

// mark is something that happened, for the picture.
type mark struct {
	At   int64
	What string
}

// demonstrate runs the program, and returns its outcome.
func demonstrate(ctx context.Context, c config, progress io.Writer) (o *outcome, err error) {
	front, err := c.front.Front(instances, true)
	if err != nil {
		return nil, err
	}
	defer front.Close()
	err = c.Run(ctx, 1, progress, func(ctx context.Context, at program.Place) (err error) {
		d := &demo{config: c, proxy: front, progress: progress, begun: hostclock.Now(), outages: map[string]bool{}}
		d.settings = settings{Place: at, Limit: c.limit, TTL: c.TTL, Margin: c.Margin(), Sockets: front.Sockets()}
		d.Fleet, ctx = backend.NewFleet(ctx, childEnv, d.event)
		return d.run(ctx, func() (err error) { o, err = d.experiment(ctx); return err })
	})
	return o, err
}

// run starts all processes for fn, and at the end stops them and removes all keys of the run.
func (d *demo) run(ctx context.Context, fn func() error) error {
	return d.Operate(ctx, d.Place, 60*time.Second, func(sess *concurrency.Session) (err error) {
		if d.sem, err = newLimit(sess, d.limit); err != nil {
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

// startAll starts the downstream service, then the instances.
func (d *demo) startAll(ctx context.Context) error {
	down, err := d.Start(ctx, "the downstream service", d.settings)
	if err != nil {
		return err
	}
	d.settings.Downstream = down.URL
	d.downstream = downstream.Client{URL: down.URL}
	return program.Each(instances, func(i int) error { return d.startPod(ctx, i) })
}

// startPod starts an instance in a place behind the proxy.
func (d *demo) startPod(ctx context.Context, i int) error {
	s := d.settings
	d.mu.Lock()
	d.serial++
	s.Name = fmt.Sprintf("pod-%d", d.serial)
	d.mu.Unlock()
	pod, err := d.Start(ctx, s.Name, s)
	if err != nil {
		return err
	}
	d.mu.Lock()
	d.pods[i] = pod
	d.mu.Unlock()
	return d.proxy.Set(i, pod.URL)
}

// event handles an event of an instance.
func (d *demo) event(server string, e backend.Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.outages[server+" "+e.Text] = e.Kind == evOutage
}

// note counts an answer in the present row.
func (d *demo) note(a waits.Answer) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.row != nil {
		d.row.answers = append(d.row.answers, a)
	}
}

// next ends the present row, if there is one, and begins another: answers are counted there, and the
// downstream service begins its counts anew. Without a promise no row begins.
func (d *demo) next(ctx context.Context, name string, p *promise) error {
	b, err := d.downstream.Reset(ctx)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.row != nil {
		d.row.Peak, d.row.Late = b.Peak, b.Late
		d.row.settle()
		d.row = nil
	}
	if p != nil {
		d.row = &row{Name: name, phase: d.phase, promise: *p, from: hostclock.Now()}
		d.rows = append(d.rows, d.row)
		fmt.Fprintf(d.progress, "%5.1f s  %s\n", float64(hostclock.Now()-d.begun)/1e9, name)
	}
	return nil
}

// wrong notes a broken promise of the present row.
func (d *demo) wrong(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.row.Wrong = append(d.row.Wrong, fmt.Sprintf(format, args...))
}

// experiment runs all phases, one after the other.
func (d *demo) experiment(ctx context.Context) (*outcome, error) {
	begun := time.Now()
	fmt.Fprintf(d.progress, "%d instances, limit %d, %d clients; 80 s with the default flags\n", instances, d.limit, d.clients)
	o := &outcome{OK: true, Instances: instances, Front: d.proxy.Name(), Limit: d.limit, TTL: d.config.TTL.Seconds(), Wait: wait.Seconds(), Skipped: []string{}}
	for _, p := range phases() {
		switch {
		case !d.Only.MatchString(p.name):
			continue
		case p.breaks && d.Own == nil:
			o.Skipped = append(o.Skipped, p.name)
			continue
		}
		d.phase = p.name
		err := p.run(d, ctx)
		if err == nil {
			err = d.next(ctx, "", nil)
		}
		if err == nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.name, err)
		}
	}
	o.add(d.rows)
	if d.timeline != "" {
		b, err := d.downstream.Book(ctx)
		if err != nil {
			return nil, err
		}
		p := picture{limit: d.limit, from: d.begun, to: hostclock.Now(), levels: b.Levels, rows: d.rows, marks: d.marks}
		if err := os.WriteFile(d.timeline, p.svg(), 0o644); err != nil {
			return nil, err
		}
	}
	o.Elapsed = time.Since(begun).Round(time.Millisecond).Seconds()
	return o, nil
}
