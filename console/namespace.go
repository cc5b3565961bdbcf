package console

import (
	"maps"
	"slices"
	"strings"
	"time"

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
	for _, key := range append(s.Later(), foreign...) {
		keys.Look(space, key)
	}
	return slices.Concat(
		doctor.Named("sessions", sessionFindings(s, own, now)), doctor.Named("clocks", doctor.Clocks(s.Clocks(own), now, "while this console has looked")), doctor.Named("keys", keys.Findings()),
		doctor.Named("queues", doctor.QueuesOf(s, quoted, now)), doctor.Named("jobs", jobFindings(s, ofJobs, now)), doctor.Named("requests", storeFindings(s)),
	)
}

func sessionFindings(s *fleet.State, own int64, now time.Time) []doctor.Finding {
	var live doctor.Sessions
	for lease, of := range s.Sessions {
		if lease != own {
			live.Add(of.Owner, record.Time(of.Since), of.Versions.Etcdkit)
		}
	}
	return live.Findings(now)
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
		if isGone(j) {
			found = append(found, doctor.JobGone(name)...)
		}
		if since := overdueSince(j, now); !since.IsZero() {
			found = append(found, doctor.JobUnstarted(name, since)...)
		}
		if next := outlasts(j, now); !next.IsZero() {
			found = append(found, doctor.JobOutlasts(name, next)...)
		}
		found = append(found, doctor.JobRuns(name, judgedRuns(j, j.History(now), runsOf(j)), now)...)
	}
	return append(found, doctor.Jobs(n)...)
}

// readableRuns counts the records of a job that can be read, of which the command's doctor has a list.
func readableRuns(j *fleet.Job) (n int) {
	for _, r := range j.Runs {
		if r.State != "" && r.State != fleet.Later {
			n++
		}
	}
	return n
}

func storeFindings(s *fleet.State) (found []doctor.Finding) {
	for _, name := range slices.Sorted(maps.Keys(s.Stores)) {
		count, read := s.Stores[name].Count, 0
		for _, n := range count[1:] {
			read += n
		}
		found = append(found, doctor.Unknown(name, read, count[fleet.Unknown], count[fleet.Orphaned])...)
		found = append(found, doctor.Unreadable(name, count[fleet.Unreadable])...)
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
