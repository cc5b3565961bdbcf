package processes

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/etcdkit/etcdkit/internal/proof/check"
	"github.com/etcdkit/etcdkit/internal/proof/history"
)

// Losses are the sessions that have lost their lease.
type Losses struct {
	Sessions int // of which no process was killed
	// Unexplained names those that no fault explains.
	Unexplained []string
}

// losses finds the leases that have ended although their session was not closed and its process not killed. A fault
// explains it that struck within two TTLs before: the lease may have begun anew with a new leader meanwhile. What only
// the proxy has met explains nothing of the clients that are not behind it; proxied reports of a session whether it is.
func losses(h *history.History, ttl time.Duration, proxied func(client string) bool) (l Losses) {
	owner, gone := owners(h)
	ended := map[int64]bool{}
	for _, op := range h.Ops() {
		if op.Call.Name == history.Close && op.Call.At < gone[op.Call.Lease] {
			ended[op.Call.Lease] = true
		}
	}
	for lease, at := range gone {
		client := owner[lease]
		if client == "" || ended[lease] || struck(h, client, at, at, func(name string) bool { return name == ClientKilled }) {
			continue
		}
		l.Sessions++
		from := at - 2*int64(ttl)
		explains := func(name string) bool { return explains(name, proxied(client)) }
		if struck(h, client, from, at, explains) || stalled(h, client, from, at) || check.Slow(h, from, at) >= int64(margin) {
			continue
		}
		l.Unexplained = append(l.Unexplained, fmt.Sprintf("%s lost its session on lease %x, and no fault explains it", client, lease))
	}
	slices.Sort(l.Unexplained)
	return l
}

// owners returns by lease the client that has held a permit on it, and when the presence key was gone.
func owners(h *history.History) (owner map[int64]string, gone map[int64]int64) {
	leaseOf, owner, gone := map[int64]int64{}, map[int64]string{}, map[int64]int64{}
	for _, c := range h.Commits() {
		for _, e := range c.Events {
			switch lease, ok := presence(string(e.KV.Key)); {
			case e.Kind == history.KindPut && e.KV.Lease != 0:
				leaseOf[e.KV.Create] = e.KV.Lease
			case e.Kind == history.KindDelete && ok:
				gone[lease] = c.At
			}
		}
	}
	for _, e := range h.Events {
		if lease := leaseOf[e.Token]; lease != 0 && e.Kind == history.KindGranted {
			owner[lease] = e.Client
		}
	}
	return owner, gone
}

// struck reports whether a fault met a client, or all, at some time between two.
func struck(h *history.History, client string, from, to int64, is func(name string) bool) bool {
	return slices.ContainsFunc(h.Nemeses(), func(n history.Window) bool {
		met := n.Begin.Client == "" || n.Begin.Client == client
		return met && is(n.Begin.Name) && n.Begin.At <= to && n.End >= from
	})
}

// explains reports whether a fault can cost a session its lease.
func explains(fault string, proxied bool) bool {
	switch {
	case slices.Contains([]string{"kill-clients", "pause-client"}, fault):
		return false // the client that is met is named by another act
	case slices.Contains([]string{"compaction", "move-leader", "pause-server"}, fault):
		return false // an election takes less than the margin
	case strings.Contains(fault, "proxy"):
		return proxied
	}
	return true
}

func (l Losses) String() string {
	return fmt.Sprintf("lost sessions: %d of processes that lived on, %d of them unexplained", l.Sessions, len(l.Unexplained))
}
