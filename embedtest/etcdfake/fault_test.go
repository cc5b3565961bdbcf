package etcdfake_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/etcdkit/etcdkit/embedtest/etcdfake"
)

// commit makes a put that is not repeated, and reports when and how it ended.
func commit(ctx context.Context, c *etcdfake.Client, key string) (code codes.Code, took time.Duration) {
	begun := time.Now()
	_, err := c.Txn(ctx).Then(clientv3.OpPut(key, "")).Commit()
	took = time.Since(begun)
	var known rpctypes.EtcdError
	switch {
	case errors.As(err, &known):
		return known.Code(), took
	case errors.Is(err, context.DeadlineExceeded):
		return codes.DeadlineExceeded, took
	}
	return status.Code(err), took
}

// ended waits for a response of a watch, and returns its error.
func ended(w clientv3.WatchChan) error {
	resp := <-w
	return resp.Err()
}

// Each fate of a request does what it says: to its caller, and to the store.
func TestFates(t *testing.T) {
	t.Parallel()
	const s = time.Second
	for name, c := range map[string]struct {
		fate    etcdfake.Fault
		code    codes.Code
		took    time.Duration
		applied time.Duration // -1: never
		version int64         // in the end
	}{
		"none":                          {etcdfake.Fault{}, codes.OK, 0, 0, 1},
		"slow there":                    {etcdfake.Fault{RequestDelay: 3 * s}, codes.OK, 3 * s, 3 * s, 1},
		"slow back":                     {etcdfake.Fault{ResponseDelay: 3 * s}, codes.OK, 3 * s, 0, 1},
		"slow both ways":                {etcdfake.Fault{RequestDelay: 2 * s, ResponseDelay: 3 * s}, codes.OK, 5 * s, 2 * s, 1},
		"never there":                   {etcdfake.Fault{DropRequest: true}, codes.DeadlineExceeded, 10 * s, -1, 0},
		"never back":                    {etcdfake.Fault{DropResponse: true}, codes.DeadlineExceeded, 10 * s, 0, 1},
		"there after its caller":        {etcdfake.Fault{RequestDelay: 20 * s}, codes.DeadlineExceeded, 10 * s, 20 * s, 1},
		"failed and applied":            {etcdfake.Fault{Err: etcdfake.ErrUnavailable}, codes.Unavailable, 0, 0, 1},
		"failed in time and applied":    {etcdfake.Fault{Err: etcdfake.ErrUnavailable, ResponseDelay: s}, codes.Unavailable, s, 0, 1},
		"failed and never there":        {etcdfake.Fault{Err: etcdfake.ErrUnavailable, DropRequest: true}, codes.Unavailable, 0, -1, 0},
		"failed and applied afterwards": {etcdfake.Fault{Err: etcdfake.ErrUnavailable, RequestDelay: 2 * s}, codes.Unavailable, 0, 2 * s, 1},
		"twice":                         {etcdfake.Fault{Duplicate: 5 * s}, codes.OK, 0, 0, 2},
	} {
		bubble(t, name, func(t *testing.T, srv *etcdfake.Server, one, two *etcdfake.Client) {
			begun, revision := time.Now(), srv.Revision()
			one.Inject(func(m etcdfake.Message) etcdfake.Fault {
				require.Equal(t, "Txn", m.Method)
				require.IsType(t, &pb.TxnRequest{}, m.Body)
				return c.fate
			})
			applied := make(chan time.Duration, 1)
			go func() {
				for range two.Watch(after(t, time.Minute), "a") {
					applied <- time.Since(begun)
					break
				}
				close(applied)
			}()
			synctest.Wait()
			code, took := commit(after(t, 10*s), one, "a")
			require.Equal(t, c.code, code)
			require.Equal(t, c.took, took)
			time.Sleep(2 * time.Minute)
			at, ok := <-applied
			require.Equal(t, c.applied >= 0, ok)
			require.Equal(t, max(c.applied, 0), at)
			require.Equal(t, revision+c.version, srv.Revision())
		})
	}
}

// While a client is stalled nothing arrives anywhere; afterwards all of it does.
func TestStall(t *testing.T) {
	t.Parallel()
	bubble(t, "", func(t *testing.T, s *etcdfake.Server, one, two *etcdfake.Client) {
		ctx := context.Background()
		w := one.Watch(ctx, "b", clientv3.WithCreatedNotify())
		<-w
		one.Stall()
		code, took := commit(after(t, 10*time.Second), one, "a")
		require.Equal(t, codes.DeadlineExceeded, code)
		require.Equal(t, 10*time.Second, took)
		code, took = commit(ctx, two, "b")
		require.Equal(t, codes.OK, code)
		require.Zero(t, took)
		time.Sleep(time.Hour)
		require.Equal(t, []string{"b"}, s.Keys(""))
		require.Empty(t, w)
		one.Heal()
		require.Equal(t, "b", string((<-w).Events[0].Kv.Key))
		synctest.Wait()
		require.Equal(t, []string{"a", "b"}, s.Keys(""))
		code, _ = commit(ctx, one, "c")
		require.Equal(t, codes.OK, code)
	})
}

// A broken connection ends what is under way, and clientv3 resumes its watches. New calls
// wait for the end of a cut, as those of etcd's client do; a refusal ends them.
func TestBreakCutAndRefuse(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		away func(*etcdfake.Client)
		code codes.Code
		took time.Duration // of a call meanwhile
	}{
		"cut":     {(*etcdfake.Client).Cut, codes.DeadlineExceeded, 10 * time.Second},
		"refused": {(*etcdfake.Client).Refuse, codes.Unavailable, 0},
	} {
		bubble(t, name, func(t *testing.T, _ *etcdfake.Server, one, two *etcdfake.Client) {
			ctx := context.Background()
			w := one.Watch(ctx, "b", clientv3.WithCreatedNotify())
			<-w
			one.Inject(func(m etcdfake.Message) etcdfake.Fault { return etcdfake.Fault{ResponseDelay: time.Second} })
			time.AfterFunc(500*time.Millisecond, func() { c.away(one) })
			code, took := commit(ctx, one, "a")
			require.Equal(t, codes.Unavailable, code)
			require.Equal(t, 500*time.Millisecond, took)
			one.Inject(nil)
			code, took = commit(after(t, 10*time.Second), one, "a")
			require.Equal(t, c.code, code)
			require.Equal(t, c.took, took)
			commit(ctx, two, "b")
			time.Sleep(time.Minute)
			require.Empty(t, w)
			one.Heal()
			require.Equal(t, "b", string((<-w).Events[0].Kv.Key))
			one.Break()
			commit(ctx, two, "b")
			require.Equal(t, int64(2), (<-w).Events[0].Kv.Version)
			code, _ = commit(ctx, one, "a")
			require.Equal(t, codes.OK, code)
		})
	}
}

// A call that waits for the end of a cut is sent then; it ends with its client.
func TestCallsWaitForHeal(t *testing.T) {
	t.Parallel()
	bubble(t, "", func(t *testing.T, _ *etcdfake.Server, one, two *etcdfake.Client) {
		one.Cut()
		time.AfterFunc(time.Minute, one.Heal)
		code, took := commit(context.Background(), one, "a")
		require.Equal(t, codes.OK, code)
		require.Equal(t, time.Minute, took)
		two.Cut()
		time.AfterFunc(time.Minute, func() { _ = two.Close() })
		code, took = commit(context.Background(), two, "a")
		require.Equal(t, codes.Canceled, code)
		require.Less(t, took, time.Minute+5*time.Second) // clientv3 takes it for a canceled call, and repeats it a hundred times
	})
}

// The messages of a stream stay in order, and are lost or late one by one.
func TestFatesOnStreams(t *testing.T) {
	t.Parallel()
	bubble(t, "", func(t *testing.T, _ *etcdfake.Server, one, two *etcdfake.Client) {
		ctx, n := context.Background(), 0
		one.Inject(func(m etcdfake.Message) etcdfake.Fault {
			if !m.Response || len(m.Body.(*pb.WatchResponse).Events) == 0 {
				return etcdfake.Fault{}
			}
			n++
			return map[int]etcdfake.Fault{1: {ResponseDelay: 3 * time.Second}, 3: {DropResponse: true}, 5: {Err: etcdfake.ErrUnavailable}}[n]
		})
		w := one.Watch(ctx, "", clientv3.WithPrefix(), clientv3.WithCreatedNotify())
		<-w
		begun := time.Now()
		for i := range 5 {
			commit(ctx, two, fmt.Sprint(i))
			time.Sleep(time.Second)
		}
		var seen []string
		for len(seen) < 4 {
			for _, e := range (<-w).Events {
				seen = append(seen, string(e.Kv.Key))
			}
		}
		// The third is lost; the last one comes by the watch that clientv3 sets up anew.
		require.Equal(t, []string{"0", "1", "3", "4"}, seen)
		require.Less(t, time.Since(begun), 6*time.Second)
	})
	bubble(t, "late renewal", func(t *testing.T, s *etcdfake.Server, one, _ *etcdfake.Client) {
		l, err := one.Grant(context.Background(), 10)
		require.NoError(t, err)
		one.Inject(func(m etcdfake.Message) etcdfake.Fault { return etcdfake.Fault{RequestDelay: 5 * time.Second} })
		go func() { _, _ = one.KeepAliveOnce(after(t, time.Minute), l.ID) }()
		time.Sleep(15*time.Second - 1)
		require.NotEmpty(t, s.Leases())
		time.Sleep(time.Nanosecond)
		require.Empty(t, s.Leases())
	})
}

// Without a leader, calls that require one fail at once, others wait; leases wait
// too, and have their whole time again when there is one.
func TestNoLeader(t *testing.T) {
	t.Parallel()
	bubble(t, "", func(t *testing.T, s *etcdfake.Server, one, two *etcdfake.Client) {
		ctx := context.Background()
		_, err := one.Grant(ctx, 10)
		require.NoError(t, err)
		w := one.Watch(clientv3.WithRequireLeader(ctx), "a", clientv3.WithCreatedNotify())
		<-w
		s.SetLeader(false)
		require.Equal(t, rpctypes.ErrNoLeader, ended(w))
		code, took := commit(clientv3.WithRequireLeader(ctx), one, "a")
		require.Equal(t, codes.Unavailable, code)
		require.Zero(t, took)
		code, took = commit(ctx, two, "a")
		require.Equal(t, codes.Unavailable, code)
		require.Equal(t, 7*time.Second, took)
		time.Sleep(time.Hour)
		go func() {
			time.Sleep(time.Second)
			s.SetLeader(true)
		}()
		code, took = commit(ctx, two, "a")
		require.Equal(t, codes.OK, code)
		require.Equal(t, time.Second, took)
		time.Sleep(10*time.Second - 1)
		require.NotEmpty(t, s.Leases())
		time.Sleep(time.Nanosecond)
		require.Empty(t, s.Leases())
	})
}

// What was compacted cannot be read or watched; a restored backup takes history back.
func TestCompactAndBackup(t *testing.T) {
	t.Parallel()
	bubble(t, "", func(t *testing.T, s *etcdfake.Server, one, _ *etcdfake.Client) {
		ctx := context.Background()
		l, err := one.Grant(ctx, 10)
		require.NoError(t, err)
		_, err = one.Put(ctx, "a", "", clientv3.WithLease(l.ID))
		require.NoError(t, err)
		revision := s.Revision()
		restore := s.Backup()
		for range 3 {
			commit(ctx, one, "b")
		}
		require.Equal(t, s.Revision(), s.Compact())
		_, err = one.Get(ctx, "b", clientv3.WithRev(revision))
		require.Equal(t, rpctypes.ErrCompacted, err)
		require.Equal(t, rpctypes.ErrCompacted, ended(one.Watch(ctx, "b", clientv3.WithRev(revision))))
		time.Sleep(9 * time.Second)
		restore()
		require.Equal(t, revision, s.Revision())
		require.Equal(t, []string{"a"}, s.Keys(""))
		time.Sleep(9 * time.Second)
		require.Equal(t, []string{"a"}, s.Keys(""))
		require.True(t, s.Expire(l.ID))
		require.Empty(t, s.Keys(""))
		require.False(t, s.Expire(l.ID))
	})
}

// What it does not have is refused in words.
func TestNotSupported(t *testing.T) {
	t.Parallel()
	bubble(t, "", func(t *testing.T, _ *etcdfake.Server, one, _ *etcdfake.Client) {
		_, err := one.MemberList(context.Background())
		require.ErrorContains(t, err, "etcdfake: MemberList is not supported")
		_, err = one.Snapshot(context.Background())
		require.ErrorContains(t, err, "etcdfake: Snapshot is not supported")
		require.ErrorContains(t, ended(one.Watch(context.Background(), "a", clientv3.WithFragment())), "WithFragment is not supported")
	})
}

// A266: a request on a stream that fails reaches the server all the same, unless DropRequest is set: a lease is renewed.
func TestStreamRequestThatFails(t *testing.T) {
	t.Parallel()
	const s = time.Second
	for name, c := range map[string]struct {
		fate  etcdfake.Fault
		lives bool
	}{
		"there":       {etcdfake.Fault{Err: rpctypes.ErrGRPCPermissionDenied}, true},
		"later":       {etcdfake.Fault{Err: rpctypes.ErrGRPCPermissionDenied, RequestDelay: s}, true},
		"never there": {etcdfake.Fault{Err: rpctypes.ErrGRPCPermissionDenied, DropRequest: true}, false},
	} {
		bubble(t, name, func(t *testing.T, _ *etcdfake.Server, one, two *etcdfake.Client) {
			ctx := after(t, time.Minute)
			l, err := one.Grant(ctx, 10)
			require.NoError(t, err)
			time.Sleep(8 * s)
			one.Inject(func(m etcdfake.Message) etcdfake.Fault {
				if m.Method == "LeaseKeepAlive" && !m.Response {
					return c.fate
				}
				return etcdfake.Fault{}
			})
			_, err = one.KeepAliveOnce(ctx, l.ID)
			require.Error(t, err)
			time.Sleep(4 * s)
			left, err := two.TimeToLive(ctx, l.ID)
			require.NoError(t, err)
			require.Equal(t, c.lives, left.TTL > 0)
		})
	}
}
