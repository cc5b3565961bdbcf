package embedtest

import (
	"context"
	"fmt"
	"time"
)

// Leader returns the number of the member that is the leader for a majority of all members,
// or -1 while there is none.
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

// WaitLeader waits until Leader returns a member, and returns its number.
// It returns an error only if ctx ends first: that of ctx.
func (c *Cluster) WaitLeader(ctx context.Context) (int, error) {
	for {
		if i := c.Leader(); i >= 0 {
			return i, nil
		}
		if err := sleep(ctx, pollEvery); err != nil {
			return -1, fmt.Errorf("embedtest: wait for a leader: %w", err)
		}
	}
}

// MoveLeader transfers the leadership to a member and returns when it is the leader for a
// majority. If it is the leader already, MoveLeader does nothing.
//
// MoveLeader returns an error for a member that does not exist or is stopped, if etcd's
// transfer fails, if another member becomes the leader, ErrExternal, and the error of ctx.
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
		return fmt.Errorf("embedtest: move the leader to member %d: it is stopped", to)
	}
	from, err := c.WaitLeader(ctx)
	if err != nil || from == to {
		return err
	}
	r := c.members[from].running()
	if r == nil {
		return fmt.Errorf("embedtest: move the leader to member %d: leader %d is stopped", to, from)
	}
	if err := r.etcd.Server.MoveLeader(ctx, uint64(r.etcd.Server.MemberID()), uint64(t.etcd.Server.MemberID())); err != nil {
		return fmt.Errorf("embedtest: move the leader to member %d: %w", to, err)
	}
	now, err := c.WaitLeader(ctx)
	if err == nil && now != to {
		err = fmt.Errorf("embedtest: move the leader to member %d: member %d is the leader", to, now)
	}
	return err
}

// leader returns the run of the leader.
func (c *Cluster) leader(ctx context.Context) (*running, error) {
	i, err := c.WaitLeader(ctx)
	if err != nil {
		return nil, err
	}
	if r := c.members[i].running(); r != nil {
		return r, nil
	}
	return nil, fmt.Errorf("embedtest: leader %d is stopped", i)
}
