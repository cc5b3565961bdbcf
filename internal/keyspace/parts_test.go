package keyspace

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Each key that the package builds is below one of the parts, and each part has one. None is foreign, and others are.
func TestParts(t *testing.T) {
	s := space(t, "payments")
	queue := s.Queue(Semaphore, "x")
	limiter := s.Limiter("x")
	used := map[string]bool{}
	for _, key := range []string{
		s.Session(1).Alive(), s.Session(1).Notice(1, queue.Light+"x"), s.Session(1).Stop(1, queue.Light+"x"), queue.Limit, queue.ID("x"), queue.Requests,
		s.Queue(Mutex, "x").Requests, s.Queue(Election, "x").Requests, s.Queue(Rate, "x").Requests, s.Tokens("x y").Left, s.Tokens("x").Timer, s.Member(queue, 1),
		limiter.Default, limiter.Total().Limit, limiter.Key("x").ID("x"), limiter.Key("x").Requests,
		s.Job("x").Lock(), s.Job("x").Run(time.Unix(0, 0)), s.Clock(1), s.User(1, 0), s.Store("x").Entry("a", "b", "c").Record, s.Store("x").Results(), s.Change(1, "x"),
	} {
		rest, ok := strings.CutPrefix(key, s.Root())
		require.True(t, ok, key)
		at := slices.IndexFunc(Parts(), func(part string) bool { return strings.HasPrefix(rest, part) })
		require.GreaterOrEqual(t, at, 0, key)
		require.False(t, Foreign(s, key), key)
		used[Parts()[at]] = true
	}
	require.Len(t, used, len(Parts()))
	for _, rest := range []string{"", "x", "sem", "semaphore/", "semaphore/x", "zzz/unknown", "v2/x", "session/xyz", "session/0000000000000001/other", "session/0000000000000001", "limiter/api/junk", "idempotency/orders/junk", "idempotency/orders/record/junk", "clock/x", "bucket/x", "bucket/x/", "bucket/x/junk", "bucket/x/left/junk", "job/x", "request-id/x", "sharing/x", "jobs-of/x", "id/x", "member/x"} {
		require.True(t, Foreign(s, s.Root()+rest), rest)
	}
	require.True(t, Foreign(s, "/elsewhere"))
	for rest, later := range map[string]bool{"x-thing/name/key": true, "x-/y": true, "x-thing": false, "x-thing/": false, "y/x-thing/key": false} { // A734
		require.Equal(t, later, Later(s, s.Root()+rest), rest)
		require.Equal(t, !later, Foreign(s, s.Root()+rest), rest)
	}
	for _, part := range Parts() {
		require.False(t, strings.HasPrefix(part, laterPart), part)
	}
}
