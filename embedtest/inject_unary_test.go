package embedtest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestDropResponseAppliesTheRequest(t *testing.T) {
	t.Parallel()
	c := Shared(t)
	cl, key := c.NewClient(t, nil), c.Prefix(t)+"k"
	inj := cl.Inject(Fault{Method: "Put", Do: DropResponse})

	_, err := cl.Put(within(t, patience), key, "1")
	require.Equal(t, codes.Unavailable, status.Code(err), "%v", err)
	require.Equal(t, 1, inj.Hits())
	require.Equal(t, "1", value(t, c, key))

	put(t, cl.Client, key, "2")
	require.Equal(t, "2", value(t, c, key), "the fault applies to one call only")
}

func TestDropResponseGivesTheErrorAskedFor(t *testing.T) {
	t.Parallel()
	c := Shared(t)
	cl, key := c.NewClient(t, nil), c.Prefix(t)+"k"
	cl.Inject(Fault{Method: "Txn", Do: DropResponse, Err: rpctypes.ErrGRPCNoSpace})
	_, err := cl.Txn(within(t, patience)).Then(clientv3.OpPut(key, "1")).Commit()
	require.ErrorIs(t, err, rpctypes.ErrNoSpace)
	require.Equal(t, "1", value(t, c, key))
}

func TestHoldRequestSendsALateCopy(t *testing.T) {
	t.Parallel()
	c := Shared(t)
	cl, key := c.NewClient(t, nil), c.Prefix(t)+"k"
	inj := cl.Inject(Fault{Method: "Put", Do: HoldRequest})

	ctx, cancel := context.WithCancel(t.Context())
	done := async(func() error { _, err := cl.Put(ctx, key, "late"); return err })
	require.NoError(t, inj.WaitHit(within(t, patience)))
	cancel()
	require.Error(t, result(t, done))
	require.ErrorIs(t, ctx.Err(), context.Canceled)
	require.Empty(t, value(t, c, key), "not sent yet")
	require.Zero(t, cl.Requests()["Put"])

	put(t, cl.Client, key, "newer")
	require.NoError(t, inj.Release())
	require.Equal(t, "late", value(t, c, key))
	late := inj.LateResponses()
	require.Len(t, late, 1)
	require.Equal(t, "Put", late[0].Method)
	require.IsType(t, &pb.PutResponse{}, late[0].Response)
	require.Equal(t, 2, cl.Requests()["Put"])
}

func TestHoldRequestDeadline(t *testing.T) {
	t.Parallel()
	c := Shared(t)
	cl := c.NewClient(t, nil)
	cl.Inject(Fault{Method: "Put", Do: HoldRequest})
	_, err := cl.Put(within(t, 20*time.Millisecond), c.Prefix(t)+"k", "")
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

func TestHoldRequestAnswersAWaitingCaller(t *testing.T) {
	t.Parallel()
	c := Shared(t)
	cl, key := c.NewClient(t, nil), c.Prefix(t)+"k"
	inj := cl.Inject(Fault{Method: "Txn", Do: HoldRequest})
	var resp *clientv3.TxnResponse
	done := async(func() (err error) {
		resp, err = cl.Txn(within(t, patience)).Then(clientv3.OpPut(key, "1"), clientv3.OpGet(key)).Commit()
		return err
	})
	require.NoError(t, inj.WaitHit(within(t, patience)))
	require.Empty(t, value(t, c, key))
	require.NoError(t, inj.Release())
	require.NoError(t, result(t, done))
	require.True(t, resp.Succeeded)
	require.Equal(t, "1", string(resp.Responses[1].GetResponseRange().Kvs[0].Value), "the answer is complete")
}

// A late copy is the request as the caller sent it, even if the caller changes the message
// afterwards.
func TestHeldRequestIsACopy(t *testing.T) {
	t.Parallel()
	c := Shared(t)
	cl, key := c.NewClient(t, nil), c.Prefix(t)+"k"
	inj := cl.Inject(Fault{Method: "Put", Do: HoldRequest})
	kv := pb.NewKVClient(cl.ActiveConnection())
	req := &pb.PutRequest{Key: []byte(key), Value: []byte("before")}
	ctx, cancel := context.WithCancel(t.Context())
	done := async(func() error { _, err := kv.Put(ctx, req); return err })
	require.NoError(t, inj.WaitHit(within(t, patience)))
	cancel()
	require.Error(t, result(t, done))
	copy(req.Value, "xxxxxx")
	require.NoError(t, inj.Release())
	require.Equal(t, "before", value(t, c, key))
}

func TestHoldResponse(t *testing.T) {
	t.Parallel()
	c := Shared(t)
	cl, key := c.NewClient(t, nil), c.Prefix(t)+"k"
	inj := cl.Inject(Fault{Method: "Put", Do: HoldResponse, Times: 2})

	done := async(func() error { _, err := cl.Put(within(t, patience), key, "1"); return err })
	require.NoError(t, inj.WaitHit(within(t, patience)))
	require.Equal(t, "1", value(t, c, key), "applied before the caller knows")
	select {
	case err := <-done:
		t.Fatalf("the answer was not held: %v", err)
	default:
	}
	require.NoError(t, inj.Release())
	require.NoError(t, result(t, done))

	ctx, cancel := context.WithCancel(t.Context())
	done = async(func() error { _, err := cl.Put(ctx, key, "2"); return err })
	require.Eventually(t, func() bool { return inj.Hits() == 2 }, patience, 5*time.Millisecond)
	cancel()
	require.Error(t, result(t, done))
	require.Equal(t, "2", value(t, c, key))
}

func TestDuplicateIsAppliedTwice(t *testing.T) {
	t.Parallel()
	c := Shared(t)
	cl, key := c.NewClient(t, nil), c.Prefix(t)+"k"
	inj := cl.Inject(Fault{Method: "Txn", Do: Duplicate})
	_, err := cl.Txn(within(t, patience)).Then(clientv3.OpPut(key, "1")).Commit()
	require.Equal(t, codes.Unavailable, status.Code(err), "%v", err)
	require.Equal(t, "1", value(t, c, key))
	put(t, c.Client(), key, "2")
	require.NoError(t, inj.Release())
	require.Equal(t, "1", value(t, c, key), "the copy came late and won")
	require.Equal(t, 2, cl.Requests()["Txn"])
}

func TestFailWithSendsNothing(t *testing.T) {
	t.Parallel()
	c := Shared(t)
	cl, key := c.NewClient(t, nil), c.Prefix(t)+"k"
	inj := cl.Inject(Fault{Method: "Put", Do: FailWith, Err: rpctypes.ErrGRPCTimeout, Times: -1})
	for range 3 {
		_, err := cl.Put(within(t, patience), key, "1")
		require.ErrorIs(t, err, rpctypes.ErrTimeout)
	}
	require.Equal(t, 3, inj.Hits())
	require.Zero(t, cl.Requests()["Put"])
	inj.Remove()
	require.Empty(t, value(t, c, key))
	put(t, cl.Client, key, "1")
}

func TestReleaseReturnsTheServersRefusal(t *testing.T) {
	t.Parallel()
	c := Shared(t)
	cl := c.NewClient(t, nil)
	id := grant(t, cl.Client, 60)
	inj := cl.Inject(Fault{Method: "Put", Do: HoldRequest})
	ctx, cancel := context.WithCancel(within(t, patience))
	go func() { _ = inj.WaitHit(ctx); cancel() }()
	_, err := cl.Put(ctx, c.Prefix(t)+"k", "1", clientv3.WithLease(id))
	require.Error(t, err)
	require.NoError(t, c.RevokeLease(t.Context(), id))
	require.ErrorContains(t, inj.Release(), "lease not found")
	require.Len(t, inj.LateResponses(), 1)
}

func TestSkipTimesAndMatch(t *testing.T) {
	t.Parallel()
	c := Shared(t)
	cl, prefix := c.NewClient(t, nil), c.Prefix(t)
	refused := errors.New("refused")
	inj := cl.Inject(Fault{
		Match: func(method string, req any) bool {
			p, ok := req.(*pb.PutRequest)
			return ok && method == "Put" && string(p.Key) == prefix+"k"
		},
		Skip: 1, Times: 2, Do: FailWith, Err: status.Error(codes.Aborted, refused.Error()),
	})
	var got []bool
	for range 5 {
		_, err := cl.Put(within(t, patience), prefix+"other", "")
		require.NoError(t, err)
		_, err = cl.Put(within(t, patience), prefix+"k", "")
		got = append(got, err == nil)
	}
	require.Equal(t, []bool{true, false, false, true, true}, got)
	require.Equal(t, 2, inj.Hits())
}

// Before and After let a test act between a request and its response.
func TestHooksInterleave(t *testing.T) {
	t.Parallel()
	c := Shared(t)
	cl, key := c.NewClient(t, nil), c.Prefix(t)+"k"
	var seen string
	cl.Inject(Fault{
		Method: "Put", Do: Pass,
		Before: func() { put(t, c.Client(), key, "before") },
		After:  func() { seen = value(t, c, key); put(t, c.Client(), key, "after") },
	})
	resp, err := cl.Put(within(t, patience), key, "mine", clientv3.WithPrevKV())
	require.NoError(t, err)
	require.Equal(t, "before", string(resp.PrevKv.Value))
	require.Equal(t, "mine", seen)
	require.Equal(t, "after", value(t, c, key))
}

// A call and a stream that FailWith fails wait for Before, too.
func TestBeforeOfAFailure(t *testing.T) {
	t.Parallel()
	c := Shared(t)
	cl, key := c.NewClient(t, nil), c.Prefix(t)
	cl.Inject(Fault{Method: "Put", Do: FailWith, Before: func() { put(t, c.Client(), key+"call", "before") }})
	_, err := cl.Put(within(t, patience), key, "mine")
	require.Error(t, err)
	require.Equal(t, "before", value(t, c, key+"call"))

	cl.Inject(Fault{Method: "Watch", Do: FailWith, Before: func() { put(t, c.Client(), key+"stream", "before") }})
	events := cl.Watch(within(t, patience), key+"stream", clientv3.WithRev(1))
	require.NotEmpty(t, (<-events).Events, "the stream that follows has the event that came before the failure")
}

func TestClosingTheClientEndsHeldCalls(t *testing.T) {
	if testing.Short() {
		t.Skip("it closes a client with a call under way: 3 s")
	}
	t.Parallel()
	c := Shared(t)
	cl := c.NewClient(t, nil)
	inj := cl.Inject(Fault{Method: "Put", Do: HoldRequest})
	done := async(func() error { _, err := cl.Put(context.Background(), c.Prefix(t)+"k", ""); return err })
	require.NoError(t, inj.WaitHit(within(t, patience)))
	require.NoError(t, cl.Close())
	require.Error(t, result(t, done))
	require.Error(t, inj.Release(), "the connection is gone")
}

func TestInjectRefusesToDuplicateAStream(t *testing.T) {
	t.Parallel()
	cl := Shared(t).NewClient(t, nil)
	require.Panics(t, func() { cl.Inject(Fault{Method: "Watch", Do: Duplicate}) })
}

func TestFaultHits(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name        string
		skip, times int
		want        []bool // of the calls 1 to 4
	}{
		{"by default the first call", 0, 0, []bool{true, false, false, false}},
		{"the first two", 0, 2, []bool{true, true, false, false}},
		{"all", 0, -1, []bool{true, true, true, true}},
		{"one after two", 2, 0, []bool{false, false, true, false}},
		{"two after one", 1, 2, []bool{false, true, true, false}},
		{"all after one", 1, -1, []bool{false, true, true, true}},
	} {
		f := Fault{Skip: tt.skip, Times: tt.times}
		for n, want := range tt.want {
			require.Equal(t, want, f.hits(n+1), "%s: call %d", tt.name, n+1)
		}
	}
}
