package embedtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
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
// Restart returns an error for no members and for one that does not exist, if etcd does not start,
// ErrExternal, and the error of ctx if ctx ends first; the start of the members then
// continues.
func (c *Cluster) Restart(ctx context.Context, members ...int) error {
	if err := c.ownServer(); err != nil {
		return err
	}
	if len(members) == 0 {
		return errors.New("embedtest: restart: no members are given, such as 0, the first")
	}
	var ms []*member
	for _, i := range members {
		m, err := c.member(i)
		if err != nil {
			return err
		}
		ms = append(ms, m)
	}
	return c.restart(ctx, ms)
}

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
	c.servers.setCut(m, cut)
	return nil
}

// Leader returns the number of the member that is the leader for a majority of all members,
// or -1 while there is none.
func (c *Cluster) Leader() int {
	if c.external {
		return c.externalLeader()
	}
	return c.servers.leader()
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
// majority. If it is the leader already, MoveLeader does nothing. etcd gives up a transfer that
// takes longer than the election timeout, as on a busy machine; MoveLeader then begins another
// one, also if a third member has become the leader, until ctx ends.
//
// MoveLeader returns an error for a member that does not exist, is stopped or is refused by etcd,
// ErrExternal, and the error of ctx.
func (c *Cluster) MoveLeader(ctx context.Context, to int) error {
	if err := c.ownServer(); err != nil {
		return err
	}
	target, err := c.member(to)
	if err != nil {
		return err
	}
	for {
		t := target.running()
		if t == nil {
			return fmt.Errorf("embedtest: move the leader to member %d: it is stopped", to)
		}
		from, err := c.WaitLeader(ctx)
		if err != nil || from == to {
			return err
		}
		if r := c.members[from].running(); r != nil {
			err = r.transfer(ctx, t, transferTimeouts*c.servers.opts.ElectionTimeout)
		}
		if err != nil {
			return fmt.Errorf("embedtest: move the leader to member %d: %w", to, err)
		}
	}
}

// transferTimeouts is after how many election timeouts a transfer begins again. etcd gives it up after
// one, in which the leader refuses requests, and does not report that.
const transferTimeouts = 10

// transfer asks a leader to transfer the leadership, and returns nil when it follows the other member, or after
// that time.
func (r *running) transfer(ctx context.Context, to *running, within time.Duration) error {
	attempt, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	err := r.etcd.Server.MoveLeader(attempt, uint64(r.etcd.Server.MemberID()), uint64(to.etcd.Server.MemberID()))
	if attempt.Err() != nil {
		return ctx.Err()
	}
	return err
}

// leading returns the run of the leader.
func (c *Cluster) leading(ctx context.Context) (*running, error) {
	i, err := c.WaitLeader(ctx)
	if err != nil {
		return nil, err
	}
	if r := c.members[i].running(); r != nil {
		return r, nil
	}
	return nil, fmt.Errorf("embedtest: leader %d is stopped", i)
}

// Backup is a copy of a cluster's data at one moment.
type Backup struct {
	cluster *Cluster
	dir     string // with one subdirectory per member
}

// Backup stops all members, copies their data and restarts them. It returns an error if the
// copy fails, the errors of Restart, and ErrExternal.
func (c *Cluster) Backup(ctx context.Context) (*Backup, error) {
	if err := c.ownServer(); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(c.dir, "backup-")
	if err != nil {
		return nil, fmt.Errorf("embedtest: backup: %w", err)
	}
	b := &Backup{cluster: c, dir: dir}
	for _, m := range c.members {
		m.stop(true)
	}
	for _, m := range c.members {
		if err := os.CopyFS(filepath.Join(dir, m.name), os.DirFS(m.dir)); err != nil {
			return nil, fmt.Errorf("embedtest: backup: %w", err)
		}
	}
	return b, c.restart(ctx, c.members)
}

// Restore stops all members, replaces their data with those of the backup and restarts them
// on the same addresses. All later changes of keys and leases are lost, and etcd assigns
// their revisions a second time, as after the restore of a snapshot without a revision bump.
// A backup can be restored more than once. Restore returns an error for a backup of another
// cluster and if the copy fails, the errors of Restart, and ErrExternal.
func (c *Cluster) Restore(ctx context.Context, b *Backup) error {
	if err := c.ownServer(); err != nil {
		return err
	}
	if b == nil || b.cluster != c {
		return fmt.Errorf("embedtest: restore: the backup is of another cluster")
	}
	for _, m := range c.members {
		m.stop(true)
	}
	for _, m := range c.members {
		err := os.RemoveAll(m.dir)
		if err == nil {
			err = os.CopyFS(m.dir, os.DirFS(filepath.Join(b.dir, m.name)))
		}
		if err != nil {
			return fmt.Errorf("embedtest: restore: %w", err)
		}
	}
	return c.restart(ctx, c.members)
}
