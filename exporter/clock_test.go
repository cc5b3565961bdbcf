package exporter_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// clock is a clock that a test sets ahead.
type clock struct{ ahead atomic.Int64 }

func newClock() *clock { return &clock{} }

func (c *clock) now() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }

func (c *clock) add(d time.Duration) { c.ahead.Add(int64(d)) }

// near asserts that an age is the expected one, up to the time that the test has taken.
func near(t testing.TB, want, got float64, why string) {
	t.Helper()
	require.InDelta(t, want+soon.Seconds()/2, got, soon.Seconds()/2+1, why)
}
