package embedtest

import (
	"errors"
	"fmt"
	"reflect"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
)

// TB is the part of testing.TB that this package uses. Values of other test frameworks,
// such as Ginkgo and rapid, can implement it.
type TB interface {
	Helper()
	Name() string
	Logf(format string, args ...any)
	Fatalf(format string, args ...any)
	Skipf(format string, args ...any)
	Cleanup(f func())
	Failed() bool
}

// Options are the settings of a cluster. The zero value and nil mean the defaults. The
// value is copied, so one Options can start many clusters.
type Options struct {
	// Members is the number of voting members. Defaults to 1.
	Members int

	// HeartbeatInterval is the time between two heartbeats of the leader. Defaults to
	// 10 ms.
	HeartbeatInterval time.Duration

	// ElectionTimeout is the time without a heartbeat after which a member starts an
	// election, at least 5 × HeartbeatInterval. The minimum TTL of a lease is
	// ceil(1.5 × ElectionTimeout), in whole seconds. Defaults to 5 × HeartbeatInterval
	// for one member, and to 10 × HeartbeatInterval for several: with less, a busy
	// machine causes elections.
	ElectionTimeout time.Duration

	// Fsync makes members sync their writes to disk. Defaults to false: data survives
	// Crash, which kills no process, but not a power failure.
	Fsync bool

	// QuotaBytes is the size at which the backend raises the NOSPACE alarm.
	// Defaults to etcd's own (2 GiB).
	QuotaBytes int64

	// AuthTokenTTL is the TTL of the simple tokens of EnableAuth, in whole seconds.
	// Defaults to etcd's own (5 minutes).
	AuthTokenTTL time.Duration

	// TLS makes members serve clients over TLS only, with a certificate for 127.0.0.1
	// that exists in memory and that Client, NewClient and Dial trust. Traffic between
	// members stays plaintext. Defaults to false.
	TLS bool

	// Dir is the directory for the data, with one subdirectory per member. Close keeps
	// it, so that a later cluster of one member can start on the same data. Defaults to
	// a temporary directory that Close removes.
	Dir string

	// Logger receives the log of members and clients. An entry of a member at level
	// Fatal or Panic stops the member and does not end the process. Defaults to a
	// buffer, of which the newest part is logged to the test if the test fails; with
	// EMBEDTEST_LOG=1 in the environment, defaults to standard error.
	Logger *zap.Logger

	// Configure is called with the complete configuration of each member before each
	// of its starts, and may change it. Defaults to none.
	Configure func(*embed.Config)
}

// ErrExternal is returned by calls and options that need a server started by this
// package, if EMBEDTEST_ENDPOINTS names a real cluster instead. In a test such a call does
// not return: it skips the test that the cluster was started for.
var ErrExternal = errors.New("embedtest: not possible on a real cluster (EMBEDTEST_ENDPOINTS is set)")

func (o *Options) resolve() (Options, error) {
	var r Options
	if o != nil {
		r = *o
	}
	if r.Members == 0 {
		r.Members = 1
	}
	if r.HeartbeatInterval == 0 {
		r.HeartbeatInterval = 10 * time.Millisecond
	}
	if r.ElectionTimeout == 0 {
		r.ElectionTimeout = 5 * r.HeartbeatInterval
		if r.Members > 1 {
			r.ElectionTimeout = 10 * r.HeartbeatInterval
		}
	}
	switch {
	case r.Members < 1:
		return r, fmt.Errorf("embedtest: start: Options.Members is %d, want at least 1", r.Members)
	case r.HeartbeatInterval < time.Millisecond:
		return r, fmt.Errorf("embedtest: start: Options.HeartbeatInterval is %v, want at least 1ms", r.HeartbeatInterval)
	case r.ElectionTimeout < 5*r.HeartbeatInterval:
		return r, fmt.Errorf("embedtest: start: Options.ElectionTimeout is %v, want at least 5 × Options.HeartbeatInterval (%v)", r.ElectionTimeout, r.HeartbeatInterval)
	case r.AuthTokenTTL%time.Second != 0 || r.AuthTokenTTL < 0:
		return r, fmt.Errorf("embedtest: start: Options.AuthTokenTTL is %v, want whole seconds", r.AuthTokenTTL)
	}
	return r, nil
}

// needsOwnServer reports whether an external cluster of that many members may lack what
// the options ask for. Only Members and Logger do not depend on how the cluster was started.
func (o *Options) needsOwnServer(members int) bool {
	if o == nil {
		return false
	}
	rest := *o
	rest.Members, rest.Logger = 0, nil
	return o.Members > members || !reflect.ValueOf(rest).IsZero()
}
