package check

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/etcdkit/etcdkit/internal/proof/history"
)

// Rates is C8: rates of a fleet, by calls and returns alone.
//
//	exceeded  in some window of time, more calls for a token certainly succeeded than the rate allows:
//	          burst + rate × window
//
// A call may have succeeded at any time between its call and its return. If the rate was changed, the bound is the sum of
// all rates that were asked for, and of all bursts, as it is documented for windows that begin before a change. Where
// a nemesis removed a lease or touched a key by hand, or made etcd end leases early, and until a TTL and a second later, nothing
// is counted: the time before and the time after are judged apart.
type Rates struct{}

// Name implements Checker.
func (Rates) Name() string { return "rates" }

// check implements Checker.
func (Rates) check(v *view) (f []Finding) {
	excepted := exceptedFromRates(v.h)
	limits := map[string]map[[2]string]bool{} // by gate: rates and bursts
	taken := map[string]map[int][]Span{}      // by gate, and by how many exceptions came before
	for _, op := range v.ops {
		if op.Call.Name != history.RateTake && op.Call.Name != history.RateSet {
			continue
		}
		gate := op.Call.Gate
		if limits[gate] == nil {
			limits[gate], taken[gate] = map[[2]string]bool{}, map[int][]Span{}
		}
		limits[gate][[2]string{op.Call.Attr["persecond"], op.Call.Attr["burst"]}] = true
		if part, ok := partOf(excepted, op.Call.At, op.Ended()); ok && op.Call.Name == history.RateTake && op.Outcome() == history.OK {
			taken[gate][part] = append(taken[gate][part], Span{time.Unix(0, op.Call.At), time.Unix(0, op.Ended())})
		}
	}
	for _, gate := range slices.Sorted(maps.Keys(taken)) {
		perSecond, burst := 0.0, 0
		for limit := range limits[gate] {
			rate, _ := strconv.ParseFloat(limit[0], 64)
			perSecond, burst = perSecond+rate, burst+int(number(limit[1]))
		}
		for _, part := range slices.Sorted(maps.Keys(taken[gate])) {
			spans := taken[gate][part]
			if err := Rate(spans, perSecond, burst); err != nil {
				f = append(f, bad("exceeded", gate, spans[0].From.UnixNano(), "%v", err))
			}
		}
	}
	return f
}

// exceptedFromRates returns the times in which the promise of a rate does not hold, in order and apart from each other.
func exceptedFromRates(h *history.History) (times [][2]int64) {
	hastens, after := early(h), ttl(h)+int64(time.Second)
	for _, n := range h.Nemeses() {
		if n.Begin.Lease != 0 || n.Begin.Attr["key"] != "" || hastens[n.Begin.Name] {
			times = append(times, [2]int64{n.Begin.At, addTime(n.End, after)})
		}
	}
	slices.SortFunc(times, func(a, b [2]int64) int { return cmp.Compare(a[0], b[0]) })
	apart := times[:0]
	for _, t := range times {
		if last := len(apart) - 1; last >= 0 && t[0] <= apart[last][1] {
			apart[last][1] = max(apart[last][1], t[1])
			continue
		}
		apart = append(apart, t)
	}
	return apart
}

// partOf returns how many of some times had passed before something began. ok is false if it was in one of them for a while.
func partOf(times [][2]int64, from, to int64) (n int, ok bool) {
	for n < len(times) && times[n][1] < from {
		n++
	}
	return n, n == len(times) || to < times[n][0]
}
