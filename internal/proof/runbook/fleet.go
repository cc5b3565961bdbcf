//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/observe"
)

const (
	processes = 6 // sessions with clients of their own
	workers   = 3 // of each
	limit     = 3 // of all
)

// fleet is the services of the page: sessions that work under one limit.
type fleet struct {
	hosts *hosts
	stop  func() error // nil while they are stopped

	in       atomic.Int64 // how many work now, counted outside etcd
	exceeded atomic.Int64 // how often that was above the limit
	lost     atomic.Int64 // sessions
	grants   atomic.Int64

	mu     sync.Mutex
	last   time.Time     // of the last grant
	gap    time.Duration // the longest time without one, since the section began
	tokens struct{ most, least int64 }
	causes []error
}

// event counts the sessions that are lost.
func (f *fleet) event(_ context.Context, e observe.Event) {
	if lost, ok := e.(observe.SessionLost); ok {
		f.lost.Add(1)
		f.mu.Lock()
		f.causes = append(f.causes, lost.Cause)
		f.mu.Unlock()
	}
}

// run executes a verb of systemctl.
func (f *fleet) run(verb string) error {
	if verb != "start" && f.stop != nil {
		if err := f.stop(); err != nil {
			return fmt.Errorf("stop the services: %w", err)
		}
		f.stop = nil
	}
	if verb == "stop" {
		return nil
	}
	env, err := f.environment()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	var closers []func() error
	f.stop = func() error {
		cancel()
		wg.Wait()
		var errs []error
		for _, c := range closers {
			errs = append(errs, c())
		}
		return errors.Join(errs...)
	}
	for range processes {
		sem, closer, err := f.process(env)
		if err != nil {
			return errors.Join(fmt.Errorf("start a service: %w", err), f.stop())
		}
		closers = append(closers, closer)
		for range workers {
			wg.Go(func() { f.work(ctx, sem) })
		}
	}
	return nil
}

// environment reads the file of the unit.
func (f *fleet) environment() (map[string]string, error) {
	text, err := os.ReadFile(f.hosts.path("app", "etc/payments/env"))
	env := map[string]string{}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		env[name] = value
	}
	return env, err
}

// process opens a session as docs/operations.md has its client.
func (f *fleet) process(env map[string]string) (*concurrency.Semaphore, func() error, error) {
	files := transport.TLSInfo{
		CertFile: f.hosts.path("app", "etc/payments/client.crt"), KeyFile: f.hosts.path("app", "etc/payments/client.key"),
		TrustedCAFile: f.hosts.path("app", "etc/payments/ca.crt"),
	}
	config, err := files.ClientConfig()
	if err != nil {
		return nil, nil, err
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints: []string{f.hosts.here("https://10.0.0.11:2379"), f.hosts.here("https://10.0.0.12:2379"), f.hosts.here("https://10.0.0.13:2379")},
		TLS:       config, Username: env["ETCD_USER"], Password: env["ETCD_PASSWORD"],
		DialTimeout: 5 * time.Second, DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 3 * time.Second, Logger: zap.NewNop(),
	})
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	sess, err := concurrency.NewSession(ctx, client, "payments", &concurrency.SessionOptions{Hooks: []observe.Hooks{{Event: f.event}}})
	if err != nil {
		return nil, nil, errors.Join(err, client.Close())
	}
	closer := func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		return errors.Join(sess.Close(ctx), client.Close())
	}
	sem, err := concurrency.NewSemaphore(sess, "charge", limit, nil)
	if err != nil {
		return nil, nil, errors.Join(err, closer())
	}
	return sem, closer, nil
}

// work works under the limit, again and again.
func (f *fleet) work(ctx context.Context, sem *concurrency.Semaphore) {
	for ctx.Err() == nil {
		err := sem.Do(ctx, func(_ context.Context, p *concurrency.Permit) error {
			if f.in.Add(1) > limit {
				f.exceeded.Add(1)
			}
			f.granted(p.Token())
			time.Sleep(5 * time.Millisecond)
			f.in.Add(-1)
			return nil
		})
		if err != nil && ctx.Err() == nil {
			time.Sleep(50 * time.Millisecond)
		}
	}
}

func (f *fleet) granted(token int64) {
	f.grants.Add(1)
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	if !f.last.IsZero() {
		f.gap = max(f.gap, now.Sub(f.last))
	}
	f.last = now
	f.tokens.most = max(f.tokens.most, token)
	if f.tokens.least == 0 || token < f.tokens.least {
		f.tokens.least = token
	}
}

// seen is what the services have seen in a section.
type seen struct {
	grants, lost, exceeded int64
	gap                    time.Duration
	most, least            int64 // tokens
	causes                 []error
}

// take returns what was seen since the last call.
func (f *fleet) take() seen {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := seen{grants: f.grants.Swap(0), lost: f.lost.Swap(0), exceeded: f.exceeded.Swap(0), gap: f.gap, most: f.tokens.most, least: f.tokens.least, causes: f.causes}
	f.gap, f.last, f.causes, f.tokens.most, f.tokens.least = 0, time.Time{}, nil, 0, 0
	return s
}
