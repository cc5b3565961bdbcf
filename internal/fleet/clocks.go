package fleet

import (
	"cmp"
	"maps"
	"slices"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/etcdkit/etcdkit/internal/record"
)

// clocks are the latest good measurements of the clocks of the live sessions, by lease.
type clocks map[int64]measurement

// measurement compares a time that a process has written with the time at which its change arrived.
// The difference is the process's lead over this one, less the time that the change took. So of
// several measurements the greatest is the best.
type measurement struct {
	lead int64
	at   int64

	less, lessAt int64 // the greatest of those that were less after measuredFor, and when the first of them was; 0: none was

	heard int64 // when the process wrote last, whatever that has shown
}

// known reports whether the measurement says something of the clock, as of a time.
func (m measurement) known(now int64) bool { return now-m.heard <= knownFor }

// measuredFor is how long a measurement is preferred to later ones: a clock may be set meanwhile. After that a single one
// that is less may be of a change that took long, as during an election of etcd's leader: it counts if those within
// doubtedFor, and the first one after that, are less too.
const (
	measuredFor = 120_000
	doubtedFor  = 10_000
)

// knownFor is how long a measurement says something of a clock after its process wrote last: a clock that was wrong when its
// machine began may be right since. It does not begin with the measurement: of a process that writes seldom, one that shows less
// leaves that in force until the next one.
const knownFor = 900_000

// measure measures the clock of the process that has just put a key.
func (s *State) measure(kv *mvccpb.KeyValue, now int64) {
	// All of these values have their time under the same name.
	written, ok := record.DecodeClock(kv.Value)
	key := string(kv.Key)
	if !ok || written.AtMS <= 0 || !s.live(kv.Lease) {
		return
	}
	// Of other keys, such as a lock, the time may be that of a simulation.
	if key != s.space.Session(kv.Lease).Alive() && key != s.space.Clock(kv.Lease) && !s.space.Queued(key) {
		return
	}
	lead := written.AtMS - now
	best, ok := s.clocks[kv.Lease]
	switch {
	case !ok || lead >= best.lead:
		best = measurement{lead: lead, at: now}
	case best.lessAt == 0 && now-best.at > measuredFor:
		best.less, best.lessAt = lead, now
	case best.lessAt != 0:
		if best.less = max(best.less, lead); now-best.lessAt > doubtedFor {
			best = measurement{lead: best.less, at: now}
		}
	}
	best.heard = now
	s.clocks[kv.Lease] = best
}

// certain is by how much a time that may have been written long ago has to be ahead, in milliseconds, to show a clock that differs.
// If it is ahead by less, the clock may be ahead by any more: that is no measurement.
const certain = 2000

// ahead takes a time that may have been written long ago: if it is still to come, the clock is ahead by that at least.
func (s *State) ahead(lease, written, now int64) {
	if lead := written - now; lead >= certain && lead > s.clocks[lease].lead && s.live(lease) {
		s.clocks[lease] = measurement{lead: lead, at: now, heard: now}
	}
}

// changeBeat takes the time that a process writes once a minute; nil removes it.
func (s *State) changeBeat(key string, kv *mvccpb.KeyValue, now int64) {
	delete(s.beats, key)
	if kv == nil || key != s.space.Clock(kv.Lease) {
		return
	}
	if written, ok := record.DecodeClock(kv.Value); ok && written.AtMS > 0 {
		s.beats[key] = written.AtMS
		s.ahead(kv.Lease, written.AtMS, now)
	}
}

// Clock is what is known of the clock of a session's process.
type Clock struct {
	Lease    int64
	Owner    string
	Measured bool
	Lead     int64 // over that of this process, in milliseconds, if it was measured
	Beat     int64 // the time that it has written last, if it writes one each minute; or 0
}

// Clocks returns what is known of the clocks of the live sessions, but of one of them.
func (s *State) Clocks(without int64) (all []Clock) {
	for _, lease := range slices.Sorted(maps.Keys(s.Sessions)) {
		if lease != without {
			all = append(all, s.ClockOf(lease))
		}
	}
	return all
}

// ClockOf returns what is known of the clock of a session's process.
func (s *State) ClockOf(lease int64) Clock {
	m, ok := s.clocks[lease]
	return Clock{lease, s.Sessions[lease].Owner, ok && m.known(s.asOf), m.lead, s.beats[s.space.Clock(lease)]}
}

func (s *State) live(lease int64) bool {
	_, ok := s.Sessions[lease]
	return ok
}

// Lead returns by how much the clock of a session is ahead of this process's, if it was measured.
func (s *State) Lead(lease int64) (ms int64, ok bool) {
	m, ok := s.clocks[lease]
	return m.lead, ok
}

// Off is a process whose clock differs.
type Off struct {
	Owner string
	MS    int64
}

// Off returns the owners of up to most live sessions whose clocks differ by least or more, as of a time, the greatest difference
// first. name returns an owner as it is shown: sessions whose owners are shown alike are one.
func (s *State) Off(now, least int64, most int, name func(owner string) string) (all []Off) {
	of := map[string]int64{}
	for lease, m := range s.clocks {
		if ms := max(m.lead, -m.lead); ms >= least && m.known(now) {
			owner := name(s.Sessions[lease].Owner)
			of[owner] = max(of[owner], ms)
		}
	}
	for owner, ms := range of {
		all = append(all, Off{owner, ms})
	}
	slices.SortFunc(all, func(a, b Off) int { return cmp.Or(cmp.Compare(b.MS, a.MS), cmp.Compare(a.Owner, b.Owner)) })
	return all[:min(len(all), most)]
}

// Skew returns the greatest difference, as of a time, if a clock is known.
func (s *State) Skew(now int64) (most int64, ok bool) {
	for _, m := range s.clocks {
		if m.known(now) {
			most, ok = max(most, m.lead, -m.lead), true
		}
	}
	return most, ok
}
