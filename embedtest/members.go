package embedtest

import (
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// pollEvery is how often a state that etcd does not announce is looked at.
const pollEvery = 2 * time.Millisecond

// Leader returns the index of the member that leads as far as a majority of
// all members knows, or -1 while there is none.
func (c *Cluster) Leader() int {
	if c.external {
		return c.externalLeader()
	}
	votes := make(map[uint64]int)
	for _, m := range c.members {
		if r := m.running(); r != nil {
			votes[r.etcd.Server.Lead()]++
		}
	}
	for i, m := range c.members {
		r := m.running()
		if r == nil {
			continue
		}
		id := uint64(r.etcd.Server.MemberID())
		if r.etcd.Server.Lead() == id && 2*votes[id] > len(c.members) {
			return i
		}
	}
	return -1
}

func (c *Cluster) externalLeader() int {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	for i, ep := range c.Endpoints() {
		st, err := c.Client().Status(ctx, ep)
		if err == nil && st.Leader == st.Header.GetMemberId() {
			return i
		}
	}
	return -1
}

// WaitLeader waits for a leader that a majority knows and returns its index. It
// returns an error, that of ctx, only when ctx ends first.
func (c *Cluster) WaitLeader(ctx context.Context) (int, error) {
	for {
		if i := c.Leader(); i >= 0 {
			return i, nil
		}
		if err := sleep(ctx, pollEvery); err != nil {
			return -1, fmt.Errorf("embedtest: no leader: %w", err)
		}
	}
}

// MoveLeader makes a member the leader and returns when a majority follows it;
// nothing happens if it leads already. The errors are etcd's, that of ctx, and
// ErrExternal.
func (c *Cluster) MoveLeader(ctx context.Context, to int) error {
	if err := c.ownServer(); err != nil {
		return err
	}
	target, err := c.member(to)
	if err != nil {
		return err
	}
	t := target.running()
	if t == nil {
		return fmt.Errorf("embedtest: member %d is stopped", to)
	}
	from, err := c.WaitLeader(ctx)
	if err != nil || from == to {
		return err
	}
	r := c.members[from].running()
	if r == nil {
		return fmt.Errorf("embedtest: member %d is stopped", from)
	}
	if err := r.etcd.Server.MoveLeader(ctx, uint64(r.etcd.Server.MemberID()), uint64(t.etcd.Server.MemberID())); err != nil {
		return fmt.Errorf("embedtest: move the leader to member %d: %w", to, err)
	}
	now, err := c.WaitLeader(ctx)
	if err == nil && now != to {
		err = fmt.Errorf("embedtest: member %d leads instead of %d", now, to)
	}
	return err
}

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
		if err := m.start(); err != nil {
			return err
		}
		c.applyCuts()
	}
	for _, m := range ms {
		if err := m.waitServing(ctx); err != nil {
			return err
		}
		r := m.running()
		if r == nil {
			return errClosed
		}
		if err := retry(ctx, func() error { return r.etcd.Server.LinearizableReadNotify(ctx) }); err != nil {
			return fmt.Errorf("embedtest: member %s does not serve: %w", m.name, err)
		}
	}
	return nil
}

// CutPeers cuts a member off from all others in both directions, for raft
// messages; its clients still reach it. A member stays cut through Restart,
// apart from its first moments.
//
// What it does not cut: a member that is not the leader forwards a lease
// renewal to the leader over HTTP, past raft, and that still arrives for as
// long as the cut member believes in its leader, which is between one and two
// election timeouts. A leader that is cut off renews leases on its own for
// about as long. Use Client.Cut as well to keep a client's renewals out.
//
// It returns an error for a member that does not exist, and ErrExternal.
func (c *Cluster) CutPeers(i int) error { return c.setCut(i, true) }

// MendPeers ends CutPeers. The member takes part again within about an
// election timeout. It returns an error where CutPeers does.
func (c *Cluster) MendPeers(i int) error { return c.setCut(i, false) }

func (c *Cluster) setCut(i int, cut bool) error {
	if err := c.ownServer(); err != nil {
		return err
	}
	m, err := c.member(i)
	if err != nil {
		return err
	}
	c.mu.Lock()
	m.cut = cut
	c.mu.Unlock()
	c.applyCuts()
	return nil
}

// applyCuts brings every pair of running members into the wanted state.
func (c *Cluster) applyCuts() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, a := range c.members {
		r := a.running()
		if r == nil {
			continue
		}
		for _, b := range c.members {
			peer := b.known()
			switch {
			case a == b || peer == nil:
			case a.cut || b.cut:
				r.etcd.Server.CutPeer(peer.etcd.Server.MemberID())
			default:
				r.etcd.Server.MendPeer(peer.etcd.Server.MemberID())
			}
		}
	}
}

func (c *Cluster) member(i int) (*member, error) {
	if i < 0 || i >= len(c.members) {
		return nil, fmt.Errorf("embedtest: no member %d among %d", i, len(c.members))
	}
	return c.members[i], nil
}

// leader returns the life of the leader.
func (c *Cluster) leader(ctx context.Context) (*running, error) {
	i, err := c.WaitLeader(ctx)
	if err != nil {
		return nil, err
	}
	if r := c.members[i].running(); r != nil {
		return r, nil
	}
	return nil, fmt.Errorf("embedtest: member %d is stopped", i)
}

// everywhere waits until ok holds for every running member that can hear of
// changes at all.
func (c *Cluster) everywhere(ctx context.Context, ok func(*running) bool) error {
	for _, m := range c.members {
		err := retry(ctx, func() error {
			c.mu.Lock()
			cut := m.cut
			c.mu.Unlock()
			if r := m.running(); r != nil && !cut && !ok(r) {
				return fmt.Errorf("embedtest: member %s is behind", m.name)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
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
