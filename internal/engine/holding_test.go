package engine

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/internal/keyspace"
)

// What Close waits for is named, the longest held first, and a bounded number.
func TestHeldText(t *testing.T) {
	t.Parallel()
	s, err := keyspace.New("/p", "n")
	require.NoError(t, err)
	at := time.Unix(1000, 0)
	held := func(h holding, since time.Duration) holding {
		h.since = at.Add(-since)
		return h
	}
	permit := func(q keyspace.Queue, token int64) holding {
		return holding{key: q.Slot(keyspace.Slot{Lease: 1, Weight: 1}), token: token}
	}
	for name, c := range map[string]struct {
		named    []holding
		attempts int
		want     string
	}{
		"nothing that is known": {nil, 0, `permits, runs or attempts`},
		"attempts":              {nil, 2, `2 permits, runs or attempts (attempts of requests: 2)`},
		"a run and a permit": {[]holding{
			held(holding{job: "nightly"}, time.Second), held(permit(s.Queue(keyspace.Semaphore, "a b"), 7), time.Minute),
		}, 1, `3 permits, runs or attempts (semaphore "a b", token 7, for 1m0s; job "nightly", for 1s; attempts of requests: 1)`},
		"limiters": {[]holding{
			held(permit(s.Limiter("api").Key("acme"), 7), time.Second), held(permit(s.Limiter("api").Total(), 8), time.Second),
		}, 0, `2 permits, runs or attempts (limiter "api", key "acme", token 7, for 1s; limiter "api", token 8, for 1s)`},
		"a note": {[]holding{
			held(holding{key: s.Queue(keyspace.Mutex, "m").Light, token: 7, note: "line 12"}, 0),
		}, 0, `1 permits, runs or attempts (mutex "m", token 7, for 0s, note "line 12")`},
		"many": {[]holding{
			held(holding{job: "a"}, 7), held(holding{job: "b"}, 6), held(holding{job: "c"}, 5), held(holding{job: "d"}, 4), held(holding{job: "e"}, 3), held(holding{job: "f"}, 2), held(holding{job: "g"}, 1),
		}, 0, `7 permits, runs or attempts (job "a", for 0s; job "b", for 0s; job "c", for 0s; job "d", for 0s; job "e", for 0s; 2 more)`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, heldText(s, holdings{c.named, c.attempts}, at))
		})
	}
}

// A829: a permit leaves the roll, and then what Close waits for. At the end of Close's ctx both were counted, one after the other: a
// permit that left between them "had not ended".
func TestReleasedAtTheEndOfCloseCtx(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		leave bool
		lost  bool // the lease, so that there is no epoch
		want  string
	}{
		"held":        {want: "1 permits, runs or attempts"},
		"is leaving":  {leave: true},
		"is lost now": {lost: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &Session{ctx: t.Context(), work: newWork(t.Context(), t.Context())}
			s.opts.ReportEvery = time.Hour
			e := &Epoch{roll: newRoll(s.work.add)}
			ticket := written(e.roll, "q", 1)
			_, err := e.roll.add(ticket, &fake{}, fresh)
			require.NoError(t, err)
			if c.leave {
				e.roll.drop(ticket)
			}
			if !c.lost {
				s.current = e
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			awaitHolders(ctx, s)
			if c.want == "" {
				require.NoError(t, s.closeErr)
				return
			}
			require.ErrorContains(t, s.closeErr, c.want)
			require.ErrorIs(t, s.closeErr, context.Canceled)
		})
	}
}
