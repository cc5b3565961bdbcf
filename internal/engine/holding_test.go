package engine

import (
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
			require.Equal(t, c.want, heldText(s, c.named, c.attempts, at))
		})
	}
}
