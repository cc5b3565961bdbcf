package idempotency

import (
	"container/list"
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/engine"
)

func session(t *testing.T) (*embedtest.Cluster, *engine.Session) {
	c := embedtest.Shared(t)
	s, err := concurrency.NewSession(t.Context(), c.NewClient(t, nil).Client, "test", &concurrency.SessionOptions{Prefix: c.Prefix(t)})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = s.Close(ctx)
	})
	return c, engine.Of(s)
}

// Retentions are rounded up, by less than a twentieth and a second.
func TestClass(t *testing.T) {
	t.Parallel()
	classes := map[time.Duration]bool{}
	for d := time.Second; d < maxDuration; d += d/100 + 700*time.Millisecond {
		c := class(d)
		require.GreaterOrEqual(t, c, d)
		require.LessOrEqual(t, c, d+d/20+time.Second)
		require.Equal(t, c, class(c))
		classes[c] = true
	}
	require.Less(t, len(classes), 600)
}

// Many records share one lease, never more than a hundred, and the next lease is granted before that
// one is full.
func TestPoolSharesLeases(t *testing.T) {
	t.Parallel()
	_, sess := session(t)
	p := newRetention(sess, time.Hour)
	used := map[clientv3.LeaseID]int{}
	for range 300 {
		n := 1 + len(used)%3
		l, err := p.take(t.Context(), n)
		require.NoError(t, err)
		used[l.id] += n
	}
	for _, n := range used {
		require.LessOrEqual(t, n, perLease)
	}
	require.LessOrEqual(t, len(used), 9)
	require.GreaterOrEqual(t, len(used), 4)

	// Places that were released are used again.
	w := newWork(sess, time.Hour)
	used = map[clientv3.LeaseID]int{}
	for n := range 300 {
		l, err := w.take(t.Context(), 1)
		require.NoError(t, err)
		w.give(l, n%100 == 0)
		used[l.id]++
	}
	require.Len(t, used, 1)
}

// A lease without records is revoked with its session, and one with an outcome or a lost attempt is not.
func TestLeasesOfAClosedSession(t *testing.T) {
	t.Parallel()
	c := embedtest.Shared(t)
	for _, kind := range []func(*engine.Session, time.Duration) *pool{newWork, newRetention} {
		for _, left := range []bool{false, true} {
			s, err := concurrency.NewSession(t.Context(), c.NewClient(t, nil).Client, "test", &concurrency.SessionOptions{Prefix: c.Prefix(t)})
			require.NoError(t, err)
			p := kind(engine.Of(s), time.Hour)
			l, err := p.take(t.Context(), 1)
			require.NoError(t, err)
			p.give(l, left)
			require.NoError(t, s.Close(t.Context()))
			resp, err := c.Client().TimeToLive(t.Context(), l.id)
			require.NoError(t, err)
			require.Equal(t, left, resp.TTL > 0)
		}
	}
}

// A383: a lease counts as unused, and there is a key on it, such as an outcome that another operator has put there. It is
// revoked with its session only if etcd shows no key on it, and says so.
func TestLeaseWithAKeyOfAnother(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]*embedtest.Fault{
		"a key": nil, "etcd does not say": {Method: "LeaseTimeToLive", Do: embedtest.FailWith, Times: -1},
	} {
		c := embedtest.Shared(t)
		client := c.NewClient(t, nil)
		s, err := concurrency.NewSession(t.Context(), client.Client, "test", &concurrency.SessionOptions{Prefix: c.Prefix(t)})
		require.NoError(t, err)
		p := newRetention(engine.Of(s), time.Hour)
		l, err := p.take(t.Context(), 1)
		require.NoError(t, err)
		p.give(l, false)
		if fault == nil {
			_, err = c.Client().Put(t.Context(), s.NamespacePrefix()+"record", "", clientv3.WithLease(l.id))
			require.NoError(t, err)
		} else {
			client.Inject(*fault)
		}
		require.NoError(t, s.Close(t.Context()))
		resp, err := c.Client().TimeToLive(t.Context(), l.id)
		require.NoError(t, err)
		require.Positive(t, resp.TTL, name)
	}
}

// A machine was suspended and its wall clock set back meanwhile: what only the time since boot
// shows to be old is not used any more.
func TestAgedBySuspension(t *testing.T) {
	t.Parallel()
	suspended := func(m *moment) { // an hour ago
		if m.Boot == 0 {
			t.Skip("no clock of this system shows it")
		}
		m.Boot -= time.Hour
	}
	_, sess := session(t)
	p := newRetention(sess, time.Minute)
	first, err := p.take(t.Context(), 1)
	require.NoError(t, err)
	again, err := p.take(t.Context(), 1)
	require.NoError(t, err)
	require.Equal(t, first.id, again.id)
	require.False(t, p.short(first))
	suspended(&first.sent)
	require.True(t, p.short(first))
	other, err := p.take(t.Context(), 1)
	require.NoError(t, err)
	require.NotEqual(t, first.id, other.id, "an outcome would expire too soon on it")

	c := cache{most: 1 << 20, keep: 10 * time.Second, byRef: map[string]*list.Element{}}
	c.put("ref", &Outcome{}, now(), time.Hour)
	require.NotNil(t, c.get("ref"))
	suspended(&c.byRef["ref"].Value.(*cached).since)
	require.Nil(t, c.get("ref"))

	r := newReader(sess, codecs{}, newAway(sess).outage)
	r.saw(7, now())
	_, known := r.floor()
	require.True(t, known)
	suspended(&r.knownAt)
	_, known = r.floor()
	require.False(t, known, "a member that lags behind would be believed")
}

// A lease of records in progress is trusted for as much less than its TTL as that of the session, at least by its margin,
// and at most by a fifth: clocks that run apart do so for days as well.
func TestMarginOfRecords(t *testing.T) {
	t.Parallel()
	const ttl, day = 15 * time.Second, 36 * time.Hour
	for _, tt := range []struct{ granted, margin, want time.Duration }{
		{31 * time.Second, 3 * time.Second, 6200 * time.Millisecond},
		{day, 3 * time.Second, day / 5},
		{day, 15 * time.Millisecond, day / 1000},
		{day, ttl / 2, day / 5},
		{31 * time.Second, ttl / 2, ttl / 2},
		{31 * time.Second, 10 * time.Millisecond, 20666 * time.Microsecond},
	} {
		require.InDelta(t, tt.want, marginOf(tt.granted, ttl, tt.margin), float64(time.Millisecond), "%v, %v", tt.granted, tt.margin)
	}
	// In an outage the session is lost first, however long ago the record's lease was renewed.
	for m := 10 * time.Millisecond; m <= ttl/2; m += 10 * time.Millisecond {
		granted := 2*ttl + time.Second
		require.GreaterOrEqual(t, granted-marginOf(granted, ttl, m)-granted/3, ttl-m, m)
	}
}

// A burst of callers waits for as many leases as it needs, which are granted at the same time; each caller gets one, in the
// order of arrival, and a caller that gives up takes none. A lone caller has one lease granted.
func TestLeasesForABurst(t *testing.T) {
	t.Parallel()
	c := embedtest.Shared(t)
	client := c.NewClient(t, nil)
	s, err := concurrency.NewSession(t.Context(), client.Client, "test", &concurrency.SessionOptions{Prefix: c.Prefix(t)})
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	for _, kind := range []func(*engine.Session, time.Duration) *pool{newWork, newRetention} {
		p := kind(engine.Of(s), time.Hour)
		held := client.Inject(embedtest.Fault{Method: "LeaseGrant", Times: -1, Do: embedtest.HoldResponse})
		const many = 2*perLease + 1
		gone, giveUp := context.WithCancel(t.Context())
		type taken struct {
			n   int
			l   *pooled
			err error
		}
		all := make(chan taken, many)
		for n := range many {
			ctx := t.Context()
			if n == 0 {
				ctx = gone
			}
			go func() {
				l, err := p.take(ctx, 1)
				all <- taken{n, l, err}
			}()
		}
		granting := 0 // when all wait: later, one that is late has another one begun beside it
		require.Eventually(t, func() bool {
			p.mu.Lock()
			defer p.mu.Unlock()
			granting = p.granting
			return len(p.waiting) == many
		}, time.Minute, time.Millisecond)
		require.GreaterOrEqual(t, granting, 3)
		require.Eventually(t, func() bool { return held.Hits() >= 3 }, time.Minute, time.Millisecond)
		giveUp()
		first := <-all
		require.Equal(t, 0, first.n)
		require.ErrorIs(t, first.err, context.Canceled)
		held.Remove()
		require.NoError(t, held.Release())
		used := map[*pooled]int{}
		for range many - 1 {
			x := <-all
			require.NoError(t, x.err)
			used[x.l]++
		}
		for _, n := range used {
			require.LessOrEqual(t, n, perLease)
		}
		require.Len(t, used, 2)
	}
	client.ResetRequests()
	_, err = newRetention(engine.Of(s), time.Hour).take(t.Context(), 1)
	require.NoError(t, err)
	require.Equal(t, 1, client.Requests()["LeaseGrant"])
}
