package lease

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// F15, S10: a grant whose answer was lost finds its own lease when it is repeated,
// and the time of trust counts from the first sending.
func TestTrapS10GrantCountsFromFirstSend(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		a := newAPI()
		begun := time.Now()
		var ids []int64
		a.grant = func(id, _ int64) (int64, error) {
			ids = append(ids, id)
			if len(ids) == 1 {
				time.Sleep(5 * time.Second)
				return 0, errUnavailable
			}
			return 0, rpctypes.ErrGRPCLeaseExist
		}
		a.granted = func(id int64) (int64, error) {
			require.Equal(t, ids[0], id)
			return 20, nil // F18: etcd gives what it likes
		}
		l := grant(t, a)
		defer l.Close(errTest)
		require.Equal(t, []int64{l.ID(), l.ID()}, ids)
		require.Equal(t, begun.Add(20*time.Second-margin), l.Deadline())
	})
}

// F15: an ID that was taken before the first try is a stranger's; a lease that
// has ended before it was found is not kept.
func TestGrantOfTakenID(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		a := newAPI()
		var ids []int64
		a.grant = func(id, seconds int64) (int64, error) {
			ids = append(ids, id)
			switch len(ids) {
			case 1: // a stranger's
				return 0, rpctypes.ErrGRPCLeaseExist
			case 2:
				time.Sleep(time.Second)
				return 0, errUnavailable
			case 3:
				return 0, rpctypes.ErrGRPCLeaseExist
			}
			return seconds, nil
		}
		a.granted = func(int64) (int64, error) { return 0, nil }
		begun := time.Now()
		l := grant(t, a)
		defer l.Close(errTest)
		require.Len(t, ids, 4)
		require.NotEqual(t, ids[0], ids[1])
		require.Equal(t, ids[1], ids[2])
		require.NotEqual(t, ids[2], ids[3])
		require.Equal(t, ids[3], l.ID())
		require.Greater(t, l.Deadline(), begun.Add(ttl-margin), "counts from the sending of the grant that held")
	})
}

// F18: what etcd has granted counts, for the deadline and for what an answer must
// bring.
func TestGrantedTTLCounts(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		a := newAPI()
		a.grant = func(_, _ int64) (int64, error) { return 30, nil }
		begun := time.Now()
		l := grant(t, a)
		defer l.Close(errTest)
		require.Equal(t, 30*time.Second, l.TTL())
		require.Equal(t, begun.Add(30*time.Second-margin), l.Deadline())
		(<-a.streams).answer(0, 15)
		time.Sleep(time.Second)
		require.Equal(t, begun.Add(30*time.Second-margin), l.Deadline(), "15 s is less than was granted")
	})
}

// F14, F15: a grant that is given up returns when its ctx ends, and a lease that
// may be there all the same is revoked.
func TestGrantGivenUp(t *testing.T) {
	for name, err := range map[string]error{"no answer": errUnavailable, "denied": rpctypes.ErrGRPCPermissionDenied, "no space": rpctypes.ErrGRPCNoSpace} {
		bubble(t, name, func(t *testing.T) {
			a := newAPI()
			var id int64
			a.grant = func(i, _ int64) (int64, error) { id = i; return 0, err }
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			begun := time.Now()
			var after func(context.Context)
			_, failed := Grant(ctx, a, Options{TTL: ttl, Margin: margin, Later: func(f func(context.Context)) { after = f }})
			require.ErrorIs(t, failed, err)
			if err == errUnavailable {
				require.ErrorIs(t, failed, context.DeadlineExceeded)
				require.Equal(t, 10*time.Second, time.Since(begun))
			} else {
				require.Zero(t, time.Since(begun))
			}
			require.Empty(t, a.revoked)
			after(t.Context())
			require.Equal(t, []int64{id}, a.revoked)
		})
	}
}

// F19: revoking is repeated until etcd has confirmed it, its own bound ends, or it is
// refused for good.
func TestRevokeIsRepeated(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		a := newAPI()
		l := grant(t, a)
		l.Close(errTest)
		require.ErrorIs(t, l.Cause(), errTest)
		left := 3
		a.revoke = func(int64) error {
			if left--; left > 0 {
				return errUnavailable
			}
			return nil
		}
		require.NoError(t, l.Revoke(t.Context()))
		require.Zero(t, left)

		a.revoke = func(int64) error { return errUnavailable }
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		err := l.Revoke(ctx)
		require.ErrorIs(t, err, errUnavailable)
		require.ErrorIs(t, err, context.DeadlineExceeded)

		a.revoke = func(int64) error { return rpctypes.ErrGRPCPermissionDenied }
		require.ErrorIs(t, l.Revoke(t.Context()), rpctypes.ErrGRPCPermissionDenied)
	})
}
