package embedtest

import (
	"context"
	"fmt"
	"time"
)

// startTimeout bounds Start, Shared and NewClient. On an idle machine they take less than a
// hundredth of it.
const startTimeout = 30 * time.Second

// Start starts a cluster for one test and returns when the cluster serves linearizable
// reads. tb.Cleanup closes it. An error fails tb and logs the servers' log. If etcd fails
// later on a member, tb fails too.
//
// With EMBEDTEST_ENDPOINTS set, no server is started, and options that the external
// cluster may not satisfy skip tb. Call Start on the goroutine of the test.
func Start(tb TB, opts *Options) *Cluster {
	tb.Helper()
	if eps := externalEndpoints(); eps != nil && opts.needsOwnServer(len(eps)) {
		tb.Skipf("%v", ErrExternal)
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	c, err := newCluster(ctx, tb, opts)
	if err != nil {
		tb.Fatalf("%v", err)
		return nil
	}
	tb.Cleanup(func() {
		err := c.Close()
		failed := c.firstFailure() != nil
		if log := c.logged(); log != "" && (tb.Failed() || failed) {
			tb.Logf("embedtest: %s", log)
		}
		if failed {
			tb.Fatalf("%v", err)
		} else if err != nil {
			tb.Logf("embedtest: close: %v", err)
		}
	})
	return c
}

// New starts a cluster without a test and returns when the cluster serves linearizable
// reads. The caller closes it. ctx bounds the start only: if ctx ends first, New stops
// what it started and returns the error of ctx.
//
// New also returns an error for invalid options, if the disk space is too small, and if
// etcd does not start, and ErrExternal for options that the external cluster may not
// satisfy. If etcd fails later on a member, the servers' log is written to standard error
// and the process exits.
//
// On an external cluster, the clients of the cluster, those of Dial included, have a key
// space of their own: a prefix below /embedtest/, which Close empties.
func New(ctx context.Context, opts *Options) (*Cluster, error) {
	if eps := externalEndpoints(); eps != nil && opts.needsOwnServer(len(eps)) {
		return nil, ErrExternal
	}
	return newCluster(ctx, nil, opts)
}

func newCluster(ctx context.Context, tb TB, opts *Options) (*Cluster, error) {
	o, err := opts.resolve()
	if err != nil {
		return nil, err
	}
	c := &Cluster{
		servers: &servers{opts: o, tb: tb},
		clients: make(map[*Client]struct{}),
		done:    make(chan struct{}),
	}
	c.log, c.logBuf = newLogger(o.Logger)
	if eps := externalEndpoints(); eps != nil {
		c.external = true
		if tb == nil {
			c.space = uniquePrefix("new")
		}
		err = c.connect(ctx)
	} else {
		ctx, c.abort = context.WithCancelCause(ctx)
		defer c.abort(nil)
		err = c.started(c.start(ctx, c.connect))
	}
	if err != nil {
		if log := c.logged(); log != "" {
			err = fmt.Errorf("%w\n%s", err, log)
		}
		_ = c.Close()
		return nil, err
	}
	return c, nil
}
