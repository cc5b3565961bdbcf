package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/proof/procs"
)

// atOnce is how many names are judged at the same time.
const atOnce = 10

// wrapper is a command that runs another one under a lock.
type wrapper struct {
	name    string
	guarded bool
	line    func(endpoints, name string, command ...string) []string
	queue   func(name string) string // the prefix of its requests
}

// namespace is that of etcdkit's names.
const namespace = "referee"

func etcdkitRun(binary string) wrapper {
	return wrapper{"etcdkit run", true, func(endpoints, name string, command ...string) []string {
		return append([]string{binary, "run", "--endpoints", endpoints, "-N", namespace, "--lock", "--ttl", "6s", "--grace", "200ms", name, "--"}, command...)
	}, func(name string) string {
		space, err := keyspace.New(keyspace.DefaultPrefix, namespace)
		if err != nil {
			panic(err) // both are constants
		}
		return space.Queue(keyspace.Mutex, name).Requests
	}}
}

func etcdctlLock(binary string) wrapper {
	return wrapper{"etcdctl lock", false, func(endpoints, name string, command ...string) []string {
		return append([]string{binary, "lock", "--endpoints", endpoints, "--ttl", "6", name, "--"}, command...)
	}, func(name string) string { return name + "/" }}
}

// outcome is what the rounds of one phase and wrapper have shown.
type outcome struct {
	rounds, overlaps int
	longest          time.Duration
	unserved         int // rounds whose second wrapper gave up
}

// run runs the rounds of a phase.
func run(ctx context.Context, c *procs.Cluster, dir string, p phase, w wrapper, rounds int) (out outcome, err error) {
	for out.rounds < rounds {
		n := min(atOnce, rounds-out.rounds)
		fmt.Fprintf(os.Stderr, "referee: %s, %s: rounds %d to %d of %d\n", p.name, w.name, out.rounds+1, out.rounds+n, rounds)
		found, err := batch(ctx, c, dir, p, w, n)
		if err != nil {
			return out, err
		}
		for _, s := range found {
			out.rounds++
			if s.Role == "none" {
				out.unserved++
			}
			if s.Overlap > 0 {
				out.overlaps++
				out.longest = max(out.longest, s.Overlap)
			}
		}
	}
	return out, nil
}

// roundBound bounds how long anything in a batch may take.
const roundBound = 90 * time.Second

// batch runs several rounds at the same time, each with a name of its own, and returns what the second
// commands have found.
func batch(ctx context.Context, c *procs.Cluster, dir string, p phase, w wrapper, n int) (found []start, err error) {
	ctx, cancel := context.WithTimeout(ctx, roundBound)
	defer cancel()
	base, err := os.MkdirTemp(dir, "round-")
	if err != nil {
		return nil, err
	}
	defer killAll(base)
	lasts := p.lasts
	if lasts == 0 {
		lasts = roundBound
	}
	firsts, seconds := make([]*contender, n), make([]*contender, n)
	defer func() {
		for _, c := range append(firsts, seconds...) {
			if c != nil {
				c.end()
			}
		}
	}()
	begin := func(into []*contender, role string, lasts time.Duration) error {
		for i := range into {
			d := filepath.Join(base, fmt.Sprint(i))
			if err := os.MkdirAll(d, 0o700); err != nil {
				return err
			}
			if into[i], err = begin(ctx, c, w, d, role, lasts); err != nil {
				return err
			}
		}
		return nil
	}
	if err := begin(firsts, "first", lasts); err != nil {
		return nil, err
	}
	for _, c := range firsts {
		if _, err := c.started(ctx); err != nil {
			return nil, err
		}
	}
	if err := begin(seconds, "second", 50*time.Millisecond); err != nil {
		return nil, err
	}
	for i, second := range seconds {
		if err := second.waits(ctx, c, firsts[i]); err != nil {
			return nil, err
		}
	}
	mend, err := p.strike(ctx, c, firsts)
	if err != nil {
		return nil, err
	}
	for _, c := range seconds {
		s, err := c.started(ctx)
		if errors.Is(err, errEnded) && !w.guarded {
			s, err = start{Role: "none"}, nil
		}
		if err != nil {
			return nil, err
		}
		found = append(found, s)
	}
	if mend != nil {
		err = mend(ctx)
	}
	return found, err
}

// contender is a wrapper with its command.
type contender struct {
	cmd   *exec.Cmd
	dir   string
	role  string
	queue string // the prefix of its request and that of the other one
	link  *link
	cut   chan struct{} // closed to silence its connections
	done  chan struct{}
	log   *os.File
}

// begin starts a wrapper.
func begin(ctx context.Context, cluster *procs.Cluster, w wrapper, dir, role string, lasts time.Duration) (*contender, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &contender{dir: dir, role: role, cut: make(chan struct{}), done: make(chan struct{})}
	if c.link, err = newLink(cluster.Endpoints(), c.cut); err != nil {
		return nil, err
	}
	name := strings.ReplaceAll(filepath.Base(filepath.Dir(dir))+"-"+filepath.Base(dir), "/", "-")
	c.queue = w.queue(name)
	line := w.line(strings.Join(c.link.endpoints(), ","), name, self)
	if c.log, err = os.Create(filepath.Join(dir, role+".log")); err != nil {
		return nil, err
	}
	c.cmd = exec.CommandContext(ctx, line[0], line[1:]...)
	c.cmd.Env = append(os.Environ(), workEnv+"="+dir, roleEnv+"="+role, lastsEnv+"="+lasts.String())
	c.cmd.Stdout, c.cmd.Stderr = c.log, c.log
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	go func() { defer close(c.done); _ = c.cmd.Wait() }()
	return c, nil
}

// waits returns when its request is behind that of the first one, or the first one has ended.
func (c *contender) waits(ctx context.Context, cluster *procs.Cluster, first *contender) error {
	for {
		resp, err := cluster.Client().Get(ctx, c.queue, clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil || resp.Count > 1 {
			return err
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-first.done:
			return nil
		case <-c.done: // started reports why
			return nil
		}
	}
}

var errEnded = errors.New("has ended without its command")

// started waits until its command has started, and returns what that has found.
func (c *contender) started(ctx context.Context) (s start, err error) {
	for {
		text, err := os.ReadFile(filepath.Join(c.dir, c.role))
		if err == nil {
			return s, json.Unmarshal(text, &s)
		}
		if !errors.Is(err, os.ErrNotExist) {
			return s, err
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-c.done:
			if _, err := os.Stat(filepath.Join(c.dir, c.role)); err != nil {
				log, _ := os.ReadFile(c.log.Name())
				return s, fmt.Errorf("the %s wrapper (%v) %w: %s", c.role, c.cmd.ProcessState, errEnded, log)
			}
		case <-ctx.Done():
			log, _ := os.ReadFile(c.log.Name())
			return s, fmt.Errorf("the %s command has not started: %w: %s", c.role, ctx.Err(), log)
		}
	}
}

// end ends the wrapper, by force if need be.
func (c *contender) end() {
	_ = c.cmd.Process.Signal(syscall.SIGCONT)
	_ = c.cmd.Process.Kill()
	killAll(c.dir)
	<-c.done
	c.link.close()
	_ = c.log.Close()
}
