package embedtest

import (
	"context"
	"fmt"
	"time"
)

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
