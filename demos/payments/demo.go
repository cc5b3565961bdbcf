package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/internal/examples/program"
)

// demo is one run.
type demo struct {
	config
	*fleet
	etcd   *clientv3.Client
	store  *idempotency.Store // the operator's
	bank   *bank
	client *client
	serial atomic.Int64 // of orders
}

// lifetime is the lifetime of a marker: the shortest lease that etcd grants by default.
const lifetime = 2 * time.Second

// demonstrate runs the program, and returns its outcome.
func demonstrate(ctx context.Context, c config, progress io.Writer) (o *outcome, err error) {
	begun := time.Now()
	err = c.Run(ctx, 3, progress, func(ctx context.Context, at program.Place) (err error) {
		o, err = demonstrateAt(ctx, c, at, progress, begun)
		return err
	})
	return o, err
}

// demonstrateAt runs the program on an etcd.
func demonstrateAt(ctx context.Context, c config, at program.Place, progress io.Writer, begun time.Time) (o *outcome, err error) {
	d := &demo{config: c}
	front, err := c.front.Front(servers, false)
	if err != nil {
		return nil, err
	}
	defer front.Close()
	d.fleet, ctx = newFleet(ctx, front, settings{Place: at, TTL: c.TTL, Margin: c.Margin(), Lifetime: lifetime})
	defer d.Fail(nil)
	if d.etcd, err = at.Dial(); err != nil {
		return nil, err
	}
	defer d.etcd.Close()
	defer func() {
		if err != nil {
			d.Fail(err)
		}
		d.Stop()
	}()
	run := func() (err error) {
		if err = d.startAll(ctx); err != nil {
			return err
		}
		url, err := d.proxy.Listen()
		if err != nil {
			return err
		}
		d.bank, d.client = newBank(d.Provider), newClient(url)
		o, err = d.experiment(ctx, progress, begun)
		return err
	}
	if err = d.withStore(ctx, run); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause // of the other errors
		}
		return nil, err
	}
	return o, nil
}

// withStore opens the operator's session and store for run, and removes all keys of the run at the
// end.
func (d *demo) withStore(ctx context.Context, run func() error) (err error) {
	start, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	sess, err := concurrency.NewSession(start, d.etcd, d.Namespace, &concurrency.SessionOptions{Owner: "operator"})
	if err != nil {
		return err
	}
	if d.store, err = newStore(sess); err == nil {
		err = run()
	}
	if err != nil {
		d.Fail(err)
	}
	d.Stop()
	ending, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	err = errors.Join(err, sess.Close(ending))
	for _, prefix := range []string{sess.NamespacePrefix(), d.space()} {
		_, bad := d.etcd.Delete(ending, prefix, clientv3.WithPrefix())
		err = errors.Join(err, bad)
	}
	return err
}

// experiment runs all phases, one after the other.
func (d *demo) experiment(ctx context.Context, progress io.Writer, begun time.Time) (*outcome, error) {
	o := &outcome{OK: true, Servers: servers, Copies: copies, Front: d.proxy.Name(), TTL: d.config.TTL.Seconds(), Phases: []report{}, Others: []report{}, Violations: []string{}, Skipped: []string{}}
	fmt.Fprintf(progress, "%d servers, each payment sent %d times at once with one key; 55 s with the default flags\n", servers, copies)
	for _, p := range d.phases() {
		switch {
		case !d.Only.MatchString(p.Name):
			continue
		case p.breaks && d.Own == nil:
			o.Skipped = append(o.Skipped, p.Name)
			continue
		}
		fmt.Fprintf(progress, "%5.1f s  %s\n", time.Since(begun).Seconds(), p.Name)
		results, err := p.run(d, ctx)
		if err == nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.Name, err)
		}
		o.add(p, results)
	}
	for rec, err := range d.store.List(ctx, idempotency.Filter{}) {
		if err != nil {
			return nil, err
		}
		if rec.State != idempotency.Done {
			o.wrong("%s: the record is %v at the end, want done", rec.Op, rec.State)
		}
	}
	o.Elapsed = time.Since(begun).Round(time.Millisecond).Seconds()
	return o, nil
}

// phases returns the phases of this run and the other ways, in their order.
func (d *demo) phases() []phase {
	all := phases()
	if d.curl != "" {
		all = append(all, byCurl())
	}
	return append(all, others()...)
}

// request returns a request for a new order.
func (d *demo) request(way string) request {
	n := int(d.serial.Add(1))
	return request{way: way, order: fmt.Sprintf("order-%03d", n), key: strings.ToLower(rand.Text()), amount: 1000 + n}
}

// few is the number of orders in the smaller phases.
func (d *demo) few() int { return max(1, min(atOnce, d.orders/3)) }

// paid returns the receipt that is stored with an order.
func (d *demo) paid(ctx context.Context, name string) (string, error) {
	resp, err := d.etcd.Get(ctx, d.orderKey(name))
	if err != nil || len(resp.Kvs) == 0 {
		return "", err
	}
	var o order
	return o.Paid, json.Unmarshal(resp.Kvs[0].Value, &o)
}

// jsonLine returns the body that reply writes.
func jsonLine(v any) []byte {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err) // it has only strings and numbers
	}
	return append(raw, '\n')
}
