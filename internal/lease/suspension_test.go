package lease

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// machine has the clocks of a machine that can be suspended: then the monotonic clock
// stops. The wall clock can be set back at the same time.
type machine struct {
	base, begun time.Time

	mu      sync.Mutex
	slept   time.Duration
	setBack time.Duration
}

func (m *machine) now() Moment {
	m.mu.Lock()
	defer m.mu.Unlock()
	run := time.Since(m.begun)
	return at(m.base, run+m.slept-m.setBack, run, run+m.slept)
}

func (m *machine) suspend(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.slept += d
}

func (m *machine) setBackBy(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.setBack += d
}

// F02, F03, A10: after a suspension the lease is lost at the next look, and within half
// a second without one; even if the wall clock was set back by as much meanwhile.
func TestSuspensionIsNoticed(t *testing.T) {
	for name, c := range map[string]struct{ looks, setBack bool }{
		"look":                             {looks: true},
		"no look":                          {},
		"look, wall clock set back":        {looks: true, setBack: true},
		"no look, and wall clock set back": {setBack: true},
	} {
		base := time.Now() // in a bubble it has no monotonic reading
		bubble(t, name, func(t *testing.T) {
			a := newAPI()
			m := &machine{base: base, begun: time.Now()}
			o := options(margin)
			o.now = m.now
			l, err := Grant(t.Context(), a, o)
			require.NoError(t, err)
			defer l.Close(errTest)
			(<-a.streams).answer(0, 15)
			synctest.Wait()
			require.True(t, l.Valid())
			m.suspend(ttl - margin)
			if c.setBack {
				m.setBackBy(ttl - margin)
			}
			if c.looks {
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
		o := options(margin)
		o.now = m.now
		l, err := Grant(t.Context(), a, o)
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
