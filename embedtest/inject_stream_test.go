package embedtest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func watching(t *testing.T, cl *clientv3.Client, key string) clientv3.WatchChan {
	t.Helper()
	ch := cl.Watch(t.Context(), key, clientv3.WithCreatedNotify())
	r := next(t, ch)
	require.True(t, r.Created)
	return ch
}

func next(t *testing.T, ch clientv3.WatchChan) clientv3.WatchResponse {
	t.Helper()
	select {
	case r, ok := <-ch:
		require.True(t, ok, "the watch ended")
		return r
	case <-time.After(patience):
		t.Fatal("no watch response")
		return clientv3.WatchResponse{}
	}
}

func events(_ string, msg any) bool {
	w, ok := msg.(*pb.WatchResponse)
	return ok && len(w.Events) > 0
}

func TestHeldWatchAnswersComeInOrder(t *testing.T) {
	t.Parallel()
	c := Shared(t)
	cl, key := c.NewClient(t, nil), c.Prefix(t)+"k"
	ch := watching(t, cl.Client, key)
	inj := cl.Inject(Fault{Method: "Watch", Match: events, Do: HoldResponse})
	put(t, c.Client(), key, "1")
	require.NoError(t, inj.WaitHit(within(t, patience)))
	put(t, c.Client(), key, "2")
	select {
	case r := <-ch:
		t.Fatalf("not held: %v", r)
	case <-time.After(50 * time.Millisecond):
	}
	require.NoError(t, inj.Release())
	var got []string
	for len(got) < 2 {
		for _, ev := range next(t, ch).Events {
			got = append(got, string(ev.Kv.Value))
		}
	}
	require.Equal(t, []string{"1", "2"}, got)
}

func TestDroppedWatchAnswerIsGone(t *testing.T) {
	t.Parallel()
	c := Shared(t)
	cl, key := c.NewClient(t, nil), c.Prefix(t)+"k"
	ch := watching(t, cl.Client, key)
	inj := cl.Inject(Fault{Method: "Watch", Match: events, Do: DropResponse})
	put(t, c.Client(), key, "1")
	require.NoError(t, inj.WaitHit(within(t, patience)))
	put(t, c.Client(), key, "2")
	r := next(t, ch)
	require.Len(t, r.Events, 1)
	require.Equal(t, "2", string(r.Events[0].Kv.Value))
}

// After a broken stream, etcd's client opens a new one and misses no event.
func TestBrokenWatchStreamIsOpenedAgain(t *testing.T) {
	t.Parallel()
	c := Shared(t)
	cl, key := c.NewClient(t, nil), c.Prefix(t)+"k"
	ch := watching(t, cl.Client, key)
	require.Equal(t, 1, cl.Requests()["Watch"])
	inj := cl.Inject(Fault{Method: "Watch", Match: events, Do: FailWith})
	put(t, c.Client(), key, "1")
	require.NoError(t, inj.WaitHit(within(t, patience)))
	require.Equal(t, "1", string(next(t, ch).Events[0].Kv.Value))
	require.Equal(t, 2, cl.Requests()["Watch"])
}

func TestFailWithBreaksAStreamWithItsError(t *testing.T) {
	t.Parallel()
	cl := Shared(t).NewClient(t, nil)
	s, err := pb.NewLeaseClient(cl.ActiveConnection()).LeaseKeepAlive(t.Context())
	require.NoError(t, err)
	cl.Inject(Fault{Method: "LeaseKeepAlive", Do: FailWith, Err: status.Error(codes.Internal, "broken")})
	require.Error(t, s.Send(&pb.LeaseKeepAliveRequest{ID: 1}))
	_, err = s.Recv()
	require.Equal(t, codes.Internal, status.Code(err), "%v", err)
}

func TestKeepAliveAnswersHeldAndDropped(t *testing.T) {
	t.Parallel()
	c := Shared(t)
	cl := c.NewClient(t, nil)
	first, second := grant(t, cl.Client, 60), grant(t, cl.Client, 61)
	s, err := pb.NewLeaseClient(cl.ActiveConnection()).LeaseKeepAlive(t.Context())
	require.NoError(t, err)
	received := make(chan *pb.LeaseKeepAliveResponse, 10)
	go func() {
		for {
			r, err := s.Recv()
			if err != nil {
				return
			}
			received <- r
		}
	}()

	inj := cl.Inject(Fault{Method: "LeaseKeepAlive", Do: HoldResponse})
	require.NoError(t, s.Send(&pb.LeaseKeepAliveRequest{ID: int64(first)}))
	require.NoError(t, inj.WaitHit(within(t, patience)))
	require.Empty(t, received)
	require.NoError(t, inj.Release())
	require.Equal(t, int64(first), (<-received).ID)

	inj = cl.Inject(Fault{Method: "LeaseKeepAlive", Do: DropResponse})
	require.NoError(t, s.Send(&pb.LeaseKeepAliveRequest{ID: int64(first)}))
	require.NoError(t, s.Send(&pb.LeaseKeepAliveRequest{ID: int64(second)}))
	got := <-received
	require.Equal(t, int64(second), got.ID)
	require.Equal(t, int64(61), got.TTL)
	require.Equal(t, 1, inj.Hits())
	require.Equal(t, 3, cl.Requests()["LeaseKeepAlive.Send"])
}

// A held renewal does not reach the server before Release.
func TestHeldKeepAliveRequestIsNotSent(t *testing.T) {
	t.Parallel()
	c := Shared(t)
	cl := c.NewClient(t, nil)
	id := grant(t, cl.Client, 60)
	inj := cl.Inject(Fault{Method: "LeaseKeepAlive", Do: HoldRequest})
	s, err := pb.NewLeaseClient(cl.ActiveConnection()).LeaseKeepAlive(t.Context())
	require.NoError(t, err)
	done := async(func() error { return s.Send(&pb.LeaseKeepAliveRequest{ID: int64(id)}) })
	require.NoError(t, inj.WaitHit(within(t, patience)))
	require.Zero(t, cl.Requests()["LeaseKeepAlive.Send"])
	require.NoError(t, inj.Release())
	require.NoError(t, result(t, done))
	r, err := s.Recv()
	require.NoError(t, err)
	require.Equal(t, int64(id), r.ID)
	require.Equal(t, 1, cl.Requests()["LeaseKeepAlive.Send"])
}

func TestRequestsAndOpenStreams(t *testing.T) {
	t.Parallel()
	c := Shared(t)
	cl, prefix := c.NewClient(t, nil), c.Prefix(t)
	ctx := within(t, patience)
	put(t, cl.Client, prefix+"a", "1")
	_, err := cl.Get(ctx, prefix+"a")
	require.NoError(t, err)
	_, err = cl.Delete(ctx, prefix+"a")
	require.NoError(t, err)
	_, err = cl.Txn(ctx).Then(clientv3.OpPut(prefix+"a", "")).Commit()
	require.NoError(t, err)
	id := grant(t, cl.Client, 60)
	_, err = cl.KeepAliveOnce(ctx, id)
	require.NoError(t, err)
	_, err = cl.Revoke(ctx, id)
	require.NoError(t, err)
	watching(t, cl.Client, prefix+"a")
	watching(t, cl.Client, prefix+"b")
	require.Equal(t, map[string]int{
		"Put": 1, "Range": 1, "DeleteRange": 1, "Txn": 1, "LeaseGrant": 1, "LeaseRevoke": 1,
		"LeaseKeepAlive": 1, "LeaseKeepAlive.Send": 1, "Watch": 1, "Watch.Send": 2,
	}, cl.Requests())
	require.Eventually(t, func() bool {
		s := cl.OpenStreams()
		return len(s) == 1 && s["Watch"] == 1
	}, patience, 5*time.Millisecond, "one stream carries both watches")
	cl.ResetRequests()
	require.Empty(t, cl.Requests())
}
