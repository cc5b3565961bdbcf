package console

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/etcdkit/etcdkit/internal/fleet"
	"github.com/etcdkit/etcdkit/internal/record"
)

// keyRow is a key of a limiter.
type keyRow struct {
	Name, Key  string
	Own        bool // its limit is not the default
	Limit      string
	Most       int64 // the same as a number, or 0
	Used       int64
	Waiting    int
	Weight     int64 // of those that wait
	OldestWait time.Time
	Heat       string // what is used and what waits, in percent of the limit; "" if there is no limit
	Level      int    // of the heat, from 0, nothing to see, to 4: more waits than the limit admits

	heat int64
}

// keyList is what is shown of the keys of a limiter.
type keyList struct {
	Known    bool   // etcd has something of the limiter
	Default  string // limit of a key, "" if none is stored that can be read
	Unread   string // why one that is stored cannot be read, or ""
	Set      changer
	HasTotal bool
	InUse    int // keys with a request
	Used     int64
	Waiting  int
	Rest     int // keys that are not among the hottest
	keys     []keyRow
}

// keyPage is the part of a limiter's page that shows its keys.
type keyPage struct {
	keyList
	Rows []keyRow
	pager
}

// Pager returns the place in the table.
func (p keyPage) Pager() pager { return p.pager }

// mostKeys bounds the keys of a limiter that its page lists. A search finds the others.
const mostKeys = 1000

// keysOf returns the keys of a limiter, the hottest first.
func keysOf(s subject, of *fleet.Limiter) (out keyList) {
	if of == nil {
		return out
	}
	sum := of.Sum(time.Now().UnixMilli())
	out = keyList{Known: true, HasTotal: sum.HasTotal, InUse: sum.InUse, Used: sum.Used, Waiting: sum.Waiting}
	out.Unread = textOf(of.Base.Unreadable())
	if of.Base.Rev != 0 && !of.Base.Damaged {
		out.Default = strconv.FormatInt(of.Base.Limit.Limit, 10)
		by, at := of.DefaultChange()
		out.Set = changer{by, record.Time(at)}
	}
	all := make([]keyRow, 0, len(of.Keys))
	for key, l := range of.Keys {
		row := keyRow{Name: subject{s.kind, s.name, key}.String(), Key: key, Own: l.Own(), Limit: limitOf(l.Now, "–"), Used: l.Now.Used, Waiting: l.Now.Waiting, Weight: l.Now.Weight, OldestWait: record.Time(l.Now.OldestWait)}
		if l.Now.Known {
			row.Most = l.Now.Limit
			row.warm()
		}
		all = append(all, row)
	}
	slices.SortFunc(all, func(a, b keyRow) int {
		return cmp.Or(cmp.Compare(b.heat, a.heat), cmp.Compare(b.Waiting, a.Waiting), cmp.Compare(b.Used, a.Used), cmp.Compare(a.Key, b.Key))
	})
	out.Rest = max(0, len(all)-mostKeys)
	out.keys = slices.Clone(all[:min(len(all), mostKeys)])
	return out
}

// warm sets the heat of a key that has a limit: how much of it is in use and asked for.
func (r *keyRow) warm() {
	wanted := r.Used + r.Weight
	switch {
	case r.Most > 0:
		r.heat = wanted * 100 / r.Most
		r.Heat = strconv.FormatInt(r.heat, 10) + " %"
	case wanted > 0:
		r.heat, r.Heat = math.MaxInt64, "paused"
	default:
		r.Heat = "paused"
	}
	switch {
	case r.heat > 200:
		r.Level = 4
	case r.heat > 100:
		r.Level = 3
	case r.heat == 100:
		r.Level = 2
	case r.heat >= 50:
		r.Level = 1
	}
}
