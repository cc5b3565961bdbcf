package check

import (
	"math"
	"net/url"
	"regexp"
	"strconv"
	"strings"
)

// keyKind is what a key is for.
type keyKind int

const (
	keyOther       keyKind = iota // foreign, or of no meaning for admission
	keyRequest                    // a request in a queue
	keyLimit                      // a queue's own limit
	keyDefault                    // the limit of all keys of a limiter that have none of their own
	keyID                         // the request of an ID
	keyAlive                      // presence of a session
	keyNotice                     // word to a session that a request was taken away
	keyStop                       // the same, that a request is to end by itself
	keyJobLock                    // exists while a job runs
	keyJobRun                     // the claim and the record of a tick
	keyJobFloor                   // ticks up to it are closed
	keyJobCooldown                // keeps a job from starting again
	keyJobPause                   // the same, for an operator
	keyJobSettings                // of a job
	keyClock                      // of a process that runs jobs
	keyRecord                     // what became of an idempotent request
	keyPart                       // of its result
)

// parsedKey is what a key's name says.
type parsedKey struct {
	kind   keyKind
	gate   string
	weight int64
	lease  int64
	slot   string // the lease and the number of a request
	try    bool
	token  int64 // of the request to which a notice belongs
	tick   string

	request string // the name of that request
}

// layout reads the names of keys, without the tapped prefix.
type layout struct {
	parse func(name string) parsedKey
	// fixed is the limit of a queue that is not stored, or 0.
	fixed func(gate string) int64
	// limiter is the limiter whose default counts where a queue has no limit of its own, or "".
	limiter func(gate string) string
	// total is the queue of the total of a key's limiter, which its requests join next, or "".
	total func(gate string) string
	// presence says that each lease has a presence key: if that goes at the same
	// revision, a request went with its lease.
	presence bool
}

// The names of layouts.
const (
	LayoutEtcdkit = "etcdkit"
	LayoutEtcd    = "etcd" // <gate>/<lease>, as etcd's own Mutex has it
)

func layoutNamed(name string) layout {
	if name == LayoutEtcd {
		return layout{parse: parseEtcd, fixed: func(string) int64 { return 1 }, limiter: func(string) string { return "" }, total: func(string) string { return "" }}
	}
	return layout{parse: parseEtcdkit, fixed: fixedEtcdkit, limiter: limiterEtcdkit, total: totalEtcdkit, presence: true}
}

// The names of keys once more, apart from keyspace: see the package comment.
var (
	requestName = regexp.MustCompile(`^((?:semaphore|mutex|election)/[^/]+|limiter/[^/]+/(?:key/[^/]+|total))/queue/(?:light|heavy/([1-9][0-9]*))/(([0-9a-f]{16})-[0-9a-f]{4})(-try)?$`)
	limitName   = regexp.MustCompile(`^(semaphore/[^/]+|limiter/[^/]+/(?:key/[^/]+|total))/limit$`)
	defaultName = regexp.MustCompile(`^(limiter/[^/]+)/default$`)
	keyOfName   = regexp.MustCompile(`^(limiter/[^/]+)/key/[^/]+$`)
	idName      = regexp.MustCompile(`^request-id/((?:semaphore|mutex|election)/[^/]+|limiter/[^/]+/key/[^/]+)/`)
	sessionName = regexp.MustCompile(`^session/([0-9a-f]{16})/(?:(alive)|(notice|stop)/([0-9a-f]{16})/(.+))$`)
	jobName     = regexp.MustCompile(`^(job/[^/]+)/(?:(lock|cooldown|pause|settings)|(run|floor)/([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}Z))$`)
	clockName   = regexp.MustCompile(`^clock/([0-9a-f]{16})$`)
	recordName  = regexp.MustCompile(`^(idempotency/[^/]+/record/[0-9a-f]{16}/[A-Za-z0-9_-]{43})$`)
	partName    = regexp.MustCompile(`^idempotency/[^/]+/part/`)
	etcdName    = regexp.MustCompile(`^(.+)/([0-9a-f]+)$`)
)

func hex(s string) int64 {
	n, _ := strconv.ParseUint(s, 16, 64)
	return int64(n) //nolint:gosec // leases use all bits
}

func parseEtcdkit(name string) parsedKey {
	if m := requestName.FindStringSubmatch(name); m != nil {
		k := parsedKey{kind: keyRequest, gate: m[1], weight: 1, lease: hex(m[4]), slot: m[3], try: m[5] != ""}
		if m[2] != "" {
			weight, err := strconv.ParseInt(m[2], 10, 64)
			if err != nil || weight < 2 || weight > math.MaxInt32 {
				return parsedKey{}
			}
			k.weight = weight
		}
		return k
	}
	if m := limitName.FindStringSubmatch(name); m != nil {
		return parsedKey{kind: keyLimit, gate: m[1]}
	}
	if m := defaultName.FindStringSubmatch(name); m != nil {
		return parsedKey{kind: keyDefault, gate: m[1]}
	}
	if m := idName.FindStringSubmatch(name); m != nil {
		return parsedKey{kind: keyID, gate: m[1]}
	}
	if m := sessionName.FindStringSubmatch(name); m != nil {
		if m[2] != "" {
			return parsedKey{kind: keyAlive, lease: hex(m[1])}
		}
		kind := keyNotice
		if m[3] == "stop" {
			kind = keyStop
		}
		request, _ := url.PathUnescape(m[5])
		return parsedKey{kind: kind, lease: hex(m[1]), token: hex(m[4]), request: request}
	}
	if m := jobName.FindStringSubmatch(name); m != nil {
		return parsedKey{kind: jobKinds[m[2]+m[3]], gate: m[1], tick: m[4]}
	}
	if m := clockName.FindStringSubmatch(name); m != nil {
		return parsedKey{kind: keyClock, lease: hex(m[1])}
	}
	if m := recordName.FindStringSubmatch(name); m != nil {
		return parsedKey{kind: keyRecord, gate: m[1]}
	}
	if partName.MatchString(name) {
		return parsedKey{kind: keyPart}
	}
	return parsedKey{}
}

var jobKinds = map[string]keyKind{
	"lock": keyJobLock, "run": keyJobRun, "floor": keyJobFloor, "cooldown": keyJobCooldown, "pause": keyJobPause, "settings": keyJobSettings,
}

// isJob reports whether what is granted under a name is the run of a job.
func isJob(gate string) bool { return strings.HasPrefix(gate, "job/") }

// isRequest reports whether what is granted under a name is an attempt at an idempotent
// request.
func isRequest(gate string) bool { return strings.HasPrefix(gate, "idempotency/") }

func fixedEtcdkit(gate string) int64 {
	if strings.HasPrefix(gate, "mutex/") || strings.HasPrefix(gate, "election/") || isJob(gate) || isRequest(gate) {
		return 1
	}
	return 0
}

func limiterEtcdkit(gate string) string {
	if m := keyOfName.FindStringSubmatch(gate); m != nil {
		return m[1]
	}
	return ""
}

func totalEtcdkit(gate string) string {
	if limiter := limiterEtcdkit(gate); limiter != "" {
		return limiter + "/total"
	}
	return ""
}

// isTotal reports whether a queue is that of a limiter's total.
func isTotal(gate string) bool {
	return strings.HasPrefix(gate, "limiter/") && limiterEtcdkit(gate) == ""
}

func parseEtcd(name string) parsedKey {
	if m := etcdName.FindStringSubmatch(name); m != nil {
		return parsedKey{kind: keyRequest, gate: m[1], weight: 1, lease: hex(m[2])}
	}
	return parsedKey{}
}
