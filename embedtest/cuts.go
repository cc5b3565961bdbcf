package embedtest

import (
	"context"
	"fmt"
)

// CutPeers cuts a member off from all others: no raft message passes in either direction.
// Clients still reach the member. The cut stays in force through Restart, except for the
// first moments after the start, until HealPeers.
//
// Lease renewals still pass: a member that is not the leader forwards them to the leader
// over HTTP, outside raft, for as long as it knows the leader, which is one to two election
// timeouts. A leader that is cut off renews leases on its own for about as long. Use
// Client.Cut as well to stop the renewals of a client.
//
// CutPeers returns an error for a member that does not exist, and ErrExternal.
func (c *Cluster) CutPeers(member int) error { return c.setCut(member, true) }

// HealPeers ends the cut of CutPeers. The member rejoins within about one election timeout.
// HealPeers returns an error for a member that does not exist, and ErrExternal.
func (c *Cluster) HealPeers(member int) error { return c.setCut(member, false) }

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

// applyCuts applies the cuts in force to every pair of members.
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

// everywhere waits until ok holds for every running member that is not cut off.
func (c *Cluster) everywhere(ctx context.Context, ok func(*running) bool) error {
	for _, m := range c.members {
		err := retry(ctx, func() error {
			c.mu.Lock()
			cut := m.cut
			c.mu.Unlock()
			if r := m.running(); r != nil && !cut && !ok(r) {
				return fmt.Errorf("embedtest: member %s has not applied the change", m.name)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
