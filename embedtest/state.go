package embedtest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/lease"
)

// RevokeLease revokes a lease as any client may: its keys are gone when it
// returns. Its errors are etcd's, rpctypes.ErrLeaseNotFound among them.
func (c *Cluster) RevokeLease(ctx context.Context, id clientv3.LeaseID) error {
	_, err := c.Client().Revoke(ctx, id)
	return err
}

// ExpireLease ends a lease as if its time were up, without waiting for it: its
// keys are gone when it returns. It makes the leader take the one step that it
// takes when it finds a lease expired, a revocation in its own name, which
// needs no permission and which no client sent. What it skips is the moment
// before: a lease that really expires is refused renewals up to half a second
// before its keys go. On an external cluster it is RevokeLease. Its errors are
// etcd's, rpctypes.ErrLeaseNotFound among them, and that of ctx.
func (c *Cluster) ExpireLease(ctx context.Context, id clientv3.LeaseID) error {
	if c.external {
		return c.RevokeLease(ctx, id)
	}
	r, err := c.leader(ctx)
	if err != nil {
		return err
	}
	s := r.etcd.Server
	_, err = s.LeaseRevoke(s.AuthStore().WithRoot(ctx), &pb.LeaseRevokeRequest{ID: int64(id)})
	if errors.Is(err, lease.ErrLeaseNotFound) {
		err = rpctypes.ErrLeaseNotFound // as a client knows it
	}
	if err != nil {
		return fmt.Errorf("embedtest: expire lease %x: %w", int64(id), err)
	}
	return nil
}

// Compact compacts the history at the newest revision and returns that
// revision: reads and watches of older ones get rpctypes.ErrCompacted. Its errors
// are etcd's and ErrExternal: others may need the history of an external cluster.
func (c *Cluster) Compact(ctx context.Context) (int64, error) {
	if err := c.ownServer(); err != nil {
		return 0, err
	}
	rev, err := c.Revision(ctx)
	if err != nil {
		return 0, err
	}
	if _, err := c.Client().Compact(ctx, rev, clientv3.WithCompactPhysical()); err != nil && !errors.Is(err, rpctypes.ErrCompacted) {
		return 0, err
	}
	return rev, nil
}

// SetNoSpace raises or disarms the NOSPACE alarm, as a full backend would, and
// returns when every member that is not cut off knows: while it is raised, what
// stores data is refused with rpctypes.ErrNoSpace and what only deletes passes.
// Its errors are etcd's, that of ctx, and ErrExternal.
func (c *Cluster) SetNoSpace(ctx context.Context, raised bool) error {
	if err := c.ownServer(); err != nil {
		return err
	}
	r, err := c.leader(ctx)
	if err != nil {
		return err
	}
	alarm := func(action pb.AlarmRequest_AlarmAction, member uint64) error {
		_, err := r.etcd.Server.Alarm(ctx, &pb.AlarmRequest{Action: action, MemberID: member, Alarm: pb.AlarmType_NOSPACE})
		if err != nil {
			return fmt.Errorf("embedtest: alarm: %w", err)
		}
		return nil
	}
	if raised {
		if err := alarm(pb.AlarmRequest_ACTIVATE, uint64(r.etcd.Server.MemberID())); err != nil {
			return err
		}
		return c.everywhere(ctx, func(r *running) bool { return outOfSpace(r) })
	}
	for _, a := range r.etcd.Server.Alarms() { // each member may have raised its own
		if err := alarm(pb.AlarmRequest_DEACTIVATE, a.MemberID); err != nil {
			return err
		}
	}
	return c.everywhere(ctx, func(r *running) bool { return !outOfSpace(r) })
}

func outOfSpace(r *running) bool {
	for _, a := range r.etcd.Server.Alarms() {
		if a.Alarm == pb.AlarmType_NOSPACE {
			return true
		}
	}
	return false
}

// RaftIndex returns the index of the newest raft entry that the leader has
// committed, so that the difference of two tells how many entries an operation
// cost; zero without a leader. (The index of what is applied moves a moment
// after the client has its answer.) The cluster's own start is over when Start
// returns and adds no entries later, but elections do.
func (c *Cluster) RaftIndex() uint64 {
	i := c.Leader()
	if i < 0 {
		return 0
	}
	if c.external {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		st, err := c.Client().Status(ctx, c.Endpoints()[i])
		if err != nil {
			return 0
		}
		return st.RaftIndex
	}
	r := c.members[i].running()
	if r == nil {
		return 0
	}
	return r.etcd.Server.CommittedIndex()
}

// Revision returns the newest revision of the key space. It returns an error
// only if etcd does.
func (c *Cluster) Revision(ctx context.Context) (int64, error) {
	resp, err := c.Client().Get(ctx, "embedtest/revision", clientv3.WithCountOnly())
	if err != nil {
		return 0, err
	}
	return resp.Header.GetRevision(), nil
}

// Dump returns the keys below a prefix, one per line, for a test's log. It
// returns the error's text when the keys cannot be read.
func (c *Cluster) Dump(ctx context.Context, prefix string) string {
	resp, err := c.Client().Get(ctx, prefix, clientv3.WithPrefix())
	if err != nil {
		return fmt.Sprintf("(cannot read %s: %v)\n", prefix, err)
	}
	var b strings.Builder
	for _, kv := range resp.Kvs {
		fmt.Fprintf(&b, "%s = %q (created %d, modified %d, version %d, lease %x)\n",
			kv.Key, kv.Value, kv.CreateRevision, kv.ModRevision, kv.Version, kv.Lease)
	}
	return b.String()
}
