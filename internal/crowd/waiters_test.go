package crowd

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/etcdkit/etcdkit/internal/limit"
)

func waiterOf(key string, token int64) *Waiter {
	return &Waiter{Request: Request{Key: key, Token: token}, woken: make(chan struct{}, 1)}
}

// Requests come and leave in any order. The first and the last are known, and each is found by its key: the
// name of one that is about to leave may be that of another already.
func TestWaitersOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := waiters{changed: make(chan struct{}), recheck: make(chan struct{}, 1)}
		far := func(*Waiter) bool { return false }
		crowded := func(*Waiter, int) bool { return false }
		var want []*Waiter
		latest := map[string]*Waiter{}
		for token := range rapid.IntRange(1, 40).Draw(t, "steps") {
			if len(want) > 0 && rapid.Bool().Draw(t, "one leaves") {
				at := rapid.IntRange(0, len(want)-1).Draw(t, "which")
				s := want[at]
				w.leave(s, crowded)
				want = slices.Delete(want, at, at+1)
				if latest[s.Key] == s {
					delete(latest, s.Key)
				}
			} else {
				late := rapid.IntRange(0, 5).Draw(t, "late") // its answer
				s := waiterOf(fmt.Sprint("k", rapid.IntRange(0, 9).Draw(t, "key")), int64(10*(token-late)+late))
				w.enter(s, crowded, far)
				want, latest[s.Key] = append(want, s), s
				slices.SortStableFunc(want, func(a, b *Waiter) int { return cmp.Compare(a.Token, b.Token) })
			}
			var got, back []*Waiter
			first, last := w.ends()
			for s := first; s != nil; s = s.after {
				got = append(got, s)
			}
			for s := last; s != nil; s = s.before {
				back = append(back, s)
			}
			slices.Reverse(back)
			require.True(t, slices.Equal(want, got), "in their order")
			require.True(t, slices.Equal(want, back), "and back")
			require.True(t, maps.Equal(latest, w.byKey), "by key")
		}
		for key, s := range latest {
			w.wake(key)
			require.Len(t, s.woken, 1)
		}
		for _, s := range want {
			require.Equal(t, latest[s.Key] == s, len(s.woken) == 1, "no other is woken")
		}
	})
}

// A request in a mode that does not exist fails, rather than to wait in another one.
func TestUnknownMode(t *testing.T) {
	t.Parallel()
	c := New(Queue{Limit: limit.NewFixed(1)})
	c.waiters.setMode(Front + 1)
	require.Error(t, c.Await(t.Context(), waiterOf("k", 1)).Err)
}
