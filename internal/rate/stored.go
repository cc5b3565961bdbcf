package rate

import (
	"math"
	"time"
)

// Slow reports whether a division is one share that gives less than a token each second. A process may not live for as
// long as that takes, so the tokens of a slow rate are stored, and go with the share from process to process.
func (d Division) Slow() bool { return d.Shares == 1 && d.PerSecond < 1 }

// StoredTokens is what etcd has of the tokens of a slow rate.
type StoredTokens struct {
	// Left is how many there were at least when they were stored.
	Left float64
	// Grace is for how long after that the process that stored them may take tokens that Left does not have. So Left is
	// that many after Grace has passed, and not before.
	Grace time.Duration
}

// After returns how many tokens there are at least, when at least that much time has passed.
func (d Division) After(s StoredTokens, passed time.Duration) float64 {
	return min(float64(d.Burst), s.Left+max(0, passed-s.Grace).Seconds()*d.PerSecond*pace)
}

// Again returns what is stored in place of s when at least that much time has passed, as time is measured anew from then on.
func (d Division) Again(s StoredTokens, passed time.Duration) StoredTokens {
	return StoredTokens{Left: d.After(s, passed), Grace: max(0, s.Grace-passed)}
}

// Outlasts reports whether the burst is not there yet after all of the time that is measured for s, as after the rate was
// lowered or the burst raised. Time after that does not count, so what is there is stored again.
func (d Division) Outlasts(s StoredTokens, measured time.Duration) bool {
	return measured < longestFill && d.After(s, measured) < float64(d.Burst)
}

// longestFill bounds the time that is measured: etcd grants no lease above nine billion seconds, and 32 bits are
// enough for every purpose.
const longestFill = (math.MaxInt32 - 1) * time.Second

// Fills returns how much time has to pass until After returns the burst, in whole seconds, or the most that can be measured.
func (d Division) Fills(s StoredTokens) time.Duration {
	fill := seconds(max(0, float64(d.Burst)-s.Left)/(d.PerSecond*pace)) + time.Second
	return min(fill+s.Grace, longestFill).Round(time.Second) + time.Second
}

// Earliest returns how long it takes at least until there are so many tokens more than the bucket has, even if all of the
// rate were this process's.
func (d Division) Earliest(more float64) time.Duration {
	return seconds(max(0, more) / d.PerSecond)
}
