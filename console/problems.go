package console

import (
	"cmp"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/internal/doctor"
	"github.com/etcdkit/etcdkit/internal/fleet"
	"github.com/etcdkit/etcdkit/internal/record"
)

// problem is one thing that wants an operator.
type problem struct {
	mark
	Kind, Name, Href string
	Since            time.Time // or zero, if it is not known

	weight int
}

// pageOf returns the address of the page of a name.
func pageOf(page, name string) string { return page + "?" + url.Values{"name": {name}}.Encode() }

// refusedOf returns the address of the requests of a store that wait for an operator.
func refusedOf(store string) string { return pageOf("store", store) + "&only=refused" }

// unreadableOf returns the address of the records of a store that cannot be read.
func unreadableOf(store string) string {
	return pageOf("store", store) + "&state=" + strconv.Itoa(int(idempotency.Unreadable))
}

// problemsOf returns what wants an operator, the worst first.
func problemsOf(queues []queueRow, jobs []jobRow, stores []storeRow, sessions []sessionRow) (all []problem) {
	for _, r := range queues {
		if weight := r.trouble(); weight > 0 {
			p := problem{mark: r.Marks[0], Kind: "queue", Name: r.Name, Href: pageOf("queue", r.Name), weight: weight}
			switch {
			case r.Paused: // since when is not stored
			case r.Leaderless:
				p.Since = r.led
			case r.Unreadable:
			case r.Overdue > 0:
				p.Since = r.OldestHold
			case r.Foreign > 0:
			case r.Slow:
				p.Since = r.OldestWait
			case r.Held:
				p.Since = r.unbounded
			}
			all = append(all, p)
		}
	}
	for _, r := range jobs {
		p := problem{Kind: "job", Name: r.Name, Href: pageOf("job", r.Name)}
		switch {
		case !r.Overdue.IsZero():
			p.mark, p.Since, p.weight = r.Marks[0], r.Overdue, 3
		case r.State == noProcess:
			p.mark, p.weight = r.Marks[0], 3
		case r.Bad:
			p.mark, p.Since, p.weight = r.Marks[0], r.Tick, 2
		case r.lostOpen:
			p.mark, p.Since, p.weight = mark{"warn", count(r.Lost, "lost run", "lost runs")}, r.lostAt, 1
		case r.Paused:
			p.mark, p.weight = r.Marks[0], 2
		case r.Outlasts:
			p.mark, p.weight = mark{"warn", "past its next tick"}, 1
		case r.failedOpen:
			p.mark, p.Since, p.weight = mark{"warn", count(r.Failed, "failed run", "failed runs")}, r.failedAt, 1
		default:
			continue
		}
		all = append(all, p)
	}
	for _, r := range stores {
		if r.Refused > 0 {
			all = append(all, problem{mark{"bad", count(r.Refused, "request", "requests") + " of unknown outcome"}, "store", r.Name, refusedOf(r.Name), time.Time{}, 3})
		}
		if r.Unreadable > 0 {
			all = append(all, problem{mark{"bad", count(r.Unreadable, "unreadable record", "unreadable records")}, "store", r.Name, unreadableOf(r.Name), time.Time{}, 3})
		}
	}
	for _, r := range sessions {
		if r.Skew != "" {
			all = append(all, problem{mark{"warn", "clock " + r.Skew}, "process", cmp.Or(r.Owner, r.Name), pageOf("process", r.Name), time.Time{}, 2})
		}
	}
	return worstFirst(all)
}

func worstFirst(all []problem) []problem {
	slices.SortStableFunc(all, func(a, b problem) int {
		return cmp.Or(cmp.Compare(b.weight, a.weight), strings.Compare(a.Kind, b.Kind), strings.Compare(a.Name, b.Name))
	})
	return all
}

// problemsOfEtcd returns the alarms of etcd that the doctor has found. While one has failed, no write of the namespace succeeds.
func problemsOfEtcd(alarms findings) (all []problem) {
	for _, f := range alarms {
		p := problem{mark: mark{"warn", f.Text}, Kind: "cluster", Name: "etcd", Href: "doctor", weight: 1}
		if f.Level == doctor.Fail {
			p.Shape, p.weight = "bad", 4
		}
		all = append(all, p)
	}
	return all
}

// problemsOfKeys returns the keys outside of queues that are not etcdkit's, and counts them. The doctor names them.
func problemsOfKeys(s *fleet.State, n *totals) (all []problem) {
	add := func(kind, name string, keys int) {
		n.Strays += keys
		all = append(all, problem{mark{"warn", count(keys, "foreign key", "foreign keys")}, kind, name, "doctor", time.Time{}, 1})
	}
	keys, jobs := s.Foreign()
	if len(keys) > 0 {
		add("namespace", "outside of queues and jobs", len(keys))
	}
	for name, keys := range jobs {
		add("job", name, keys)
	}
	return all
}

// diedLately is for how long EtcdkitProcessDied fires.
const diedLately = 15 * time.Minute

// problemsOfDeaths returns the processes that died a short time ago, with what they had.
func problemsOfDeaths(s *fleet.State, now time.Time) (all []problem) {
	for _, d := range s.Died(now.UnixMilli(), asItIs) {
		if at := record.Time(d.At); now.Sub(at) < diedLately {
			is := "died with " + count(len(d.Had), "permit, run or request", "permits, runs and requests")
			all = append(all, problem{mark{"warn", is}, "process", cmp.Or(d.Owner, "–"), searchFor(d.Owner).href, at, 2})
		}
	}
	return all
}
