package exporter

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/internal/keyspace"
)

// Options configure an Exporter. nil means all defaults.
type Options struct {
	// Prefix is the prefix of all keys in etcd, that of the sessions. Defaults to "/etcdkit".
	Prefix string

	// MaxNames bounds how many queues, how many jobs and how many stores are published, each. Queues
	// with the oldest waits come first, then those with the oldest holds; jobs with the most lost and
	// failed runs; stores with the most unknown requests. etcdkit_exporter_series_dropped counts the
	// rest. Defaults to 1000.
	MaxNames int

	// Probe is how often the exporter asks etcd whether its watch is up to date: from 100 ms to 1 h.
	// Three times without an answer end the watch. Defaults to 5 s.
	Probe time.Duration

	// Refresh is the time after which the exporter reads the whole namespace again, beside its watch, to
	// find changes that the watch has lost: at least a second. Defaults to 1 h.
	Refresh time.Duration

	// Logger receives what an operator should know as warnings: a namespace that cannot be read, a watch that does not
	// answer, a member of etcd that hangs, a backup that was restored. All else has a lower level. Defaults to no logging.
	Logger *zap.Logger

	// Now is the clock by which ages are computed. Defaults to time.Now.
	Now func() time.Time
}

// ErrInvalid: an argument or an option is out of range, or Run was called twice. It is this package's own:
// concurrency.ErrInvalid is another value.
var ErrInvalid = errors.New("invalid argument")

func invalid(format string, args ...any) error {
	return fmt.Errorf(format+": %w", append(args, ErrInvalid)...)
}

// withDefaults returns a checked copy in which nothing is left open.
func (o *Options) withDefaults() (Options, error) {
	var c Options
	if o != nil {
		c = *o
	}
	c.Prefix = cmp.Or(c.Prefix, keyspace.DefaultPrefix)
	c.MaxNames = cmp.Or(c.MaxNames, 1000)
	c.Probe = cmp.Or(c.Probe, 5*time.Second)
	c.Refresh = cmp.Or(c.Refresh, time.Hour)
	if c.Logger == nil {
		c.Logger = zap.NewNop()
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	switch {
	case c.MaxNames < 0:
		return c, invalid("Options.MaxNames %d is negative", c.MaxNames)
	case c.Probe < 100*time.Millisecond || c.Probe > time.Hour:
		return c, invalid("Options.Probe %v is not between 100ms and 1h", c.Probe)
	case c.Refresh < time.Second:
		return c, invalid("Options.Refresh %v is below a second", c.Refresh)
	}
	return c, nil
}
