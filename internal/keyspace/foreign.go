package keyspace

import "strings"

// Foreign reports whether a key below the root of the space is none that the package builds. Keys in the range of a queue or
// a job are left to Queue.ParseSlot and Job.Owns. Those of Later are not foreign.
func Foreign(s Space, key string) bool {
	rest, ok := strings.CutPrefix(key, s.root)
	part, tail, below := strings.Cut(rest, "/")
	if !ok || !below || tail == "" {
		return true
	}
	if strings.HasPrefix(part, laterPart) {
		return false
	}
	switch part += "/"; part {
	case SessionPart:
		return !ofSession(s, key, tail)
	case "clock/":
		_, ok = parseHex16(tail)
	case "change/":
		ok = ofChange(tail)
	case "jobs-of/":
		lease, n, below := strings.Cut(tail, "/")
		_, ok = parseHex16(lease)
		ok = ok && below && n != ""
	case "idempotency/":
		return !ofStore(s, key)
	case limiters:
		return !ofLimiter(s, key)
	case tokens:
		return !ofTokens(s, key)
	case "job/":
		_, _, ok = s.ParseJob(key)
	case "sharing/", "request-id/":
		ok = strings.Contains(tail, "/")
	default:
		kind := Kind(strings.TrimSuffix(part, "/"))
		_, ok = s.ParseQueue(kind, key)
		ok = ok && (kind == Semaphore || kind == Mutex || kind == Election || kind == Rate)
	}
	return !ok
}

// laterPart begins the parts that are reserved for keys of later releases: docs/storage.md, values.
const laterPart = "x-"

// Later reports whether a key below the root of the space is in a part that is reserved for later releases: programs of such a
// release use it, and this one does not know it.
func Later(s Space, key string) bool {
	rest, ok := strings.CutPrefix(key, s.root+laterPart)
	_, tail, below := strings.Cut(rest, "/")
	return ok && below && tail != ""
}

func ofSession(s Space, key, tail string) bool {
	name, _, _ := strings.Cut(tail, "/")
	lease, ok := parseHex16(name)
	if !ok {
		return false
	}
	keys := s.Session(lease)
	_, _, notice := keys.ParseNotice(key)
	_, _, stop := keys.ParseStop(key)
	return key == keys.Alive() || notice || stop
}

func ofStore(s Space, key string) bool {
	name, ok := s.ParseStore(key)
	if !ok {
		return false
	}
	store := s.Store(name)
	_, entry := store.ParseEntry(key)
	return entry || strings.HasPrefix(key, store.Results())
}

func ofLimiter(s Space, key string) bool {
	name, ok := s.ParseLimiter(key)
	if !ok {
		return false
	}
	l := s.Limiter(name)
	_, ofKey := l.ParseKey(key)
	return ofKey || key == l.Default || strings.HasPrefix(key, l.Total().Range)
}
