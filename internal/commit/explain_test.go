package commit_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/etcdkit/etcdkit/internal/commit"
)

// N5: an error that denies permission names the prefix and the permission, or where the
// credentials belong, once.
func TestExplain(t *testing.T) {
	t.Parallel()
	const grant = ": the role of the client's user needs read and write permission for all keys with the prefix /a/: etcdctl role grant-permission ROLE readwrite --prefix /a/"
	const login = ": set Username and Password in the clientv3.Config of this client"
	for name, tt := range map[string]struct {
		err  error
		want string
		user string // of the client
	}{
		"permission": {rpctypes.ErrPermissionDenied, "etcdserver: permission denied" + grant, "app"},
		"from gRPC":  {rpctypes.ErrGRPCPermissionDenied, rpctypes.ErrGRPCPermissionDenied.Error() + grant, ""},
		"wrapped":    {fmt.Errorf("x: %w", rpctypes.ErrPermissionDenied), "x: etcdserver: permission denied" + grant, ""},
		"joined":     {errors.Join(context.Canceled, rpctypes.ErrPermissionDenied), "context canceled\netcdserver: permission denied" + grant, ""},
		"no user":    {rpctypes.ErrUserEmpty, rpctypes.ErrUserEmpty.Error() + login, ""},
		"password":   {rpctypes.ErrAuthFailed, rpctypes.ErrAuthFailed.Error() + login, ""},
		"changed":    {rpctypes.ErrAuthFailed, rpctypes.ErrAuthFailed.Error() + `: etcd refuses the login of user "app": its password was changed, or the user was deleted; Username and Password in the clientv3.Config of this client must be those that etcd has`, "app"},
		"enabled":    {rpctypes.ErrUserEmpty, rpctypes.ErrUserEmpty.Error(), "app"}, // the next login helps
		"other":      {rpctypes.ErrNoSpace, rpctypes.ErrNoSpace.Error(), ""},
	} {
		once := commit.Explain(tt.err, commit.Asker{Prefix: "/a/", User: tt.user})
		require.EqualError(t, once, tt.want, name)
		require.ErrorIs(t, once, tt.err, name)
		require.Equal(t, commit.Denied(tt.err), commit.Denied(once), name)
		require.EqualError(t, commit.Explain(fmt.Errorf("y: %w", once), commit.Asker{Prefix: "/b/", User: tt.user}), "y: "+tt.want, name)
	}
	require.NoError(t, commit.Explain(nil, commit.Asker{Prefix: "/a/"}))
}

// A755: behind etcd's package namespace the prefix that etcd has is another one.
func TestExplainBehindAWrapper(t *testing.T) {
	t.Parallel()
	err := commit.Explain(rpctypes.ErrPermissionDenied, commit.Asker{Prefix: "/a/", Wrapped: true, User: "app"})
	require.EqualError(t, err, "etcdserver: permission denied: the role of the client's user needs read and write permission for all keys with the prefix /a/, "+
		"behind the prefix of the client's namespace wrapper: etcdctl role grant-permission ROLE readwrite --prefix WRAPPER/a/")
}
