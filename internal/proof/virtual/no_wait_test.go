package virtual

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest/etcdfake"
	"github.com/etcdkit/etcdkit/idempotency"
)

// A493: a call that does not wait, behind one of its process that does, is refused by an attempt that begins after it has asked
// etcd: the waiting call finds that attempt, and it looks again.
func TestNoWaitBehindAWaitingCall(t *testing.T) {
	t.Parallel()
	bubble(t, 3, func(t *testing.T, on []*desk) {
		b, c, first, call := waiting(t, within(t, time.Hour), on)
		var reads atomic.Int64
		on[1].client.Inject(func(m etcdfake.Message) etcdfake.Fault {
			if m.Method == "Txn" && reads.Add(1) == 1 {
				return etcdfake.Fault{ResponseDelay: time.Second} // of the call that does not wait
			}
			if r, ok := m.Body.(*pb.WatchResponse); ok && len(r.Events) > 0 {
				return etcdfake.Fault{ResponseDelay: 3 * time.Hour}
			}
			return etcdfake.Fault{}
		})
		require.NoError(t, first.Release(t.Context()))
		done := make(chan returned, 1)
		go func() {
			at, out, err := b.Begin(within(t, time.Hour), order("1"), "payload", idempotency.Wait(0))
			done <- returned{at, out, err, time.Now()}
		}()
		time.Sleep(500 * time.Millisecond)
		second := started(t, c, order("1"))
		time.Sleep(time.Second)
		synctest.Wait()
		require.Len(t, done, 1, "it waits")
		require.ErrorIs(t, (<-done).err, idempotency.ErrInProgress)
		require.Empty(t, call)
		require.NoError(t, second.Commit(t.Context(), []byte("x")))
		require.NoError(t, (<-call).err)
	})
}

// A493: the same, behind a call that waits until a claim of their process is taken back, whose session was lost. Neither asks etcd
// ten times a second.
func TestNoWaitBehindAnUndo(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(t *testing.T, on []*desk) {
		d, a := on[0], on[0].storeOf(idempotency.Options{OnLost: idempotency.Refuse})
		require.NoError(t, started(t, a, order("warm")).Release(t.Context()))
		var claims, reads atomic.Int64
		var allowed atomic.Bool
		d.client.Inject(func(m etcdfake.Message) etcdfake.Fault {
			r, ok := m.Body.(*pb.TxnRequest)
			switch {
			case !ok || m.Response || !strings.Contains(r.String(), "/record/"):
				if m.Method == "Range" {
					reads.Add(1)
				}
				return etcdfake.Fault{}
			case !strings.Contains(r.String(), "request_put") && !strings.Contains(r.String(), "request_delete_range"):
				reads.Add(1)
				return etcdfake.Fault{}
			case claims.Add(1) == 1: // the claim is written, and its answer comes when its session is lost
				time.AfterFunc(500*time.Millisecond, func() { d.server.Expire(d.session.Lease()) })
				return etcdfake.Fault{ResponseDelay: ttl}
			case !allowed.Load():
				return etcdfake.Fault{DropRequest: true, Err: rpctypes.ErrGRPCNoSpace}
			}
			return etcdfake.Fault{}
		})
		gone, leave := context.WithCancel(t.Context())
		go func() { time.Sleep(time.Second); leave() }()
		_, _, err := a.Begin(gone, order("1"), "payload")
		require.ErrorIs(t, err, context.Canceled)
		call := make(chan returned, 1)
		go func() {
			at, out, err := a.Begin(within(t, time.Hour), order("1"), "payload")
			call <- returned{at, out, err, time.Now()}
		}()
		time.Sleep(2 * ttl)
		if len(call) > 0 {
			require.FailNow(t, "it does not wait", "%v", <-call)
		}
		before := reads.Load()
		time.Sleep(time.Minute)
		require.Less(t, reads.Load()-before, int64(60))
		_, _, err = a.Begin(within(t, time.Second), order("1"), "payload", idempotency.Wait(0))
		require.ErrorIs(t, err, idempotency.ErrInProgress)
		_, _, err = a.Begin(within(t, 3*time.Second), order("1"), "payload")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, concurrency.ErrUnavailable, "etcd answers")
		allowed.Store(true)
		time.Sleep(10 * time.Second)
		end := <-call
		require.NoError(t, end.err)
		require.NoError(t, end.at.Release(t.Context()))
	})
}
