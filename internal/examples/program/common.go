package program

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/examples/cluster"
	"github.com/etcdkit/etcdkit/internal/examples/metrics"
)

// Common is what the larger demos have in common: flags, an etcd, metrics, and a bound of their time.
type Common struct {
	TTL     time.Duration  // of sessions
	Timeout time.Duration  // of the run
	Only    *regexp.Regexp // names of the parts that run

	name    string
	ttl     TTL
	metrics string
	etcd    cluster.Etcd
}

// TTL is the flag -ttl of a demo.
type TTL struct {
	Of                 string // whose sessions
	Usual, Least, Most time.Duration
}

// Flags returns a set of flags that has those of all demos. about is what -help says first.
func (c *Common) Flags(name, about string, ttl TTL, out io.Writer) *flag.FlagSet {
	c.name, c.ttl, c.Only = name, ttl, regexp.MustCompile("")
	f := flag.NewFlagSet(name, flag.ContinueOnError)
	f.SetOutput(out)
	c.etcd.Define(f)
	f.DurationVar(&c.TTL, "ttl", ttl.Usual, "TTL of the "+ttl.Of+"' sessions, whole seconds")
	f.DurationVar(&c.Timeout, "timeout", 5*time.Minute, "give up after this time")
	metrics.Flag(f, &c.metrics)
	f.Usage = func() {
		fmt.Fprintln(out, about)
		f.PrintDefaults()
	}
	return f
}

// OnlyFlag defines the flag -only.
func (c *Common) OnlyFlag(f *flag.FlagSet, parts string) {
	f.Func("only", "run only the "+parts+" whose names match this `expression`", func(value string) (err error) {
		c.Only, err = regexp.Compile(value)
		return err
	})
}

// Parse parses the arguments, and checks the flags of all demos.
func (c *Common) Parse(f *flag.FlagSet, args []string) error {
	if err := c.etcd.Parse(f, args); err != nil {
		return err
	}
	switch {
	case c.TTL < c.ttl.Least || c.TTL > c.ttl.Most || c.TTL%time.Second != 0:
		return fmt.Errorf("-ttl is %v, want whole seconds from %v to %v", c.TTL, short(c.ttl.Least), short(c.ttl.Most))
	case c.Timeout <= 0:
		return fmt.Errorf("-timeout is %v, want more than 0", c.Timeout)
	}
	return nil
}

// short is a duration as a user writes it: 1m and not 1m0s.
func short(d time.Duration) string {
	return strings.TrimSuffix(d.String(), "m0s") + map[bool]string{true: "m"}[d >= time.Minute]
}

// Margin is that of the sessions: a quarter of the TTL, far more than clock rates on one host differ.
func (c *Common) Margin() time.Duration { return c.TTL / 4 }

// Place is where a demo runs. Child processes get it as JSON.
type Place struct {
	cluster.Etcd
	Namespace string             // of this run
	Metrics   string             // where the children join the metrics of the parent, see metrics.Join
	Own       *embedtest.Cluster `json:"-"` // the embedded etcd, or nil for that of a user
}

// Run calls run with an etcd, of which it starts one with some members if the flags name none. It serves the metrics
// of a new namespace meanwhile. The ctx of run ends after the timeout.
func (c *Common) Run(ctx context.Context, members int, progress io.Writer, run func(context.Context, Place) error) (err error) {
	late := fmt.Errorf("not done after %v (-timeout)", c.Timeout)
	ctx, cancel := context.WithTimeoutCause(ctx, c.Timeout, late)
	defer cancel()
	defer func() {
		if err != nil && context.Cause(ctx) == late && !errors.Is(err, late) {
			err = fmt.Errorf("%w: %w", late, err)
		}
	}()
	page, err := metrics.Listen(c.metrics, progress)
	if err != nil {
		return err
	}
	defer page.Close()
	at := Place{Namespace: c.name + "-" + strings.ToLower(rand.Text()[:8]), Metrics: page.Children()}
	var stop func()
	if at.Etcd, at.Own, stop, err = c.etcd.Open(ctx, members); err != nil {
		return err
	}
	defer stop()
	if err := page.Publish(at.Etcd, at.Namespace); err != nil {
		return err
	}
	return run(ctx, at)
}
