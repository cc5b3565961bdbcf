package queue

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/embedtest/etcdfake"
	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/keyspace"
)

// A689: a full queue is too full unless enough of the requests that were being removed were in it at the revision of its count.
func TestTooFull(t *testing.T) {
	t.Parallel()
	etcdfake.Test(t, func(t *testing.T, etcd *etcdfake.Server) {
		ctx, client := t.Context(), etcd.NewClient().Client
		space, err := keyspace.New("etcdkit/", "test")
		require.NoError(t, err)
		r := &Reader{KV: client.KV, Keys: space.Queue(keyspace.Semaphore, "x")}
		var all []engine.Leaving
		for i := range 3 * provable {
			l := engine.Leaving{Key: fmt.Sprint("another queue/", i)}
			for _, try := range []bool{false, true} {
				l.Next = append(l.Next, r.Keys.Slot(keyspace.Slot{Lease: 1, Number: i, Weight: 1, Try: try}))
			}
			if i > 0 { // the first is in doubt
				l.Joined = engine.Joined{Key: l.Next[0]}
			}
			put, err := client.Put(ctx, l.Next[0], "")
			require.NoError(t, err)
			if i > 0 {
				l.Joined.Token = put.Header.Revision
			}
			all = append(all, l)
		}
		n := len(all)
		before := etcd.Revision()
		again := all[n-1].Joined.Key
		_, err = client.Delete(ctx, again)
		require.NoError(t, err)
		_, err = client.Put(ctx, again, "of a later request") // with the same slot
		require.NoError(t, err)
		_, err = client.Delete(ctx, all[1].Joined.Key)
		require.NoError(t, err)
		now := etcd.Revision()

		reads := 0
		r.KV = counting{client.KV, &reads}
		for name, c := range map[string]struct {
			waiting, most int
			revision      int64
			full          bool
			reads         int
		}{
			"all of them would not do":      {n + 1, 1, before, true, 0},
			"all were there":                {n, 1, before, false, 3},
			"two were not":                  {n, 1, now, true, 1},
			"the others are enough":         {n - 2, 1, now, false, 3},
			"a few are enough":              {provable - 1, 1, now, false, 1},
			"one of few":                    {1, 1, now, false, 1},
			"room for tries: none may wait": {n, 0, before, true, 0},
			"a try":                         {0, 0, now, false, 1},
		} {
			reads = 0
			f := &Full{Limit: 5, Used: 5, Waiting: c.waiting}
			full, err := r.tooFull(ctx, f, all, c.most, c.revision)
			require.NoError(t, err, name)
			require.Equal(t, c.full, full, name)
			require.Equal(t, c.reads, reads, name)
		}
		etcd.Compact()
		full, err := r.tooFull(ctx, &Full{Limit: 5, Used: 5, Waiting: n}, all, 1, before)
		require.NoError(t, err)
		require.False(t, full, "etcd cannot say")
	})
}

// counting counts Txns.
type counting struct {
	clientv3.KV
	n *int
}

func (c counting) Txn(ctx context.Context) clientv3.Txn {
	*c.n++
	return c.KV.Txn(ctx)
}

// A call rests for a moment, or until the requests that were being removed are gone.
func TestRest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const least, most = 5 * time.Millisecond, 15 * time.Millisecond // of the first pause
		gone, leaves, stays := make(chan struct{}), make(chan struct{}), make(chan struct{})
		close(gone)
		rest := func(left ...engine.Leaving) time.Duration {
			begun := time.Now()
			m := &removals{func() []engine.Leaving { return left }}
			require.NoError(t, m.rest(t.Context(), &commit.Backoff{}))
			return time.Since(begun)
		}
		for _, left := range [][]engine.Leaving{nil, {{Gone: gone}}, {{Gone: gone}, {Gone: stays}}} {
			took := rest(left...)
			require.GreaterOrEqual(t, took, least)
			require.LessOrEqual(t, took, most)
		}
		time.AfterFunc(time.Millisecond, func() { close(leaves) })
		require.Equal(t, time.Millisecond, rest(engine.Leaving{Gone: leaves}, engine.Leaving{Gone: gone}))
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		m := &removals{func() []engine.Leaving { return []engine.Leaving{{Gone: stays}} }}
		require.ErrorIs(t, m.rest(ended, &commit.Backoff{}), context.Canceled)
	})
}
