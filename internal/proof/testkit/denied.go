package testkit

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/embedtest"
)

// PresenceOnly switches authentication on, and returns a client whose role may only use the
// presence keys of a namespace: it can begin a session, and nothing else.
func (f Fixture) PresenceOnly(namespacePrefix string) *clientv3.Client {
	f.T.Helper()
	ctx := Context(f.T)
	require.NoError(f.T, f.AddUser(ctx, "presence", "secret", namespacePrefix+"session/"))
	require.NoError(f.T, f.EnableAuth(ctx, "root", "root"))
	return f.NewClient(f.T, &embedtest.ClientOptions{Username: "presence", Password: "secret"}).Client
}

// Denied asserts that etcd denies each call, and that its error names the prefix and the
// permission that the role needs, once.
func Denied(t testing.TB, namespacePrefix string, calls map[string]func() error) {
	t.Helper()
	for name, call := range calls {
		err := call()
		require.ErrorIs(t, err, rpctypes.ErrPermissionDenied, name)
		require.Equal(t, 1, strings.Count(err.Error(), "needs read and write permission for all keys with the prefix "+namespacePrefix), "%s: %v", name, err)
	}
}
