package engine

import (
	"context"
	"math/big"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/internal/keyspace"
)

// taken takes a slot, and names its key.
func taken(t *testing.T, s *slots, queue, key string, also ...string) *Ticket {
	t.Helper()
	n, err := s.TakeSlot(t.Context(), queue)
	require.NoError(t, err)
	x := &Ticket{Queue: queue, Number: n, Stored: Stored{Key: key, Also: also}}
	s.name(x)
	return x
}

// The lowest number that is certainly free is taken, in each queue by itself.
func TestSlotsAreReused(t *testing.T) {
	t.Parallel()
	s := newSlots(1000)
	var all []*Ticket
	for n := range 130 {
		all = append(all, taken(t, s, "q", ""))
		require.Equal(t, n, all[n].Number)
	}
	require.Zero(t, taken(t, s, "another", "").Number)
	s.Deletes(all[3])
	require.Equal(t, 130, taken(t, s, "q", "").Number, "a key that is being deleted may still exist")
	s.free(all[70])
	s.free(all[3])
	require.Equal(t, 3, taken(t, s, "q", "").Number)
	s.free(all[3])
	require.Equal(t, 70, taken(t, s, "q", "").Number, "a slot is freed once")
	require.Equal(t, 131, taken(t, s, "q", "").Number)
}

func TestSlotsAreForgotten(t *testing.T) {
	t.Parallel()
	s := newSlots(10)
	a, b := taken(t, s, "q", "a", "id"), taken(t, s, "p", "b")
	s.Deletes(a)
	s.free(a)
	s.waste(b)
	s.free(b)
	s.Deletes(a) // too late
	require.False(t, s.deletesKey("a"))
	require.Zero(t, s.used)
	require.Empty(t, s.names)
	require.Empty(t, s.deleting)
	require.Len(t, s.numbers, 1, "the number of a foreign key stays taken")
	require.Equal(t, 1, taken(t, s, "p", "c").Number)
}

// The requests that are being removed are known by their queue, with their keys in the queue of a total, until they are
// certainly gone.
func TestSlotsAreLeaving(t *testing.T) {
	t.Parallel()
	s := newSlots(10)
	a, b, c := taken(t, s, "q", "a", "id"), taken(t, s, "q", "b"), taken(t, s, "p", "c")
	a.Next, a.Joined = []string{"total", "try"}, Joined{Key: "try", Token: 7}
	require.Empty(t, s.Leaving("q"))
	s.Deletes(a)
	s.Deletes(c)
	before := s.Leaving("q")
	require.Equal(t, []Leaving{{Key: "a", Next: a.Next, Joined: a.Joined, Gone: a.gone}}, before)
	s.Deletes(b)
	require.Len(t, before, 1, "as of the call")
	all := s.Leaving("q")
	require.Len(t, all, 2)
	s.free(b)
	require.Equal(t, before, s.Leaving("q"))
	for _, l := range all {
		require.Equal(t, l.Key == "b", l.IsGone(), l.Key)
	}
	s.free(a)
	require.True(t, before[0].IsGone())
}

// The key of an ID is named anew while the request before is still being deleted. It is the
// session's own until both are gone.
func TestNameReusedDuringADeletion(t *testing.T) {
	t.Parallel()
	s := newSlots(10)
	before := taken(t, s, "q", "a", "id")
	s.Deletes(before)
	after := taken(t, s, "q", "b", "id")
	s.free(before)
	require.False(t, s.owns("a"))
	require.True(t, s.owns("id"))
	require.False(t, s.deletesKey("b"))
	s.free(after)
	require.False(t, s.owns("id"))
}

func TestSlotsAreBounded(t *testing.T) {
	t.Parallel()
	s := newSlots(2)
	a, b := taken(t, s, "q", "a"), taken(t, s, "p", "b")
	_, err := s.TakeSlot(t.Context(), "q")
	require.ErrorIs(t, err, ErrTooMany)
	s.waste(b) // costs none
	b = taken(t, s, "p", "b")

	synctest.Test(t, func(t *testing.T) {
		s.Deletes(a)
		got := make(chan int, 2)
		wait := func() {
			n, err := s.TakeSlot(context.Background(), "q")
			if err != nil {
				n = -1
			}
			got <- n
		}
		go wait()
		synctest.Wait()
		require.Empty(t, got, "a slot is about to be freed")
		_, err := s.TakeSlot(context.Background(), "q")
		require.ErrorIs(t, err, ErrTooMany, "but for one call only")

		s.Deletes(b)
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_, err = s.TakeSlot(ctx, "q")
		require.ErrorIs(t, err, context.Canceled)
		go wait()
		synctest.Wait()
		s.free(a)
		synctest.Wait()
		require.Equal(t, 0, <-got, "the number that was freed")
		require.Empty(t, got, "one slot, one call")
		begun := time.Now()
		require.Equal(t, -1, <-got, "the other call gives up")
		require.Equal(t, slotPatience, time.Since(begun))
		require.Empty(t, s.ready)
		require.Zero(t, s.waits)
		require.Equal(t, 2, s.used)
	})
}

func TestSlotsOfAQueueAreBounded(t *testing.T) {
	t.Parallel()
	s := newSlots(1 << 20)
	for range keyspace.MaxSlot + 1 {
		_, err := s.TakeSlot(t.Context(), "q")
		require.NoError(t, err)
	}
	_, err := s.TakeSlot(t.Context(), "q")
	require.ErrorIs(t, err, ErrTooMany)
	require.Equal(t, keyspace.MaxSlot+1, s.used)
	_, err = s.TakeSlot(t.Context(), "another")
	require.NoError(t, err)
}

// A call that is given a slot and has no number for it in its queue hands the slot to the next.
func TestSlotIsHandedOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSlots(2)
		all := new(big.Int).Lsh(one, keyspace.MaxSlot+1)
		s.numbers["full"] = all.Sub(all, one)
		x := taken(t, s, "q", "a")
		s.Deletes(x)
		s.Deletes(taken(t, s, "q", "b"))
		got := make(chan error, 2)
		for _, queue := range []string{"full", "q"} {
			go func() {
				_, err := s.TakeSlot(context.Background(), queue)
				got <- err
			}()
			synctest.Wait()
		}
		begun := time.Now()
		s.free(x)
		require.ErrorIs(t, <-got, ErrTooMany)
		require.NoError(t, <-got)
		require.Zero(t, time.Since(begun))
	})
}

// A slot is freed for a call at the moment at which its wait ends: the call has it, or it would
// be lost.
func TestSlotsWaitEndsWithASlot(t *testing.T) {
	t.Parallel()
	s := newSlots(1)
	x := taken(t, s, "q", "a")
	s.Deletes(x)
	ctx, cancel := context.WithCancel(t.Context())
	got := make(chan error, 1)
	go func() {
		_, err := s.TakeSlot(ctx, "q")
		got <- err
	}()
	require.Eventually(t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.waits == 1
	}, time.Minute, time.Millisecond)
	s.mu.Lock() // the call cannot return before the slot is free
	cancel()
	time.Sleep(10 * time.Millisecond)
	delete(s.deleting, x.Key)
	s.numbers["q"].SetBit(s.numbers["q"], x.Number, 0)
	s.end(x)
	s.mu.Unlock()
	require.NoError(t, <-got)
	require.Equal(t, 1, s.used)
}
