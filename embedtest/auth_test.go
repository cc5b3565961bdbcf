package embedtest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestAuth(t *testing.T) {
	ownServersOnly(t)
	t.Parallel()
	c := Start(t, &Options{Members: 3})
	before := c.NewClient(t, nil)
	put(t, before.Client, "k", "1")
	require.NoError(t, c.EnableAuth(within(t, patience), "boss", "pw"))
	_, err := before.Get(t.Context(), "k")
	require.ErrorIs(t, err, rpctypes.ErrUserEmpty)
	require.Equal(t, "1", value(t, c, "k"), "the cluster's client is root now")
	put(t, c.NewClient(t, nil).Client, "k", "2")

	require.NoError(t, c.AddUser(t.Context(), "joe", "secret", "/joe/", "/both/"))
	joe := c.NewClient(t, &ClientOptions{Username: "joe", Password: "secret"})
	put(t, joe.Client, "/joe/k", "1")
	put(t, joe.Client, "/both/k", "1")
	_, err = joe.Put(t.Context(), "/jof", "1")
	require.ErrorIs(t, err, rpctypes.ErrPermissionDenied)
	_, err = joe.Get(t.Context(), "k")
	require.ErrorIs(t, err, rpctypes.ErrPermissionDenied)

	_, err = c.Dial(t.Context(), &ClientOptions{Username: "joe", Password: "wrong"})
	require.ErrorIs(t, err, rpctypes.ErrAuthFailed)

	id := grant(t, c.Client(), 60)
	require.NoError(t, c.ExpireLease(t.Context(), id), "expiry asks for no permission")
	require.NoError(t, c.SetNoSpace(within(t, patience), true))
	require.NoError(t, c.SetNoSpace(within(t, patience), false))
}

// A stream keeps the token with which it was opened. On a raw stream no client renews the
// token: after its expiry the server ends the stream with an error.
func TestExpiredTokenIsNoticedOnARawStream(t *testing.T) {
	if testing.Short() {
		t.Skip("it waits for a token to run out: 3.5 s")
	}
	t.Parallel()
	c := Start(t, &Options{AuthTokenTTL: time.Second})
	require.NoError(t, c.EnableAuth(within(t, patience), "root", "pw"))
	cl := c.NewClient(t, nil)
	id := grant(t, cl.Client, 60)
	put(t, cl.Client, "k", "1", clientv3.WithLease(id))
	s, err := pb.NewLeaseClient(cl.ActiveConnection()).LeaseKeepAlive(t.Context())
	require.NoError(t, err)
	renew := func() error {
		if err := s.Send(&pb.LeaseKeepAliveRequest{ID: int64(id)}); err != nil {
			_, err = s.Recv()
			return err
		}
		_, err := s.Recv()
		return err
	}
	require.NoError(t, renew())
	ctx := within(t, patience)
	for err == nil && ctx.Err() == nil {
		_ = sleep(ctx, 1500*time.Millisecond) // each use prolongs a simple token
		err = renew()
	}
	require.Equal(t, codes.Unauthenticated, status.Code(err), "%v", err)
	put(t, cl.Client, "k", "2") // etcd's client renews the token of unary calls
}

func TestTLS(t *testing.T) {
	t.Parallel()
	c := Start(t, &Options{TLS: true, Members: 3})
	require.Contains(t, c.Endpoints()[0], "https://127.0.0.1:")
	put(t, c.NewClient(t, nil).Client, "k", "1")
	require.Equal(t, "1", value(t, c, "k"))

	plain := c.NewClient(t, &ClientOptions{Endpoints: []string{c.members[0].clientAddr}, Configure: func(cfg *clientv3.Config) { cfg.TLS = nil }})
	_, err := plain.Get(within(t, 200*time.Millisecond), "k")
	require.Error(t, err, "plaintext is refused")

	stranger := c.NewClient(t, &ClientOptions{Configure: func(cfg *clientv3.Config) { cfg.TLS.RootCAs = nil }})
	_, err = stranger.Get(within(t, 200*time.Millisecond), "k")
	require.Error(t, err, "so is a client that does not trust the certificate")

	ch := c.Client().Watch(context.Background(), "k", clientv3.WithCreatedNotify())
	require.True(t, next(t, ch).Created)
	begin := time.Now()
	require.NoError(t, c.Close())
	require.Less(t, time.Since(begin), 4*time.Second)
}
