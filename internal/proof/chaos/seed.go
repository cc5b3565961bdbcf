package chaos

import (
	"hash/fnv"
	"math/rand/v2"
)

// Seed decides what a run does: every choice is drawn from one of its streams. How
// the choices meet in time is not decided.
type Seed uint64

// Stream returns the random numbers for one part of the run. Parts of different
// names draw independently, so what one of them does changes nothing for another.
func (s Seed) Stream(part string) *rand.Rand {
	h := fnv.New64a()
	_, _ = h.Write([]byte(part))
	return rand.New(rand.NewPCG(uint64(s), h.Sum64()))
}
