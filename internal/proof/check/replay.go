package check

import (
	"encoding/json"
	"math"
	"slices"
	"time"

	"github.com/etcdkit/etcdkit/internal/proof/history"
	"github.com/etcdkit/etcdkit/internal/record"
)

const never = int64(math.MaxInt64)

// store is what the tap saw, replayed revision by revision.
type store struct {
	layout  layout
	prefix  string
	tapped  bool  // there was a tap at all
	through int64 // the tap is known to be complete up to this revision
	commits []history.Commit
	gates   map[string]*gate
	bases   map[string]*stored // the default limits, by limiter
	leases  map[int64]*lease
	others  []put // puts of keys of other kinds: registers
	jobs    map[string]*job
	entries map[string]*idem // idempotency keys
	skew    time.Duration    // by how much clocks of jobs may differ
	live    map[string]*liveKey
	history []*liveKey            // every life of every key, in the order of creation
	lives   map[string][]*liveKey // the same of jobs' keys, by name
}

// liveKey is one life of a key, from its creation to its deletion.
type liveKey struct {
	name          string
	parsed        parsedKey
	created, gone int64 // revisions
}

// lease is one session's lease, as far as its presence key shows.
type lease struct {
	id     int64
	gone   int64 // revision, or never
	goneAt int64
	holder string
	loose  bool // its presence key was put again, and not on it
}

type put struct {
	key, value string
	rev, at    int64
}

// replay runs the tap's events through the rule of admission.
func replay(h *history.History) *store {
	s := &store{layout: layoutNamed(h.Setting(SettingLayout)), gates: map[string]*gate{}, bases: map[string]*stored{}, leases: map[int64]*lease{}, jobs: map[string]*job{}, entries: map[string]*idem{}, skew: time.Duration(duration(h, SettingSkew, time.Minute)), live: map[string]*liveKey{}, lives: map[string][]*liveKey{}}
	for _, m := range h.Marks(history.MarkTap) {
		s.prefix, s.tapped = m.Attr["prefix"], true
		s.through = max(s.through, m.Rev)
	}
	for _, m := range h.Marks(history.MarkTapComplete) {
		s.through = max(s.through, m.Rev)
	}
	s.commits = h.Commits()
	for _, c := range s.commits {
		s.commit(c)
	}
	return s
}

func (s *store) gate(name string) *gate {
	g := s.gates[name]
	if g == nil {
		g = &gate{name: name, fixed: s.layout.fixed(name), disowned: map[string]*request{}}
		s.gates[name] = g
		if limiter := s.layout.limiter(name); limiter != "" {
			g.inherits(s.base(limiter))
		}
	}
	return g
}

// base returns the default limit of a limiter.
func (s *store) base(limiter string) *stored {
	b := s.bases[limiter]
	if b == nil {
		b = &stored{}
		s.bases[limiter] = b
	}
	return b
}

func (s *store) names() []string {
	var names []string
	for name := range s.gates {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// commit applies one revision. All its changes are made before anything is
// admitted.
func (s *store) commit(c history.Commit) {
	notices := map[string]record.Notice{}
	touched := map[string]*gate{}
	keys := make([]parsedKey, len(c.Events))
	for i, e := range c.Events {
		keys[i] = s.layout.parse(s.short(e))
		switch k := keys[i]; {
		case k.kind == keyAlive && e.Kind == history.KindDelete:
			if l := s.leases[k.lease]; l != nil {
				l.gone, l.goneAt = c.Rev, c.At
			}
		case k.kind == keyNotice && e.Kind == history.KindPut:
			notices[s.prefix+k.request], _ = record.DecodeNotice([]byte(e.KV.Value))
		}
	}
	for i, e := range c.Events {
		k := keys[i]
		s.note(s.short(e), k, e)
		switch k.kind {
		case keyAlive:
			if e.Kind == history.KindPut && s.leases[k.lease] == nil {
				var r record.Session
				_ = json.Unmarshal([]byte(e.KV.Value), &r) // an unreadable one has no holder
				s.leases[k.lease] = &lease{id: k.lease, gone: never, goneAt: never, holder: r.Owner}
			}
			if l := s.leases[k.lease]; l != nil && e.Kind == history.KindPut {
				l.loose = e.KV.Lease != l.id
			}
		case keyLimit:
			g := s.gate(k.gate)
			touched[k.gate] = g
			g.setLimit(e, c)
		case keyDefault:
			b := s.base(k.gate)
			*b = readStored(e, c, k.gate)
			for _, g := range s.gates {
				if g.base == b {
					touched[g.name] = g
					g.setBase()
				}
			}
		case keyRequest:
			g := s.gate(k.gate)
			if g.fixed > 0 && k.weight > g.fixed {
				continue // no caller can ask for that: a foreign key
			}
			touched[k.gate] = g
			if e.Kind == history.KindPut {
				g.write(e, k, c)
			} else {
				g.remove(e, c, s.leases, notices)
			}
		case keyStop:
			if e.Kind == history.KindPut {
				s.stop(k)
			}
		case keyOther:
			if e.Kind == history.KindPut {
				s.others = append(s.others, put{key: string(e.KV.Key), value: string(e.KV.Value), rev: c.Rev, at: c.At})
			}
		}
	}
	for _, g := range touched {
		g.admit(c)
	}
	s.pair(c)
	s.runJobs(c, keys)
	s.runRequests(c, keys)
}

// stop notes that a request was asked to end.
func (s *store) stop(k parsedKey) {
	for _, g := range s.gates {
		for _, r := range g.queue {
			if r.token == k.token && r.key == s.prefix+k.request {
				r.asked = true
			}
		}
	}
}

// note keeps the lives of all keys.
func (s *store) note(name string, k parsedKey, e history.Event) {
	l := s.live[name]
	if e.Kind == history.KindDelete {
		if l != nil {
			l.gone = e.Rev
			delete(s.live, name)
		}
		return
	}
	if l == nil {
		l = &liveKey{name: name, parsed: k, created: e.KV.Create, gone: never}
		s.live[name] = l
		s.history = append(s.history, l)
		if isJob(k.gate) {
			s.lives[name] = append(s.lives[name], l)
		}
	}
}

// keysAt returns the keys that exist at a revision, by name.
func (s *store) keysAt(rev int64) (keys []*liveKey) {
	for _, l := range s.history {
		if l.created <= rev && l.gone > rev {
			keys = append(keys, l)
		}
	}
	return keys
}
