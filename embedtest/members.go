package embedtest

import (
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/ports"
)

// pollEvery is the polling interval for state that etcd does not signal.
const pollEvery = 2 * time.Millisecond

// Stop stops a member gracefully: a leader first transfers the leadership, and waits more
// than five seconds if no successor is reachable. The member keeps its data and addresses
// for Restart. If the member is stopped already, Stop does nothing. Stop returns an error
// for a member that does not exist, and ErrExternal.
func (c *Cluster) Stop(member int) error { return c.stopMember(member, false) }

// Crash stops a member without notice to the others, which detect it after the election
// timeout. No process dies, so nothing that the member acknowledged is lost, even without
// Options.Fsync. Crash returns an error for a member that does not exist, and ErrExternal.
func (c *Cluster) Crash(member int) error { return c.stopMember(member, true) }

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

// Restart starts members with their data and addresses, and returns when each of them
// serves linearizable reads. A member that is running is stopped first. A member serves
// only while a majority runs: restart all members that a majority needs in one call.
//
// Restart returns an error for a member that does not exist, if etcd does not start,
// ErrExternal, and the error of ctx if ctx ends first; the start of the members then
// continues.
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
			// Where the system cannot reserve ports, another process may use this one for a moment.
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
			return fmt.Errorf("embedtest: start member %s: no linearizable read succeeded: %w", m.name, err)
		}
	}
	return nil
}

func (c *Cluster) member(i int) (*member, error) {
	if i < 0 || i >= len(c.members) {
		return nil, fmt.Errorf("embedtest: member %d does not exist: the cluster has %d (Options.Members)", i, len(c.members))
	}
	return c.members[i], nil
}

// waitRead waits until the member serves a linearizable read, etcd fails or ctx ends.
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

// waitRead waits until the cluster serves a linearizable read or ctx ends. Reads fail while
// there is no leader.
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
