package embedtest

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// rootUser is the user and the role without which etcd refuses to turn
// authentication on.
const rootUser = "root"

// EnableAuth turns authentication on with a user that may do everything. etcd
// insists on one named root, which is made too, with the same password, if user
// is another. From then on Client and new clients without a name of their own
// are that user, and clients made before are refused; every member that is not
// cut off knows. The tokens live for Options.AuthTokenTTL. Its errors are
// etcd's, that of ctx, and ErrExternal; after one, authentication may be half
// set up.
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
			return fmt.Errorf("embedtest: make %s root: %w", name, err)
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

// AddUser adds a user that may read and write below the prefixes and nothing
// else, by a role of the same name; before or after EnableAuth. Connect as the
// user with ClientOptions. Its errors are etcd's and ErrExternal.
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
			return fmt.Errorf("embedtest: grant %s to %s: %w", p, name, err)
		}
	}
	if _, err := admin.UserAdd(ctx, name, password); err != nil {
		return fmt.Errorf("embedtest: add user %s: %w", name, err)
	}
	if _, err := admin.UserGrantRole(ctx, name, name); err != nil {
		return fmt.Errorf("embedtest: grant role to %s: %w", name, err)
	}
	return nil
}
