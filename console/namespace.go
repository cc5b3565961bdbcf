package console

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/doctor"
	"github.com/etcdkit/etcdkit/internal/fleet"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/record"
)

// namespaceFindings judges what services keep in a namespace, without the console's own session.
func namespaceFindings(s *fleet.State, space keyspace.Space, own int64, now time.Time) []doctor.Finding {
	s.Settle(now.UnixMilli()) // a large queue that has changed has requests that no settling has seen: none of them is foreign
	foreign, ofJobs := s.Foreign()
	var keys doctor.ForeignKeys
	for _, key := range foreign {
		keys.Look(space, key)
	}
	return slices.Concat(
		doctor.Named("sessions", sessionFindings(s, own, now)), doctor.Named("clocks", doctor.Clocks(s.Clocks(own), now, "while this console has looked")), doctor.Named("keys", keys.Findings()),
		doctor.Named("queues", queueFindings(s)), doctor.Named("jobs", jobFindings(s, ofJobs, now)), doctor.Named("requests", storeFindings(s)),
	)
}

func sessionFindings(s *fleet.State, own int64, now time.Time) []doctor.Finding {
	n, oldest, by := 0, now, ""
	for lease, of := range s.Sessions {
		if lease == own {
			continue
		}
		n++
		if since := record.Time(of.Since); !since.IsZero() && since.Before(oldest) {
			oldest, by = since, of.Owner
		}
	}
	return doctor.Sessions(n, oldest, by, now)
}

func queueFindings(s *fleet.State) (found []doctor.Finding) {
	for _, name := range slices.Sorted(maps.Keys(s.Limiters)) {
		if l := s.Limiters[name]; l.Base.Rev != 0 && l.Base.Limit.Limit == 0 && !l.Base.Damaged {
			full := subject{kind: concurrency.KindLimiter, name: name}.String()
			found = append(found, doctor.DefaultPaused(full, quoted(full))...)
		}
	}
	type one struct {
		subject
		of *fleet.Queue
	}
	var all []one
	eachQueue(s, func(name subject, of *fleet.Queue) { all = append(all, one{name, of}) })
	slices.SortFunc(all, func(a, b one) int { return cmp.Compare(a.String(), b.String()) })
	for _, q := range all {
		word := quoted(q.String())
		if q.kind == concurrency.KindLimiter && q.key == "" {
			word += " --total"
		}
		if q.of.Now.Foreign > 0 {
			found = append(found, doctor.QueueForeign(q.String(), q.of.ForeignKeys())...)
		}
		inherits := q.key != "" && !q.of.Own() // the default is a finding of its own
		if q.of.Now.Known && q.of.Now.Limit == 0 && !inherits {
			found = append(found, doctor.QueuePaused(q.String(), word, q.of.Now.Waiting)...)
		}
	}
	return append(found, doctor.Queues(len(all))...)
}

func jobFindings(s *fleet.State, foreign map[string]int, now time.Time) (found []doctor.Finding) {
	n := 0
	for _, name := range slices.Sorted(maps.Keys(s.Jobs)) {
		j := s.Jobs[name]
		if foreign[name] > 0 {
			found = append(found, doctor.JobForeign(name, foreign[name])...)
		}
		if j.Forgotten() {
			continue
		}
		n++
		if j.Paused {
			found = append(found, doctor.JobPaused(name, j.Pause.By, j.Pause.Reason, record.Time(j.Pause.AtMS), now)...)
		}
		if since := overdueSince(j, now); !since.IsZero() {
			found = append(found, doctor.JobUnstarted(name, since)...)
		}
		found = append(found, doctor.JobLost(name, j.History(now).Lost, len(j.Runs))...)
	}
	return append(found, doctor.Jobs(n)...)
}

func storeFindings(s *fleet.State) (found []doctor.Finding) {
	for _, name := range slices.Sorted(maps.Keys(s.Stores)) {
		count, read := s.Stores[name].Count, 0
		for _, n := range count[1:] {
			read += n
		}
		found = append(found, doctor.Unknown(name, read, count[fleet.Unknown], count[fleet.Orphaned])...)
	}
	return append(found, doctor.Stores(len(s.Stores))...)
}

// quoted returns a name as a shell takes it for one word.
func quoted(name string) string {
	plain := func(r rune) bool {
		return r < 128 && (r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_-./:@%+,", r))
	}
	if !strings.ContainsFunc(name, func(r rune) bool { return !plain(r) }) {
		return name
	}
	return "'" + strings.ReplaceAll(name, "'", `'\''`) + "'"
}
