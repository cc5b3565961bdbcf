package embedtest

import (
	"context"
	"fmt"
)

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

// HealPeers ends CutPeers. The member takes part again within about an
// election timeout. It returns an error where CutPeers does.
func (c *Cluster) HealPeers(i int) error { return c.setCut(i, false) }

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
