package crowd

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/internal/limit"
	"github.com/etcdkit/etcdkit/internal/mirror"
)

// One row for each thing that ends the sleep of a request by a sample: what it does then, not later than when, and
// whether it reads its place again.
func TestMonitorSleepsBySample(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		requests int64
		do       func(m *monitor, s *sample)
		then     afterSleep
		by       time.Duration // when, at the latest
		placed   bool
	}{
		"nothing happens":         {300, func(*monitor, *sample) {}, lookAgain, time.Second, true},
		"some have left":          {300, func(m *monitor, _ *sample) { m.samples.left.Add(48); signal(m.samples.some) }, lookAgain, time.Second, true},
		"so many have left":       {300, func(m *monitor, _ *sample) { m.samples.left.Add(50); signal(m.samples.some) }, followNow, 0, true},
		"the limit changes (W11)": {2000, func(m *monitor, _ *sample) { signal(m.own.changed) }, lookAgain, 10 * time.Second, true},
		"the limit changes while the queue moves": {300, func(m *monitor, _ *sample) {
			signal(m.own.changed)
			go func() {
				for range 500 {
					time.Sleep(10 * time.Millisecond)
					signal(m.samples.some)
				}
			}()
		}, lookAgain, 300 * time.Millisecond, true},
		"a limit that admits it": {300, func(m *monitor, _ *sample) {
			m.Limit = limit.NewFixed(51)
			signal(m.own.changed)
		}, listAgain, 0, true},
		"the sample ends (W13)":   {300, func(m *monitor, s *sample) { s.closed.Store(true); signal(m.samples.some) }, listAgain, time.Second, true},
		"the sample is old (W13)": {300, func(_ *monitor, s *sample) { s.until = time.Now() }, listAgain, 0, true},
		"another is the first": {300, func(m *monitor, _ *sample) {
			m.waiters.link(&Waiter{Request: Request{Token: 50}})
			signal(m.waiters.recheck)
		}, listAgain, 0, false},
		"one has come that is near": {300, func(m *monitor, _ *sample) {
			m.waiters.link(&Waiter{Request: Request{Token: 200, Found: mirror.Found{Known: true, Ahead: 2}}})
			signal(m.waiters.recheck)
		}, listAgain, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, w := asleepIn(c.requests)
				w.placed = true
				s := &sample{until: time.Now().Add(time.Hour)}
				c.do(m, s)
				begun := time.Now()
				require.Equal(t, c.then, m.sleepBySample(t.Context(), w, 50, s))
				require.LessOrEqual(t, time.Since(begun), c.by)
				require.Equal(t, c.placed, w.placed)
				time.Sleep(10 * time.Second) // until nothing else happens
			})
		})
	}
}
