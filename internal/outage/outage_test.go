package outage

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// The life of an outage: latency does not begin it, the first request that waits in vain does; then one
// request a second asks, and one more if the session was answered; any answer ends it, and a request that
// waited until then does not begin it anew.
func TestDetector(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const wait = 5 * time.Second
		away := errors.New("away")
		var changes []any
		d := New(func(of any, err error, lasted time.Duration) { changes = append(changes, of, err, lasted) })
		turn := func(answered time.Time) Turn {
			got, err := d.Turn(time.Now(), answered)
			require.Equal(t, got == Refuse, err != nil)
			return got
		}
		sent := time.Now()
		require.Equal(t, Ask, turn(sent))
		time.Sleep(wait)
		d.Answered() // another request
		require.False(t, d.Unanswered(away, "a", sent, sent), "latency")
		require.False(t, d.On())

		time.Sleep(time.Minute)
		sent = time.Now()
		time.Sleep(wait)
		require.True(t, d.Unanswered(away, "b", sent, sent), "nobody was answered")
		require.True(t, d.Unanswered(away, "c", sent, sent))
		require.True(t, d.On())
		probes := 0
		for range 100 {
			if turn(time.Time{}) == Probe {
				probes++
			}
			time.Sleep(Every / 10)
		}
		require.Equal(t, 9, probes, "not in the first second, which has a request that has just asked")
		require.Equal(t, Probe, turn(time.Time{}))
		require.Equal(t, Refuse, turn(time.Now()))
		time.Sleep(time.Millisecond)
		require.Equal(t, Probe, turn(time.Now()))
		require.Equal(t, Refuse, turn(time.Now()))

		sent = time.Now()
		time.Sleep(wait)
		d.Answered()
		require.False(t, d.Unanswered(away, "d", sent, sent), "it has waited until etcd was back")
		require.Equal(t, Ask, turn(time.Time{}))
		require.Equal(t, []any{"b", away, time.Duration(0), "b", nil, 10*time.Second + time.Millisecond + wait}, changes)
	})
}

// An answer that came before an outage does not end it, and one between two others does not take the later one back (A697 in
// internal/proof/tested-failures.md).
func TestAnsweredAt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		away := errors.New("away")
		d := New[any](nil)
		before := time.Now()
		time.Sleep(time.Minute)
		d.AnsweredAt(time.Now())
		d.AnsweredAt(before)
		sent := time.Now()
		time.Sleep(time.Second)
		require.False(t, d.Unanswered(away, nil, before, sent.Add(-time.Second)), "etcd has answered since")
		require.True(t, d.Unanswered(away, nil, sent, sent))
		d.AnsweredAt(sent)
		require.True(t, d.On())
		time.Sleep(time.Second)
		d.AnsweredAt(time.Now())
		require.False(t, d.On())
	})
}

// A Detector without a function to call works as well.
func TestDetectorWithoutHook(t *testing.T) {
	t.Parallel()
	d := New[any](nil)
	require.True(t, d.Unanswered(errors.New("away"), nil, time.Now(), time.Now()))
	require.True(t, d.On())
	d.Answered()
	require.False(t, d.On())
}

// The end of an outage that is found while changed is called for its begin is announced after that, also if that panics (A300 in
// internal/proof/tested-failures.md).
func TestChangesAreInOrder(t *testing.T) {
	t.Parallel()
	for _, panics := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			begins := make(chan struct{})
			var announced []bool
			d := New(func(_ any, err error, _ time.Duration) {
				if err != nil {
					<-begins
				}
				announced = append(announced, err != nil)
				if panics && err != nil {
					panic("planned")
				}
			})
			found := make(chan any, 1)
			go func() {
				defer func() { found <- recover() }()
				d.Unanswered(errors.New("away"), "a", time.Now(), time.Now())
			}()
			synctest.Wait()
			d.Answered()
			require.False(t, d.On())
			close(begins)
			require.Equal(t, panics, <-found != nil)
			require.Equal(t, []bool{true, false}, announced)
		})
	}
}

// An outage is idle as well while requests come and none finds out whether it lasts: those that ask are refused for a reason
// that says nothing of etcd (A298), and the others do not ask.
func TestIdleThoughRequestsAsk(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := New[any](nil)
		waits := func() bool { return d.Unanswered(errors.New("away"), nil, time.Now(), time.Now()) }
		require.True(t, waits())
		ask := func(lasts bool) (idle bool) {
			for range 10 {
				time.Sleep(Every)
				turn, _ := d.Turn(time.Now(), time.Time{})
				require.Equal(t, Probe, turn)
				require.True(t, !lasts || waits())
				_, refused := d.Turn(time.Now(), time.Time{})
				require.Error(t, refused)
				require.True(t, d.Unanswered(refused, nil, time.Now(), time.Now()))
			}
			on, idle := d.Idle(time.Now())
			require.True(t, on)
			return idle
		}
		require.False(t, ask(true))
		require.True(t, ask(false))
	})
}
