package processes

import (
	"fmt"

	"github.com/etcdkit/etcdkit/internal/proof/history"
)

// Kills are what became of requests whose process was killed between their claim and
// their outcome.
type Kills struct {
	Attempts int // whose function had been called, and had not returned
	Returned int // whose function had returned, and whose call had not
	Next     int // of both: another attempt at the same request was begun
	Unknown  int // of the others: reported as unknown
}

// killsInRequests finds the attempts whose process was killed.
func killsInRequests(h *history.History) (k Kills) {
	killed := map[string]bool{}
	for _, n := range h.Nemeses() {
		killed[n.Begin.Client] = killed[n.Begin.Client] || n.Begin.Name == ClientKilled
	}
	ops := h.Ops()
	type attempt struct {
		gate  string
		token int64
	}
	returned, calls := map[attempt]bool{}, map[string]*history.Op{}
	for i, op := range ops {
		switch op.Call.Name {
		case history.Release:
			returned[attempt{op.Call.Gate, op.Call.Token}] = true
		case history.RequestDo:
			calls[history.Tag(op.Call.Client, op.Call.Op)] = &ops[i]
		}
	}
	for _, op := range ops {
		c := op.Call
		call := calls[c.Attr["call"]]
		if c.Name != history.RequestStart || !killed[c.Client] || call == nil || call.Return != nil {
			continue
		}
		if returned[attempt{c.Gate, c.Token}] {
			k.Returned++
		} else {
			k.Attempts++
		}
		next, unknown := false, false
		for _, o := range ops {
			if o.Call.Gate != c.Gate || o.Ended() < c.At {
				continue
			}
			next = next || o.Call.Name == history.RequestStart && o.Call.Token > c.Token && o.Call.N == c.N+1
			unknown = unknown || o.Return != nil && o.Return.Cause == history.UnknownFate
		}
		switch {
		case next:
			k.Next++
		case unknown:
			k.Unknown++
		}
	}
	return k
}

func (k Kills) String() string {
	return fmt.Sprintf("killed clients: %d attempts at requests in the middle of their function, %d between its return and that of their call; "+
		"%d were followed by another attempt, %d were reported as unknown", k.Attempts, k.Returned, k.Next, k.Unknown)
}
