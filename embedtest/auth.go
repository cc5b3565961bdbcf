package embedtest

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
)

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
