package lease

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// machine has the two clocks of a machine that can be suspended: then one of them
// stands still.
type machine struct {
	base, begun time.Time

	mu    sync.Mutex
	slept time.Duration
}

func (m *machine) now() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	run := time.Since(m.begun)
	return at(m.base, run+m.slept, run)
}

func (m *machine) suspend(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.slept += d
}

// F02, F03: after a suspension the lease is lost as soon as anyone looks, and
// within half a second even if nobody does.
func TestSuspensionIsNoticed(t *testing.T) {
	for _, looks := range []bool{true, false} {
		name := "somebody looks"
		if !looks {
			name = "nobody looks"
		}
		base := time.Now() // in a bubble it has no monotonic reading
		bubble(t, name, func(t *testing.T) {
			a := newAPI()
			m := &machine{base: base, begun: time.Now()}
			l, err := Grant(t.Context(), a, Options{TTL: ttl, Margin: margin, Now: m.now})
			require.NoError(t, err)
			defer l.Close(errTest)
			(<-a.streams).answer(0, 15)
			synctest.Wait()
			require.True(t, l.Valid())
			m.suspend(ttl - margin)
			if looks {
				require.False(t, l.Valid())
				require.Error(t, l.Context().Err())
				return
			}
			suspended := time.Now()
			<-l.Context().Done()
			require.LessOrEqual(t, time.Since(suspended), 500*time.Millisecond)
			require.ErrorIs(t, l.Cause(), ErrDeadline)
		})
	}
}

// F04, T22: a machine is suspended while an answer is on its way, until after the
// deadline. The answer is the first thing that it sees then, before anything has
// looked at the clocks. It brings nothing back.
func TestTrapS10AnswerAfterSuspension(t *testing.T) {
	base := time.Now() // in a bubble it has no monotonic reading
	bubble(t, "", func(t *testing.T) {
		a := newAPI()
		m := &machine{base: base, begun: time.Now()}
		l, err := Grant(t.Context(), a, Options{TTL: ttl, Margin: margin, Now: m.now})
		require.NoError(t, err)
		defer l.Close(errTest)
		s := <-a.streams
		s.answer(0, 15)
		r := <-s.sent
		deadline := l.Deadline()
		m.suspend(ttl - margin)
		s.answers <- answer{id: r.id, seconds: 15}
		synctest.Wait()
		require.ErrorIs(t, l.Cause(), ErrDeadline)
		require.Equal(t, deadline, l.Deadline())
		require.False(t, l.Valid())
	})
}
