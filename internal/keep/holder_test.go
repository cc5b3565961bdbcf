package keep

import (
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// Of a call that asks for the token and a release that has the key stay, at the same moment, exactly one comes first: a permit
// that has shown its key does not stay, and one that has stayed does not show it (W18).
func TestTrapW18FenceBesideASeal(t *testing.T) {
	t.Parallel()
	const rounds = 50_000
	var at [2]atomic.Int64 // the round that each of the two is in
	meet := func(me, round int) {
		for at[me].Store(int64(round)); at[1-me].Load() < int64(round); {
			runtime.Gosched()
		}
	}
	holders := make([]Holder, rounds)
	for i := range holders {
		holders[i].key = &Key{}
	}
	sealed := make([]bool, rounds)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range holders {
			meet(1, i+1)
			sealed[i] = holders[i].seal()
		}
	}()
	shown := make([]bool, rounds)
	for i := range holders {
		meet(0, i+1)
		shown[i] = holders[i].Fence()
	}
	<-done
	for i := range holders {
		require.NotEqual(t, sealed[i], shown[i], "round %d", i)
	}
}
