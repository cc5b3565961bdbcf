package doctor

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/commit"
)

// Users reports whether users are checked. cut reports whether they are and the client has none: then nothing else can
// be examined.
func Users(ctx context.Context, client *clientv3.Client) (found []Finding, cut bool) {
	st, err := client.AuthStatus(ctx)
	if err == nil && st.Enabled { // etcd 3.7 answers that without a user, too
		if _, denied := client.Get(ctx, "etcdkit", clientv3.WithCountOnly()); NoUser(denied) {
			err = denied
		}
	}
	switch {
	case NoUser(err):
		return One(Fail, "Add --user (ETCDCTL_USER), and its password. Nothing else can be examined without it.", "users are checked, and no user is given"), true
	case commit.Denied(err):
		return One(OK, "", "users are checked"), false
	case err != nil:
		return NotMade("whether users are checked", err), false
	case !st.Enabled:
		return One(Warn, "Each client may read and end all permits. With users, a role for each namespace: see docs/operations.md, roles.", "users are not checked"), false
	}
	return One(OK, "", "users are checked"), false
}
