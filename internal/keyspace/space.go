package keyspace

import (
	"fmt"
	"strings"
)

// DefaultPrefix is the prefix of every key when the user names none.
const DefaultPrefix = "/etcdkit"

// format is part of every key. A change of layout that older clients cannot read needs a new one.
const format = "/v1/"

// Space is the part of etcd that belongs to one namespace.
type Space struct {
	root string // ends in '/'
}

// New returns the space of a namespace below prefix. Services that share a prefix and a namespace
// share their semaphores.
func New(prefix, namespace string) (Space, error) {
	all, err := Namespaces(prefix)
	if err != nil {
		return Space{}, err
	}
	if err := CheckName(namespace); err != nil {
		return Space{}, fmt.Errorf("the namespace %w", err)
	}
	return Space{root: all + escape(namespace) + "/"}, nil
}

// Namespaces returns the prefix of all namespaces below prefix.
func Namespaces(prefix string) (string, error) {
	trimmed := strings.TrimRight(prefix, "/")
	if trimmed == "" {
		return "", fmt.Errorf("the Prefix %q is empty", prefix)
	}
	for part := range strings.SplitSeq(strings.TrimPrefix(trimmed, "/"), "/") {
		if err := CheckName(part); err != nil {
			return "", fmt.Errorf("the Prefix %q: a part %w", prefix, err)
		}
	}
	return trimmed + format, nil
}

// ParseNamespace returns the namespace to which a key below prefix belongs.
func ParseNamespace(prefix, key string) (name string, space Space, ok bool) {
	all, err := Namespaces(prefix)
	if err != nil {
		return "", Space{}, false
	}
	name, _, ok = split(key, all)
	if !ok || CheckName(name) != nil {
		return "", Space{}, false
	}
	return name, Space{root: all + escape(name) + "/"}, true
}

// Parts returns the prefix, without slashes at its end, and the namespace of the space.
func (s Space) Parts() (prefix, namespace string) {
	i := strings.LastIndexByte(strings.TrimSuffix(s.root, "/"), '/') + 1
	namespace, _ = unescape(strings.TrimSuffix(s.root[i:], "/"))
	return strings.TrimSuffix(s.root[:i], format), namespace
}

// Root is the prefix of all keys of the space, '/' included: the one range that a role in etcd
// must be granted.
func (s Space) Root() string { return s.root }

// Queued reports whether a key is, or could be, that of a request or of its ID.
func (s Space) Queued(key string) bool {
	rest, ok := strings.CutPrefix(key, s.root)
	if !ok {
		return false
	}
	for _, part := range [...]string{string(Semaphore) + "/", string(Mutex) + "/", string(Election) + "/", string(Rate) + "/", limiters, "request-id/"} {
		if strings.HasPrefix(rest, part) {
			return true
		}
	}
	return false
}

// Sessions is the range of the keys of all sessions.
func (s Space) Sessions() string { return s.root + "session/" }

// Changes is the range of the keys that say what operators have changed.
func (s Space) Changes() string { return s.root + "change/" }

// Change is the key of a change at a time in milliseconds. nonce distinguishes those of one moment.
func (s Space) Change(ms int64, nonce string) string { return s.Changes() + hex16(ms) + "-" + nonce }

// ofChange reports whether a key is that of a change.
func ofChange(tail string) bool {
	at, nonce, ok := strings.Cut(tail, "-")
	_, hex := parseHex16(at)
	return ok && hex && nonce != "" && !strings.Contains(nonce, "/")
}

// Session returns the keys of the session on a lease.
func (s Space) Session(lease int64) Session {
	return Session{Range: s.Sessions() + hex16(lease) + "/", root: s.root}
}

// ParseAlive returns the lease of the session whose presence key that is.
func (s Space) ParseAlive(key string) (lease int64, ok bool) {
	before, is := strings.CutSuffix(key, "/alive")
	lease, ok = parseToken(before, s.Sessions())
	return lease, ok && is
}

// Session is the part of etcd that belongs to one session, that is, to one lease. Its owner
// watches all of it.
type Session struct {
	Range string

	root string // of its space
}

// Alive is the presence key: it exists as long as the lease and is the fence of everything that
// the session creates.
func (s Session) Alive() string { return s.Range + "alive" }

// Notices is the range of the notices why requests with that token ended. Requests of one Txn share their token.
func (s Session) Notices(token int64) string { return s.Range + notices + hex16(token) + "/" }

// Notice is the key of the notice why the request with that token and key ended. The name says for which request it is,
// so a notice whose value cannot be read reaches that one.
func (s Session) Notice(token int64, request string) string {
	return s.Notices(token) + s.below(request)
}

// ParseNotice returns the token and the key of the request that a notice is for.
func (s Session) ParseNotice(key string) (token int64, request string, ok bool) {
	return s.parseOf(notices, key)
}

// Stop is the key that asks the session to release its request with that token and key. It is not a
// notice: the request has not ended.
func (s Session) Stop(token int64, request string) string {
	return s.Range + stops + hex16(token) + "/" + s.below(request)
}

// ParseStop returns the token and the key of the request that is asked to stop.
func (s Session) ParseStop(key string) (token int64, request string, ok bool) {
	return s.parseOf(stops, key)
}

const (
	notices = "notice/"
	stops   = "stop/"
)

// below returns the name of a request's key below the root of the space, as one part of a key.
func (s Session) below(request string) string { return escape(strings.TrimPrefix(request, s.root)) }

func (s Session) parseOf(what, key string) (token int64, request string, ok bool) {
	rest, below := strings.CutPrefix(key, s.Range+what)
	digits, name, named := strings.Cut(rest, "/")
	token, ok = parseHex16(digits)
	request, whole := unescape(name)
	return token, s.root + request, ok && below && named && whole && request != ""
}

func parseToken(key, before string) (token int64, ok bool) {
	rest, below := strings.CutPrefix(key, before)
	token, ok = parseHex16(rest)
	return token, ok && below
}

// Kind separates the kinds of queue: a semaphore and a mutex of one name are two queues.
type Kind string

// The kinds of queue.
const (
	Semaphore Kind = "semaphore"
	Mutex     Kind = "mutex"
	Election  Kind = "election"
	Rate      Kind = "rate" // the shares of a rate
)

// Queues is the range of all queues of a kind.
func (s Space) Queues(kind Kind) string { return s.root + string(kind) + "/" }

// ParseQueue returns the name of the queue of that kind to whose range a key belongs.
func (s Space) ParseQueue(kind Kind, key string) (name string, ok bool) {
	name, _, ok = split(key, s.Queues(kind))
	return name, ok && CheckName(name) == nil
}

// Queue returns the keys of a queue. The name must have passed CheckName.
func (s Space) Queue(kind Kind, name string) Queue {
	tail := string(kind) + "/" + escape(name) + "/"
	return newQueue(s.root, tail, s.root+"request-id/"+tail)
}

// Tokens returns the keys of the stored tokens of a rate. The name must have passed CheckName.
func (s Space) Tokens(name string) Tokens {
	in := s.root + tokens + escape(name) + "/"
	return Tokens{Range: in, Left: in + "left", Timer: in + "timer"}
}

// newQueue returns the keys of the queue with the range root+tail. Some of them are the beginning of another, and take no
// memory: each key of a limiter that is in use has a queue.
func newQueue(root, tail, ids string) Queue {
	light, heavy := root+tail+"queue/light/", root+tail+"queue/heavy/"
	in := light[:len(root)+len(tail)]
	return Queue{
		Range: in, Limit: in + "limit",
		Requests: light[:len(light)-len("light/")], Light: light, Heavy: heavy,
		ids: ids,
	}
}
