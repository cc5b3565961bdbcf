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

// RevokeLease revokes a lease, as a client does. Its keys are deleted when RevokeLease
// returns. The errors are etcd's, for example rpctypes.ErrLeaseNotFound.
func (c *Cluster) RevokeLease(ctx context.Context, id clientv3.LeaseID) error {
	_, err := c.Client().Revoke(ctx, id)
	return err
}

// ExpireLease expires a lease at once. Its keys are deleted when ExpireLease returns. As at
// a real expiry, the leader revokes the lease itself: no client sends a request, and no
// permission is needed. At a real expiry, however, etcd refuses renewals for up to half a
// second before it deletes the keys; ExpireLease has no such phase. On an external cluster
// it is RevokeLease.
//
// ExpireLease returns rpctypes.ErrLeaseNotFound, other errors of etcd, and the error of ctx.
func (c *Cluster) ExpireLease(ctx context.Context, id clientv3.LeaseID) error {
	if c.external {
		return c.RevokeLease(ctx, id)
	}
	r, err := c.leading(ctx)
	if err != nil {
		return err
	}
	s := r.etcd.Server
	_, err = s.LeaseRevoke(s.AuthStore().WithRoot(ctx), &pb.LeaseRevokeRequest{ID: int64(id)})
	if errors.Is(err, lease.ErrLeaseNotFound) {
		err = rpctypes.ErrLeaseNotFound // the error that a client gets
	}
	if err != nil {
		return fmt.Errorf("embedtest: expire lease %x: %w", int64(id), err)
	}
	return nil
}

// Compact compacts the history at the current revision and returns that revision. Reads and
// watches of older revisions then fail with rpctypes.ErrCompacted. Compact returns the
// errors of etcd, and ErrExternal, because other users of a real cluster may need its
// history.
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

// SetNoSpace raises or disarms the NOSPACE alarm, as a full backend does, and returns when
// every running member that is not cut off has applied the change. While the alarm is
// raised, requests that store data fail with rpctypes.ErrNoSpace, and requests that only
// delete succeed. SetNoSpace returns the errors of etcd, that of ctx, and ErrExternal.
func (c *Cluster) SetNoSpace(ctx context.Context, raised bool) error {
	if err := c.ownServer(); err != nil {
		return err
	}
	r, err := c.leading(ctx)
	if err != nil {
		return err
	}
	alarm := func(action pb.AlarmRequest_AlarmAction, member uint64) error {
		_, err := r.etcd.Server.Alarm(ctx, &pb.AlarmRequest{Action: action, MemberID: member, Alarm: pb.AlarmType_NOSPACE})
		if err != nil {
			return fmt.Errorf("embedtest: set the NOSPACE alarm: %w", err)
		}
		return nil
	}
	if raised {
		if err := alarm(pb.AlarmRequest_ACTIVATE, uint64(r.etcd.Server.MemberID())); err != nil {
			return err
		}
		return c.everywhere(ctx, outOfSpace)
	}
	// Each member may have raised one, and a request to raise one whose answer was lost may be
	// applied before these.
	for _, m := range r.etcd.Server.Cluster().Members() {
		if err := alarm(pb.AlarmRequest_DEACTIVATE, uint64(m.ID)); err != nil {
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

// RaftIndex returns the index of the newest raft entry that the leader has committed, or
// zero without a leader. The difference between two calls is the number of raft entries
// that the operations in between cost. Elections add entries too; the start of the cluster
// adds none after Start or New has returned.
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

// Revision returns the current revision of the key space. It returns an error only if etcd
// does.
func (c *Cluster) Revision(ctx context.Context) (int64, error) {
	resp, err := c.Client().Get(ctx, "embedtest/revision", clientv3.WithCountOnly())
	if err != nil {
		return 0, err
	}
	return resp.Header.GetRevision(), nil
}

// Dump returns the keys below a prefix with their values, one per line, for the log of a
// test. If the keys cannot be read, Dump returns the text of the error.
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

// rootUser is the user, and the role, that etcd requires before it enables authentication.
const rootUser = "root"

// EnableAuth enables authentication and creates a user with all permissions. etcd requires
// a user named root: if user is another name, root is created too, with the same password.
//
// When EnableAuth returns, every running member that is not cut off requires
// authentication. Client, and new clients without ClientOptions.Username, authenticate as
// the user. Requests of earlier clients fail. Tokens expire after Options.AuthTokenTTL.
//
// EnableAuth returns the errors of etcd, that of ctx, and ErrExternal. After an error, some
// of the users may exist and authentication may be enabled.
func (c *Cluster) EnableAuth(ctx context.Context, user, password string) error {
	if err := c.ownServer(); err != nil {
		return err
	}
	admin := c.Client()
	names := []string{rootUser}
	if user != rootUser {
		names = append(names, user)
	}
	for _, name := range names {
		if _, err := admin.UserAdd(ctx, name, password); err != nil {
			return fmt.Errorf("embedtest: add user %s: %w", name, err)
		}
		if _, err := admin.UserGrantRole(ctx, name, rootUser); err != nil {
			return fmt.Errorf("embedtest: grant role root to user %s: %w", name, err)
		}
	}
	if _, err := admin.AuthEnable(ctx); err != nil {
		return fmt.Errorf("embedtest: enable authentication: %w", err)
	}
	if err := c.everywhere(ctx, func(r *running) bool { return r.etcd.Server.AuthStore().IsAuthEnabled() }); err != nil {
		return err
	}
	c.mu.Lock()
	c.root = credentials{user, password}
	c.mu.Unlock()
	next, err := c.dialAdmin()
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		_ = next.Close()
		return errClosed
	}
	c.old = append(c.old, c.admin)
	c.admin = next
	return nil
}

// AddUser creates a user, and a role of the same name, that may read and write the keys
// below the prefixes and nothing else. Call it before or after EnableAuth. Use
// ClientOptions.Username to connect as the user. AddUser returns the errors of etcd, and
// ErrExternal.
func (c *Cluster) AddUser(ctx context.Context, name, password string, prefixes ...string) error {
	if err := c.ownServer(); err != nil {
		return err
	}
	admin := c.Client()
	if _, err := admin.RoleAdd(ctx, name); err != nil {
		return fmt.Errorf("embedtest: add role %s: %w", name, err)
	}
	for _, p := range prefixes {
		_, err := admin.RoleGrantPermission(ctx, name, p, clientv3.GetPrefixRangeEnd(p), clientv3.PermissionType(clientv3.PermReadWrite))
		if err != nil {
			return fmt.Errorf("embedtest: grant permission for %s to role %s: %w", p, name, err)
		}
	}
	if _, err := admin.UserAdd(ctx, name, password); err != nil {
		return fmt.Errorf("embedtest: add user %s: %w", name, err)
	}
	if _, err := admin.UserGrantRole(ctx, name, name); err != nil {
		return fmt.Errorf("embedtest: grant role %s to user %s: %w", name, name, err)
	}
	return nil
}
