package console

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/etcdkit/etcdkit/internal/fleet"
	"github.com/etcdkit/etcdkit/internal/record"
)

// shareRow is what one process has of a rate.
type shareRow struct {
	Owner, Process  string
	Shares, Waiting int
	Rate            string // of its shares
	Since           time.Time
}

// rateView is what is shown of a rate.
type rateView struct {
	Known  bool // etcd has something of it
	Rate   string
	Unread string // why a rate that is stored cannot be read, or ""
	Burst  int64
	Shares int64 // into how many it is divided
	Free   int64 // of them, those that no process has
	Set    changer
	procs  []shareRow
}

// ratePage is the part of a queue's page that shows a rate.
type ratePage struct {
	rateView
	Rows []shareRow
	pager
}

// Pager returns the place in the table.
func (p ratePage) Pager() pager { return p.pager }

// readRate reads the page of a rate. It has no actions: its holders are processes with shares, which they pass on by
// themselves.
func readRate(q request, s subject) (any, quality, error) {
	of, st, err := look(q, "rate/"+s.name, func(state *fleet.State) rateView { return rateOf(queueIn(s, state)) })
	if err != nil {
		return nil, st, err
	}
	p := queuePage{Name: s.String(), Rate: &ratePage{rateView: of}}
	p.Rate.Rows, p.Rate.pager = paged(q, of.procs, "page")
	return p, st, nil
}

// rateOf returns what is shown of a rate; nil is one that does not exist.
func rateOf(of *fleet.Queue) (v rateView) {
	if of == nil {
		return v
	}
	v.Known, v.Set, v.Unread = true, changerOf(of), textOf(of.Now.Unreadable)
	stored, shares := of.Rate()
	if v.Burst, v.Shares, v.Free = stored.Burst, shares, max(0, shares-of.Now.Used); stored.PerSecond > 0 {
		v.Rate = rateText(stored.PerSecond)
	}
	at := map[int64]int{}
	of.Each(func(r fleet.Request, holds bool) bool {
		i, known := at[r.Lease]
		if !known {
			i = len(v.procs)
			at[r.Lease] = i
			v.procs = append(v.procs, shareRow{Owner: r.Owner, Process: processName(r.Lease), Since: record.Time(r.Requested)})
		}
		if holds {
			v.procs[i].Shares++
		} else {
			v.procs[i].Waiting++
		}
		return true
	})
	for i, p := range v.procs {
		if shares > 0 && p.Shares > 0 {
			v.procs[i].Rate = rateText(stored.PerSecond * float64(p.Shares) / float64(shares))
		}
	}
	slices.SortStableFunc(v.procs, func(a, b shareRow) int {
		return cmp.Or(cmp.Compare(b.Shares, a.Shares), strings.Compare(a.Owner, b.Owner))
	})
	return v
}

// rateText returns a rate by the shortest interval in which it allows one call at least.
func rateText(perSecond float64) string { return rateBy(perSecond, 4) }

// rateBy is rateText with so many digits that count.
func rateBy(perSecond float64, digits int) string {
	n, per := perSecond, "second"
	for _, unit := range []struct {
		name string
		of   float64
	}{{"minute", 60}, {"hour", 60}, {"day", 24}} {
		if n >= 1 {
			break
		}
		n, per = n*unit.of, unit.name
	}
	if n >= 1000 {
		return strconv.FormatFloat(n, 'f', 0, 64) + " per " + per
	}
	n, _ = strconv.ParseFloat(strconv.FormatFloat(n, 'g', digits, 64), 64)
	return strconv.FormatFloat(n, 'f', -1, 64) + " per " + per
}
