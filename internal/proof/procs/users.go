package procs

import (
	"context"
	"fmt"
)

// EnableAuth creates a user with the role root and enables authentication. etcd requires that its name is root.
// Afterwards all clients of the cluster log in as that user, and so Leader and Restart work; clients that were
// returned before are denied.
func (c *Cluster) EnableAuth(ctx context.Context, user, password string) error {
	admin := c.Client()
	for _, step := range []func() error{
		func() error { _, err := admin.UserAdd(ctx, user, password); return err },
		func() error { _, err := admin.UserGrantRole(ctx, user, "root"); return err },
		func() error { _, err := admin.AuthEnable(ctx); return err },
	} {
		if err := step(); err != nil {
			return fmt.Errorf("enable authentication as %s: %w", user, err)
		}
	}
	return c.dialAs(user, password)
}

// dialAs replaces all clients by ones that log in. Close closes the former ones.
func (c *Cluster) dialAs(user, password string) error {
	for _, m := range c.members {
		own, err := dial(user, password, m.client)
		if err != nil {
			return err
		}
		m.mu.Lock()
		own, m.admin = m.admin, own
		m.mu.Unlock()
		c.mu.Lock()
		c.old = append(c.old, own)
		c.mu.Unlock()
	}
	all, err := dial(user, password, c.Endpoints()...)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.old, c.admin = append(c.old, c.admin), all
	return nil
}
