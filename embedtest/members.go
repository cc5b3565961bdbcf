package embedtest

import (
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/ports"
)

// pollEvery is how often a state that etcd does not announce is looked at.
const pollEvery = 2 * time.Millisecond

// Stop stops a member in good order: a leader hands over first, and waits more
// than five seconds for a successor when none can be reached. Its data and its
// addresses stay for Restart. A stopped member is left alone. It returns an
// error for a member that does not exist, and ErrExternal.
func (c *Cluster) Stop(i int) error { return c.stopMember(i, false) }

// Crash stops a member without telling the others, who notice after the
// election timeout. No process dies, so even without Options.Fsync nothing that
// the member acknowledged is lost. It returns an error where Stop does.
func (c *Cluster) Crash(i int) error { return c.stopMember(i, true) }

func (c *Cluster) stopMember(i int, hard bool) error {
	if err := c.ownServer(); err != nil {
		return err
	}
	m, err := c.member(i)
	if err != nil {
		return err
	}
	m.stop(hard)
	return nil
}

// Restart starts stopped members again, on the same data and addresses, and
// returns when each answers a linearizable read; one that still runs is stopped
// first. Without a majority no member becomes ready, so restart as many as that
// takes in one call. It returns an error for a member that does not exist, when
// etcd does not start, ErrExternal, and that of ctx when ctx ends first; the
// members then go on starting.
func (c *Cluster) Restart(ctx context.Context, members ...int) error {
	if err := c.ownServer(); err != nil {
		return err
	}
	var ms []*member
	for _, i := range members {
		m, err := c.member(i)
		if err != nil {
			return err
		}
		ms = append(ms, m)
	}
	for _, m := range ms {
		m.stop(false)
		for err := m.start(); err != nil; err = m.start() {
			// Where ports cannot be held somebody may be using ours for a moment.
			if !ports.Taken(err) || sleep(ctx, pollEvery) != nil {
				return err
			}
		}
		c.applyCuts()
	}
	for _, m := range ms {
		if err := m.waitServing(ctx); err != nil {
			return err
		}
		r, err := m.serving()
		if err != nil {
			return err
		}
		if err := r.waitRead(ctx); err != nil {
			return fmt.Errorf("embedtest: member %s does not serve: %w", m.name, err)
		}
	}
	return nil
}

func (c *Cluster) member(i int) (*member, error) {
	if i < 0 || i >= len(c.members) {
		return nil, fmt.Errorf("embedtest: no member %d among %d", i, len(c.members))
	}
	return c.members[i], nil
}

// waitRead waits until the member answers a linearizable read, etcd gives up, or ctx
// ends.
func (r *running) waitRead(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(r.ctx, cancel)()
	err := retry(ctx, func() error { return r.etcd.Server.LinearizableReadNotify(ctx) })
	if cause := context.Cause(r.ctx); cause != nil {
		return cause
	}
	return err
}

// waitRead reads until a read succeeds or ctx ends. Errors on the way are
// those of a cluster without a leader yet.
func waitRead(ctx context.Context, cl *clientv3.Client) error {
	return retry(ctx, func() error {
		_, err := cl.Get(ctx, "embedtest/ready", clientv3.WithCountOnly())
		return err
	})
}

func retry(ctx context.Context, f func() error) error {
	for {
		err := f()
		if err == nil {
			return nil
		}
		if end := sleep(ctx, pollEvery); end != nil {
			return fmt.Errorf("%w (last: %v)", end, err)
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
