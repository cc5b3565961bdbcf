package processes

import (
	"fmt"
	"time"

	"github.com/etcdkit/etcdkit/internal/proof/history"
)

// Pauses are what became of sessions whose process was stopped for longer than their
// TTL.
type Pauses struct {
	Sessions int // that were stopped for so long
	Permits  int // that they held when they stopped, and were reported as lost when they continued
	// Used names permits that were reported as held when they continued: each is a
	// broken promise.
	Used []string
}

// longPauses finds what pauses longer than the TTL cost. A permit held at the
// beginning of one has certainly ended when it is over: its last renewal was sent
// before.
func longPauses(h *history.History, ttl time.Duration) (p Pauses) {
	beliefs := map[string][]history.Span{}
	for _, s := range h.Beliefs() {
		beliefs[s.Granted.Client] = append(beliefs[s.Granted.Client], s)
	}
	killed := map[string]int64{}
	for _, n := range h.Nemeses() {
		if n.Begin.Name == ClientKilled {
			killed[n.Begin.Client] = n.Begin.At
		}
	}
	for _, n := range h.Nemeses() {
		// It was still stopped then: it continues just before End is recorded.
		still := n.Begin.At + int64(ttl)
		if at := killed[n.Begin.Client]; n.Begin.Name != ClientPaused || n.End < still || at != 0 && at < n.End {
			continue
		}
		p.Sessions++
		for _, s := range beliefs[n.Begin.Client] {
			switch {
			case s.From > n.Begin.At || s.Ended != nil && s.Ended.At < still:
			case s.To > still:
				p.Used = append(p.Used, fmt.Sprintf("%s was stopped for %v, and took token %d of %s for held when it continued",
					n.Begin.Client, time.Duration(n.End-n.Begin.At), s.Granted.Token, s.Granted.Gate))
			case s.Ended != nil && (s.Ended.Cause == history.Lost || s.Ended.Cause == history.Deadline):
				p.Permits++
			}
		}
	}
	return p
}

func (p Pauses) String() string {
	return fmt.Sprintf("paused clients: %d sessions were stopped for longer than the TTL; %d permits of theirs were reported as lost when they continued, %d as held",
		p.Sessions, p.Permits, len(p.Used))
}
