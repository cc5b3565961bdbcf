package lease

import (
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// at returns a reading of two clocks that have run for different times since
// base: a time.Time holds both, but only time.Now can set them apart.
func at(base time.Time, wall, monotonic time.Duration) time.Time {
	t := base.Add(wall)
	(*struct {
		wall uint64
		mono int64
		loc  *time.Location
	})(unsafe.Pointer(&t)).mono += int64(monotonic - wall)
	return t
}

func TestAt(t *testing.T) {
	base := time.Now()
	x := at(base, time.Hour, time.Second)
	require.Equal(t, time.Second, x.Sub(base), "the monotonic clock decides over Sub")
	require.Equal(t, time.Hour, x.Round(0).Sub(base.Round(0)))
}

// F01, F03, F04, T25: when a window ends, by which clock, and that it stays so.
func TestWindow(t *testing.T) {
	const s = time.Second
	type reading struct{ wall, mono time.Duration }
	same := func(d time.Duration) reading { return reading{d, d} }
	type step struct {
		sent *reading // a renewal that was sent then is acknowledged now; nil: just look
		now  reading
		open bool
	}
	sent := func(d time.Duration) *reading { r := same(d); return &r }
	for name, steps := range map[string][]step{
		"open until just before the deadline": {{nil, same(8*s - 1), true}, {nil, same(8 * s), false}},
		"a renewal counts from its sending":   {{sent(3 * s), same(7 * s), true}, {nil, same(11*s - 1), true}, {nil, same(11 * s), false}},
		"an older sending takes nothing back": {{sent(3 * s), same(3 * s), true}, {sent(1 * s), same(4 * s), true}, {nil, same(11*s - 1), true}},
		"an answer at the deadline is late":   {{sent(7 * s), same(8 * s), false}, {nil, same(8 * s), false}},
		"ended by looking, for good":          {{nil, same(8 * s), false}, {sent(7 * s), same(8 * s), false}, {nil, same(9 * s), false}},
		"ended, even if time goes back":       {{nil, same(9 * s), false}, {nil, same(1 * s), false}, {sent(1 * s), same(1 * s), false}},
		"suspended: only the wall clock runs": {{nil, reading{3600 * s, 1 * s}, false}, {nil, same(1 * s), false}},
		"answer after a suspension":           {{sent(1 * s), reading{3600 * s, 2 * s}, false}},
		"wall clock set forward":              {{nil, reading{5 * s, 1 * s}, true}, {nil, reading{8 * s, 1 * s}, false}},
		"wall clock set back":                 {{nil, reading{-3600 * s, 7 * s}, true}, {nil, reading{-3600 * s, 8 * s}, false}},
	} {
		t.Run(name, func(t *testing.T) {
			base := time.Now()
			w := window{ttl: 10 * s, margin: 2 * s, deadline: base.Add(8 * s)}
			for i, step := range steps {
				now := at(base, step.now.wall, step.now.mono)
				if step.sent != nil {
					require.Equal(t, step.open, w.renewed(at(base, step.sent.wall, step.sent.mono), now), "step %d", i)
				} else {
					require.Equal(t, step.open, w.open(now), "step %d", i)
				}
			}
		})
	}
}

// F03: a renewal that was sent before a suspension and answered after it does not
// carry the time of the suspension over into the deadline.
func TestWindowSentBeforeSuspension(t *testing.T) {
	base := time.Now()
	w := window{ttl: 10 * time.Second, margin: 2 * time.Second, deadline: base.Add(8 * time.Second)}
	sent := at(base, time.Second, time.Second)
	require.True(t, w.renewed(sent, at(base, 6*time.Second, 2*time.Second)), "suspended for 4 s")
	require.True(t, w.open(at(base, 9*time.Second-1, 5*time.Second)))
	require.False(t, w.open(at(base, 9*time.Second, 5*time.Second)), "9 s by the clock that runs on")
}
