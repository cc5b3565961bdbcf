package virtual

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest/etcdfake"
)

// tokenWrites are what happens to writes of the stored tokens whose answer is lost. Those without an error hang for as long as
// a call may take.
var tokenWrites = map[string]etcdfake.Fault{
	"the answer is lost":            {DropResponse: true, Err: etcdfake.ErrUnavailable},
	"the answer does not come":      {DropResponse: true},
	"the request is lost":           {DropRequest: true, Err: etcdfake.ErrUnavailable},
	"the request does not arrive":   {DropRequest: true},
	"the request arrives late":      {RequestDelay: 7 * time.Second},
	"the request is overtaken":      {RequestDelay: 5*time.Second + 700*time.Millisecond, DropResponse: true},
	"a copy of the request is late": {DropResponse: true, Duplicate: 6 * time.Second},
}

// loseTokenWrites has the next n writes of stored tokens meet a fault, and returns how many did.
func (d *desk) loseTokenWrites(n int, f etcdfake.Fault) (met *int) {
	met = new(int)
	d.client.Inject(func(m etcdfake.Message) etcdfake.Fault {
		if *met == n || !putsIn("/bucket/rate/left")(m) {
			return etcdfake.Fault{}
		}
		*met++
		return f
	})
	return met
}

// takesNow takes the tokens of a rate that are there within some seconds, and returns how many.
func (d *desk) takesNow(perSecond float64, burst int) (n int) {
	d.t.Helper()
	for ; n < 2*burst; n++ {
		if err := d.rate(perSecond, burst).Wait(within(d.t, 20*time.Second)); err != nil {
			require.ErrorIs(d.t, err, concurrency.ErrRateExceeded)
			break
		}
	}
	return n
}

// A610 in internal/proof/tested-failures.md: a process that stores the tokens of a slow rate and gets no answer does not take
// what it finds for the write of another process. All tokens are there, and none twice: for this process, and for the next
// one. No lease is left of a write that counts no more.
func TestSlowRateOfALostAnswer(t *testing.T) {
	t.Parallel()
	for name, fault := range tokenWrites {
		for _, lost := range []int{1, 2, 3} {
			for _, renews := range []bool{false, true} {
				bubble(t, 2, func(t *testing.T, on []*desk) {
					const perSecond, burst = 1e-4, 3
					d, left := on[0], burst
					if renews { // the process has noted that it takes tokens, and does so again
						require.NoError(t, d.rate(perSecond, burst).Wait(within(t, time.Minute)))
						left--
					}
					met := d.loseTokenWrites(lost, fault)
					time.Sleep(ttl)
					require.Equal(t, left, d.takesNow(perSecond, burst), "%s, %d times, %v", name, lost, renews)
					require.Equal(t, lost, *met)
					require.Zero(t, on[1].takesNow(perSecond, burst), name)
					time.Sleep(time.Second)
					leases, err := d.client.Leases(t.Context())
					require.NoError(t, err)
					require.Len(t, leases.Leases, len(on)+1, name)
				})
			}
		}
	}
}

// A610: a process whose session is closed, or which is called no more, while the answer to such a write is missing leaves its
// tokens to the next process.
func TestSlowRateReturnedInDoubt(t *testing.T) {
	t.Parallel()
	for name, fault := range tokenWrites {
		for _, how := range []string{"closes", "closes after a while", "is called no more"} {
			for _, renews := range []bool{false, true} {
				bubble(t, 2, func(t *testing.T, on []*desk) {
					const perSecond, burst = 1e-4, 3
					d, left := on[0], burst
					l := d.rate(perSecond, burst)
					if renews {
						require.NoError(t, l.Wait(within(t, time.Minute)))
						left--
						time.Sleep(ttl/2 - 100*time.Millisecond)
					}
					met := d.loseTokenWrites(1, fault)
					if !renews && l.Wait(within(t, 300*time.Millisecond)) == nil {
						left--
					}
					switch time.Sleep(time.Second); how {
					case "closes":
						d.close(5 * time.Second)
					case "closes after a while":
						time.Sleep(ttl / 2)
						d.close(5 * time.Second)
					}
					require.Equal(t, left, on[1].takesNow(perSecond, burst), "%s, %s, %v", name, how, renews)
					require.Equal(t, 1, *met, name)
				})
			}
		}
	}
}
