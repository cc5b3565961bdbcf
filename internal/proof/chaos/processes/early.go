package processes

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/etcdkit/etcdkit/internal/proof/check"
	"github.com/etcdkit/etcdkit/internal/proof/history"
)

// Early is a lease that etcd ended although its session had renewed it and
// was not closed: before the time at which its renewal was sent plus its TTL.
type Early struct {
	Lease   int64
	At      int64         // when it was gone
	By      time.Duration // before that time, at least
	Permits int           // that were held on it
	// Blind is how long after the lease had gone a holder still took its permit
	// for held. Holders that were stopped themselves are left out.
	Blind time.Duration
	// Refused are the effects tried with those permits that guard or register
	// refused.
	Refused int
}

// slack is by how much the tap, and times of two processes, may be off.
const slack = 10 * time.Millisecond

// earlyEnds finds the leases that ended early. Each process has a monitor, which holds
// a mutex all the time; the deadline of its permit is recorded, and with it when the last
// renewal was sent.
func earlyEnds(h *history.History) []Early {
	leaseOf, goneAt := map[int64]int64{}, map[int64]int64{}
	for _, c := range h.Commits() {
		for _, e := range c.Events {
			switch lease, ok := presence(string(e.KV.Key)); {
			case e.Kind == history.KindPut && e.KV.Lease != 0:
				leaseOf[e.KV.Create] = e.KV.Lease
			case e.Kind == history.KindDelete && ok:
				goneAt[lease] = c.At
			}
		}
	}
	trusted := map[int64]int64{} // by lease: the last deadline that its holders knew
	for _, e := range h.Events {
		if lease := leaseOf[e.Token]; lease != 0 && (e.Kind == history.KindHeld || e.Kind == history.KindEnded) {
			trusted[lease] = max(trusted[lease], e.Until)
		}
	}
	closed := map[int64]bool{}
	for _, op := range h.Ops() {
		if op.Call.Name == history.Close && op.Call.At < goneAt[op.Call.Lease] {
			closed[op.Call.Lease] = true
		}
	}
	found := map[int64]*Early{}
	for lease, at := range goneAt {
		if by := trusted[lease] + int64(margin) - at; trusted[lease] > 0 && by > int64(slack) && !closed[lease] {
			found[lease] = &Early{Lease: lease, At: at, By: time.Duration(by)}
		}
	}
	for _, s := range h.Beliefs() {
		lease := leaseOf[s.Granted.Token]
		e := found[lease]
		if e == nil || s.From > goneAt[lease] || s.Ended != nil && s.Ended.At < goneAt[lease] {
			continue
		}
		e.Permits++
		if !stalled(h, s.Granted.Client, goneAt[lease], s.To) {
			e.Blind = max(e.Blind, time.Duration(s.To-goneAt[lease]))
		}
	}
	for _, ev := range h.Events {
		if e := found[leaseOf[ev.Token]]; e != nil && ev.Kind == history.KindEffect && ev.Outcome == history.Fail {
			e.Refused++
		}
	}
	var all []Early
	for _, e := range found {
		all = append(all, *e)
	}
	slices.SortFunc(all, func(a, b Early) int { return cmp.Compare(a.Lease, b.Lease) })
	return all
}

var presenceName = regexp.MustCompile(`/session/([0-9a-f]{16})/alive$`)

// presence returns the lease of a presence key.
func presence(key string) (lease int64, ok bool) {
	m := presenceName.FindStringSubmatch(key)
	if m == nil {
		return 0, false
	}
	lease, err := strconv.ParseInt(m[1], 16, 64)
	return lease, err == nil
}

// stalled reports whether a client was stopped, or too busy to look, at some time
// between two.
func stalled(h *history.History, client string, from, to int64) bool {
	for _, n := range h.Nemeses() {
		if n.Begin.Client == client && n.Begin.At <= to && n.End >= from {
			return true
		}
	}
	for _, e := range h.Events {
		if e.Kind == history.KindCount && e.Name == check.CountStall && e.Client == client && e.At >= from && e.At-e.N <= to {
			return true
		}
	}
	return false
}

// stopped reports whether a leader was stopped at some time between two.
func stopped(h *history.History, from, to int64) bool {
	for _, n := range h.Nemeses() {
		if n.Begin.Name == LeaderStopped && n.Begin.At <= to && n.End >= from {
			return true
		}
	}
	return false
}

// tellEarly puts them into words.
func tellEarly(all []Early, stops int64) string {
	s := fmt.Sprintf("stopped leader: %d times stopped beyond the TTL and continued; ", stops)
	if len(all) == 0 {
		return s + "no lease ended early"
	}
	var sum Early
	for _, e := range all {
		sum.By, sum.Blind = max(sum.By, e.By), max(sum.Blind, e.Blind)
		sum.Permits, sum.Refused = sum.Permits+e.Permits, sum.Refused+e.Refused
	}
	return s + fmt.Sprintf("%d live leases ended early, by up to %.1f s, with %d permits; holders learned of it within %s; %d effects came too late and were refused",
		len(all), sum.By.Seconds(), sum.Permits, sum.Blind.Round(100*time.Microsecond), sum.Refused)
}
