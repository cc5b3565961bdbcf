package rank

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// model is the queue written the slow, obvious way: the set of admitted requests is
// remembered by name, and everything else is computed anew each time.
type model struct {
	entries []Entry
	limit   int64
	known   bool
	in      map[string]bool
}

func id(e Entry) string { return fmt.Sprint(e.Key, "@", e.Create) }

func (m *model) settle() (admitted []Entry) {
	slices.SortFunc(m.entries, Entry.before)
	var ahead int64
	for _, e := range m.entries {
		if !m.in[id(e)] && m.known && Fits(ahead, e.Weight, m.limit) {
			m.in[id(e)] = true
			admitted = append(admitted, e)
		}
		ahead += e.Weight
	}
	return admitted
}

func (m *model) holders() (held, waiting []Entry, used int64) {
	for _, e := range m.entries {
		if m.in[id(e)] {
			held, used = append(held, e), used+e.Weight
		} else {
			waiting = append(waiting, e)
		}
	}
	return held, waiting, used
}

// TestQueueAgainstModel runs random histories of requests, departures, limit
// changes and resyncs on the queue and on the model.
func TestQueueAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q Queue
		m := model{in: map[string]bool{}}
		rev := int64(1)
		same := func(got, want []Entry) {
			require.Equal(t, len(want), len(got), "got %v, want %v", got, want)
			for i := range want {
				require.Equal(t, want[i], got[i])
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"arrive": func(t *rapid.T) {
				rev++
				e := Entry{Key: rapid.StringN(1, 2, -1).Draw(t, "key"), Create: rev, Weight: int64(rapid.IntRange(1, 4).Draw(t, "weight"))}
				q.Insert(e)
				m.entries = append(m.entries, e)
				same(q.Admit(), m.settle())
			},
			"leave": func(t *rapid.T) {
				if len(m.entries) == 0 {
					t.Skip("the queue is empty")
				}
				rev++
				for range rapid.IntRange(1, len(m.entries)).Draw(t, "how many") { // one revision may free many
					at := rapid.IntRange(0, len(m.entries)-1).Draw(t, "who")
					require.True(t, q.Delete(m.entries[at].Key, m.entries[at].Create))
					m.entries = slices.Delete(m.entries, at, at+1)
				}
				same(q.Admit(), m.settle())
			},
			"limit": func(t *rapid.T) {
				rev++
				m.limit, m.known = int64(rapid.IntRange(0, 6).Draw(t, "limit")), true
				same(q.SetLimit(m.limit, q.Through()), m.settle())
			},
			"forget": func(t *rapid.T) {
				m.known = false
				q.ForgetLimit()
				same(q.Admit(), nil)
			},
			"resync": func(t *rapid.T) {
				shuffled := rapid.Permutation(m.entries).Draw(t, "list")
				q.Reset(shuffled)
				same(q.Admit(), nil)
			},
			"": func(t *rapid.T) {
				held, waiting, used := m.holders()
				same(q.Holders(), held)
				same(q.Waiters(), waiting)
				require.Equal(t, used, q.Used())
				for i, e := range m.entries {
					ahead, admitted, ok := q.Position(e.Key, e.Create)
					require.True(t, ok)
					require.Equal(t, i, ahead)
					require.Equal(t, m.in[id(e)], admitted)
				}
			},
		})
	})
}

// TestPeakNeverAboveLimit is G1 in the small: at a fixed limit the weight of
// the admitted never exceeds it, in any history.
func TestPeakNeverAboveLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := int64(rapid.IntRange(1, 5).Draw(t, "limit"))
		var q Queue
		q.SetLimit(limit, 0)
		for rev := int64(1); rev < 60; rev++ {
			if n := len(q.entries); n > 0 && rapid.Bool().Draw(t, "leave") {
				e := q.entries[rapid.IntRange(0, n-1).Draw(t, "who")]
				q.Delete(e.Key, e.Create)
			} else {
				q.Insert(Entry{Key: "k", Create: rev, Weight: int64(rapid.IntRange(1, int(limit)).Draw(t, "weight"))})
			}
			q.Admit()
			require.LessOrEqual(t, q.Used(), limit)
		}
	})
}

func TestLoweringTakesNothingBack(t *testing.T) {
	var q Queue
	q.SetLimit(3, 0)
	for i := range int64(5) {
		q.Insert(Entry{Key: "k", Create: 10 + i, Weight: 1})
	}
	require.Len(t, q.Admit(), 3)
	require.Empty(t, q.SetLimit(1, q.Through()))
	require.Len(t, q.Holders(), 3, "a held permit is not taken back")
	q.Delete("k", 10)
	q.Delete("k", 11)
	require.Empty(t, q.Admit(), "one is still held, so the limit of 1 is taken")
	q.Delete("k", 12)
	require.Equal(t, []Entry{{Key: "k", Create: 13, Weight: 1}}, q.Admit())
}

func TestBounded(t *testing.T) {
	build := func(limit int64, entries ...Entry) *Queue {
		var q Queue
		q.SetLimit(limit, 0)
		q.Reset(entries)
		q.Admit()
		return &q
	}
	held := Entry{Key: "a", Create: 1, Weight: 1}
	try := Entry{Key: "b", Create: 2, Weight: 1, Try: true}
	waits := Entry{Key: "c", Create: 3, Weight: 1}
	require.Equal(t, Enter, build(1).Bounded(0, 1, 0))
	require.Equal(t, Refuse, build(0).Bounded(0, 1, 0))
	require.Equal(t, Refuse, new(Queue).Bounded(0, 1, 0), "an unknown limit admits nothing")
	require.Equal(t, Refuse, build(1, held).Bounded(0, 1, 0))
	require.Equal(t, Enter, build(1, held).Bounded(0, 1, 1))
	require.Equal(t, Unclear, build(1, try).Bounded(0, 1, 0), "a try alone is no reason to refuse")
	require.Equal(t, Refuse, build(1, held, try).Bounded(0, 1, 0))
	require.Equal(t, Unclear, build(1, held, try).Bounded(0, 1, 1), "a try that waits fills no place in the queue")
	require.Equal(t, Refuse, build(1, held, waits).Bounded(0, 1, 1))
	require.Equal(t, Refuse, build(3, held, waits).Bounded(0, 2, 0))
	require.Equal(t, Enter, build(1, held, try, waits).Bounded(1, 1, 0), "no request is before the first")
	require.Equal(t, Unclear, build(1, held, try, waits).Bounded(3, 1, 1))
}

func TestTooHeavy(t *testing.T) {
	t.Parallel()
	require.False(t, TooHeavy(5, 5))
	require.True(t, TooHeavy(6, 5))
	require.False(t, TooHeavy(6, 0), "it is paused")
}
