package lease

import (
	"runtime"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// booted is how long the machine of these tests was up at base.
const booted = time.Hour

// at returns what is shown by three clocks that have run for different times since
// base: a time.Time holds two of them, but only time.Now can set them apart.
func at(base time.Time, wall, monotonic, boot time.Duration) Moment {
	t := base.Add(wall)
	(*struct {
		wall uint64
		mono int64
		loc  *time.Location
	})(unsafe.Pointer(&t)).mono += int64(monotonic - wall)
	return Moment{t, booted + boot}
}

func TestAt(t *testing.T) {
	base := time.Now()
	x := at(base, time.Hour, time.Second, time.Minute)
	require.Equal(t, booted+time.Minute, x.Boot)
	require.Equal(t, time.Second, x.Sub(base), "the monotonic clock decides over Sub")
	require.Equal(t, time.Hour, x.Round(0).Sub(base.Round(0)))
}

// F01, F03, F04, T25: when a window ends, by which clock, and that it stays so.
func TestWindow(t *testing.T) {
	const s = time.Second
	type run struct{ wall, mono, boot time.Duration }
	same := func(d time.Duration) run { return run{d, d, d} }
	const none = -booted // a system without that clock
	type step struct {
		sent *run //  a renewal that was sent then is acknowledged now; nil: just look
		now  run
		open bool
	}
	sent := func(d time.Duration) *run { r := same(d); return &r }
	for name, steps := range map[string][]step{
		"open until just before the deadline":     {{nil, same(8*s - 1), true}, {nil, same(8 * s), false}},
		"a renewal counts from its sending":       {{sent(3 * s), same(7 * s), true}, {nil, same(11*s - 1), true}, {nil, same(11 * s), false}},
		"an older sending takes nothing back":     {{sent(3 * s), same(3 * s), true}, {sent(1 * s), same(4 * s), true}, {nil, same(11*s - 1), true}},
		"an answer at the deadline is late":       {{sent(7 * s), same(8 * s), false}, {nil, same(8 * s), false}},
		"ended by looking, for good":              {{nil, same(8 * s), false}, {sent(7 * s), same(8 * s), false}, {nil, same(9 * s), false}},
		"ended, even if time goes back":           {{nil, same(9 * s), false}, {nil, same(1 * s), false}, {sent(1 * s), same(1 * s), false}},
		"suspended: one clock stops":              {{nil, run{3600 * s, 1 * s, 3600 * s}, false}, {nil, same(1 * s), false}},
		"answer after a suspension":               {{sent(1 * s), run{3600 * s, 2 * s, 3600 * s}, false}},
		"wall clock set forward":                  {{nil, run{5 * s, 1 * s, 1 * s}, true}, {nil, run{8 * s, 1 * s, 1 * s}, false}},
		"wall clock set back":                     {{nil, run{-3600 * s, 7 * s, 7 * s}, true}, {nil, run{-3600 * s, 8 * s, 8 * s}, false}},
		"suspended, and the wall clock set back":  {{nil, run{1 * s, 1 * s, 8*s - 1}, true}, {nil, run{1 * s, 1 * s, 8 * s}, false}, {nil, same(1 * s), false}},
		"the same, and an answer":                 {{sent(1 * s), run{2 * s, 2 * s, 3600 * s}, false}},
		"the same, without a clock that shows it": {{nil, run{1 * s, 1 * s, none}, true}, {nil, run{1 * s, 8 * s, none}, false}},
		"suspended, without that clock":           {{nil, run{8 * s, 1 * s, none}, false}},
		"a machine that stopped as a whole":       {{nil, same(1 * s), true}, {sent(1 * s), same(2 * s), true}, {nil, same(9*s - 1), true}},
	} {
		t.Run(name, func(t *testing.T) {
			base := time.Now()
			w := window{ttl: 10 * s, margin: 2 * s, deadline: at(base, 8*s, 8*s, 8*s)}
			for i, step := range steps {
				now := at(base, step.now.wall, step.now.mono, step.now.boot)
				if step.sent != nil {
					require.Equal(t, step.open, w.renewed(at(base, step.sent.wall, step.sent.mono, step.sent.boot), now), "step %d", i)
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
	const s = time.Second
	base := time.Now()
	for name, after := range map[string]func(run, slept time.Duration) Moment{
		"the wall clock shows it": func(run, slept time.Duration) Moment { return at(base, run+slept, run, -booted) },
		"the time since boot":     func(run, slept time.Duration) Moment { return at(base, run, run, run+slept) },
	} {
		t.Run(name, func(t *testing.T) {
			w := window{ttl: 10 * s, margin: 2 * s, deadline: at(base, 8*s, 8*s, 8*s)}
			sent := at(base, s, s, s)
			require.True(t, w.renewed(sent, after(2*s, 4*s)), "suspended for 4 s")
			require.True(t, w.open(after(5*s-1, 4*s)))
			require.False(t, w.open(after(5*s, 4*s)), "9 s by the clock that runs on")
		})
	}
}

// The machine's own clocks: the time since boot runs as the monotonic clock does, and
// is not read where time is not the machine's.
func TestClocks(t *testing.T) {
	before := time.Now()
	a := Now()
	time.Sleep(10 * time.Millisecond)
	b := Now()
	if runtime.GOOS == "linux" {
		require.Positive(t, a.Boot)
		require.GreaterOrEqual(t, b.Boot-a.Boot, 10*time.Millisecond)
		require.LessOrEqual(t, b.Boot-a.Boot, time.Since(before))
		require.Equal(t, a.Boot+time.Second, a.add(time.Second).Boot)
	} else {
		require.Zero(t, b.Boot)
		require.Zero(t, b.add(time.Second).Boot, "it does not begin by adding")
	}
	require.Equal(t, time.Second, a.add(time.Second).Sub(a.Time))
	bubble(t, "in a bubble", func(t *testing.T) { require.Zero(t, Now().Boot) })
}

func BenchmarkClocks(b *testing.B) {
	b.Run("all", func(b *testing.B) {
		for b.Loop() {
			_ = Now()
		}
	})
	b.Run("time.Now", func(b *testing.B) {
		for b.Loop() {
			_ = time.Now()
		}
	})
}
