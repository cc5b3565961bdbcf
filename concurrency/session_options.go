package concurrency

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"os"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/observe"
)

// SessionOptions configure a Session. nil means all defaults.
type SessionOptions struct {
	// TTL is how long etcd keeps this process's permits after its last renewal: whole seconds,
	// from 5 s to 24 h. A process that dies keeps its permits that long, so a service has hardly a reason
	// for more than a minute. With an explicit Margin it may be as short as 1 s; etcd may grant more,
	// at least about 1.5 of its election timeouts. Defaults to 15 s.
	TTL time.Duration

	// Margin is how long before etcd could release them permits count as lost: the time that work
	// has to stop after its context has ended. It must also cover the difference in rate of this
	// machine's and etcd's clocks over one TTL, and about one election timeout of etcd for an
	// untimely leader change. At least 10 ms and at most half of the TTL. Defaults to a fifth of
	// the TTL, but not less than 1.2 s.
	Margin time.Duration

	// Prefix is the prefix of all keys in etcd. Defaults to "/etcdkit".
	Prefix string

	// Owner is the name by which other processes and operators see this session: text of up to
	// 255 bytes without control and format characters. Defaults to host, process ID and a few random
	// letters.
	Owner string

	// MaxPermits bounds the live requests of this session, including those that wait: from 1 to
	// 65536. With auth enabled, etcd checks each key of a lease at every Put to it. Defaults to
	// 4096.
	MaxPermits int

	// ReleaseTimeout is how long Do and Lead wait, after the function has returned, for etcd to
	// confirm the release: at least a millisecond. After it they return, and the release continues
	// in the background. Permit.Release is bounded by its ctx instead. ReleaseTimeout also bounds
	// how long a job's call in schedlock waits for the record of its run's end or, with Hooks, for
	// the reason why its run was lost. Defaults to 2 s.
	ReleaseTimeout time.Duration

	// AllowProxy lets the session work through etcd's gRPC proxy, which NewSession refuses. Such a proxy
	// loses events of watches, so that a limit that is lowered can be exceeded, and may answer with an
	// older renewal: G1 and G4 do not hold behind it. Where etcd checks users, it renews no lease.
	// Defaults to false.
	AllowProxy bool

	// ReportEvery is the time between two events observe.Waiting of one call that waits, and that after which Close logs what it
	// waits for. Defaults to 10 s.
	ReportEvery time.Duration

	// Logger receives what an operator should know as warnings, such as lost sessions, foreign keys, refused
	// deletions and failed jobs under a cron library; that such a state has ended, such as by a new lease, and
	// which limit counts, as information; everything else at debug level. docs/warnings.md lists both. Give etcd's client the same logger, raised to errors, as in the Example.
	// Defaults to no logging.
	Logger *zap.Logger

	// Hooks are called for each call on this session, also by schedlock and idempotency, and for the
	// session's own events: see package observe. They are called in their order, and their ends in the
	// reverse order. Defaults to none.
	Hooks []observe.Hooks
}

// The bounds and defaults of SessionOptions.
const (
	defaultTTL        = 15 * time.Second
	shortTTL          = 5 * time.Second // below it, the margin must be chosen by hand
	maxTTL            = 24 * time.Hour
	leastMargin       = 1200 * time.Millisecond // by default
	lowestMargin      = 10 * time.Millisecond   // below it a unit was forgotten
	defaultMaxPermits = 4096
	maxOwner          = 255
)

// withDefaults returns a checked copy in which nothing is left open.
func (o *SessionOptions) withDefaults() (SessionOptions, error) {
	var c SessionOptions
	if o != nil {
		c = *o
	}
	shortest := shortTTL
	if c.Margin != 0 {
		shortest = time.Second
	}
	c.TTL = cmp.Or(c.TTL, defaultTTL)
	c.Margin = cmp.Or(c.Margin, max(c.TTL/5, leastMargin))
	c.Prefix = cmp.Or(c.Prefix, keyspace.DefaultPrefix)
	c.MaxPermits = cmp.Or(c.MaxPermits, defaultMaxPermits)
	c.ReportEvery = cmp.Or(c.ReportEvery, 10*time.Second)
	c.ReleaseTimeout = cmp.Or(c.ReleaseTimeout, 2*time.Second)
	if c.Owner == "" {
		c.Owner = thisProcess()
	}
	if c.Logger == nil {
		c.Logger = zap.NewNop()
	}
	return c, c.check(shortest)
}

// check checks options of which none is left open.
func (o *SessionOptions) check(shortest time.Duration) error {
	switch {
	case o.TTL < shortest || o.TTL > maxTTL || o.TTL%time.Second != 0:
		hint := ""
		if shortest == shortTTL {
			hint = fmt.Sprintf("; with a Margin it may be shorter than %v", shortTTL)
		}
		return invalid("TTL %v is not a number of whole seconds from %v to %v%s", o.TTL, shortest, maxTTL, hint)
	case o.Margin < lowestMargin || o.Margin > o.TTL/2:
		return invalid("Margin %v is not between %v and half of the TTL of %v", o.Margin, lowestMargin, o.TTL)
	case len(o.Owner) > maxOwner:
		return invalid("Owner %.20q… has %d bytes, more than %d", o.Owner, len(o.Owner), maxOwner)
	case !utf8.ValidString(o.Owner) || strings.ContainsFunc(o.Owner, func(r rune) bool { return !unicode.IsGraphic(r) }):
		return invalid("Owner %.20q is not text without control and format characters", o.Owner)
	case o.MaxPermits < 1 || o.MaxPermits > keyspace.MaxSlot+1:
		return invalid("MaxPermits %d is not between 1 and %d", o.MaxPermits, keyspace.MaxSlot+1)
	case o.ReportEvery < time.Millisecond:
		return invalid("ReportEvery %v is below a millisecond", o.ReportEvery)
	case o.ReleaseTimeout < time.Millisecond:
		return invalid("ReleaseTimeout %v is below a millisecond", o.ReleaseTimeout)
	}
	return nil
}

// thisProcess names the process for other processes and operators.
func thisProcess() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%.200s-%d-%s", strings.ToValidUTF8(host, "?"), os.Getpid(), rand.Text()[:6])
}
