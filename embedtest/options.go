package embedtest

import (
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
)

// TB is the part of testing.TB that this package uses, so that Ginkgo, rapid
// and others can pass their own.
type TB interface {
	Helper()
	Name() string
	Logf(format string, args ...any)
	Fatalf(format string, args ...any)
	Skipf(format string, args ...any)
	Cleanup(f func())
	Failed() bool
}

// Options says how the members are run. The zero value, and nil, mean the
// defaults. The value is copied; one Options may start many clusters.
type Options struct {
	// Members is the number of voting members. Defaults to 1.
	Members int

	// Tick is the heartbeat interval. Defaults to 10 ms.
	Tick time.Duration

	// Election is the election timeout; etcd wants at least 5 × Tick, and
	// refuses leases shorter than ceil(1.5 × Election) in whole seconds.
	// Defaults to 50 ms for one member and 100 ms for several, where a busy
	// machine would otherwise cause elections of its own.
	Election time.Duration

	// Fsync makes members write through to disk. Defaults to false: the data
	// survives Crash, which kills no process, but not a power cut.
	Fsync bool

	// QuotaBytes is the size at which the backend raises the NOSPACE alarm.
	// Defaults to etcd's own (2 GiB).
	QuotaBytes int64

	// AuthTokenTTL is the life of the simple tokens of EnableAuth, which etcd
	// counts in whole seconds. Defaults to etcd's own (5 minutes).
	AuthTokenTTL time.Duration

	// TLS serves clients over TLS only, with a certificate made in memory for
	// 127.0.0.1 that the cluster's own clients trust. Members still speak
	// plaintext to each other. Defaults to false.
	TLS bool

	// Dir holds one directory of data per member and is kept on Close, so that
	// a later cluster of one member can be started on the same data.
	// Defaults to a temporary directory that Close removes.
	Dir string

	// Logger takes the log of members and clients. Defaults to a buffer that
	// is shown when the test has failed and never written to the test after
	// its end; with EMBEDTEST_LOG=1 in the environment, to standard error. A
	// member's entry at level Fatal or Panic ends the member, not the process.
	Logger *zap.Logger

	// Configure has the last word on the configuration of each member; it may
	// be called again when a member restarts. Defaults to none.
	Configure func(*embed.Config)
}

// ErrExternal is returned by what needs a server of its own, while
// EMBEDTEST_ENDPOINTS makes the suite run against a real cluster.
var ErrExternal = errors.New("embedtest: not possible on the external cluster of EMBEDTEST_ENDPOINTS")

func (o *Options) resolve() (Options, error) {
	var r Options
	if o != nil {
		r = *o
	}
	if r.Members == 0 {
		r.Members = 1
	}
	if r.Tick == 0 {
		r.Tick = 10 * time.Millisecond
	}
	if r.Election == 0 {
		r.Election = 5 * r.Tick
		if r.Members > 1 {
			r.Election = 10 * r.Tick
		}
	}
	switch {
	case r.Members < 1:
		return r, fmt.Errorf("embedtest: Members is %d, want at least 1", r.Members)
	case r.Tick < time.Millisecond:
		return r, fmt.Errorf("embedtest: Tick is %v, want at least 1 ms", r.Tick)
	case r.Election < 5*r.Tick:
		return r, fmt.Errorf("embedtest: Election is %v, want at least 5 ticks of %v", r.Election, r.Tick)
	case r.AuthTokenTTL%time.Second != 0 || r.AuthTokenTTL < 0:
		return r, fmt.Errorf("embedtest: AuthTokenTTL is %v, want whole seconds", r.AuthTokenTTL)
	}
	return r, nil
}

// needsOwnServer reports whether the options ask for something that an
// external cluster of that many members cannot be assumed to have.
func (o *Options) needsOwnServer(members int) bool {
	return o != nil && (o.Members > members || o.TLS || o.QuotaBytes != 0 || o.AuthTokenTTL != 0 || o.Configure != nil || o.Dir != "")
}
