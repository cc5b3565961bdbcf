package procs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/etcdkit/etcdkit/internal/ports"
)

// Options says how a cluster of etcd processes is run.
type Options struct {
	Binary  string // of the etcd server
	Dir     string // for data and logs, one folder per member; it is kept
	Members int    // defaults to 1

	// HeartbeatInterval and ElectionTimeout default to etcd's own, 100 ms and 1 s.
	HeartbeatInterval, ElectionTimeout time.Duration

	// Fsync makes members wait for the disk, as etcd does by default. Without it, what a killed
	// process has written is kept as well; only a power failure would lose it. Defaults to false.
	Fsync bool

	Args []string // more flags for each member
	Env  []string // in addition to our own
}

// Cluster is a cluster of etcd servers, each a process of its own. Its methods may
// be called from several goroutines at once.
type Cluster struct {
	opts    Options
	members []*member

	mu    sync.Mutex
	admin *clientv3.Client
	old   []*clientv3.Client // that EnableAuth has replaced
}

type member struct {
	name         string
	dir          string
	client, peer string // addresses
	release      []func()

	mu    sync.Mutex
	proc  *Process
	admin *clientv3.Client
}

// pollEvery is how often a state is looked at that a server does not announce.
const pollEvery = 10 * time.Millisecond

// Start starts a cluster and returns when each member answers a linearizable
// read. The end of ctx before that stops what was started; it has no meaning
// afterwards.
func Start(ctx context.Context, o Options) (_ *Cluster, err error) {
	o.Members = cmp.Or(o.Members, 1)
	if o.Binary, err = filepath.Abs(o.Binary); err != nil {
		return nil, err
	}
	if o.Dir, err = filepath.Abs(o.Dir); err != nil {
		return nil, err
	}
	for {
		c := &Cluster{opts: o}
		if err = c.start(ctx); err == nil {
			return c, nil
		}
		c.Close()
		if ports.Held || !ports.Taken(err) || ctx.Err() != nil {
			return nil, err
		}
	}
}

func (c *Cluster) start(ctx context.Context) (err error) {
	for i := range c.opts.Members {
		m := &member{name: fmt.Sprintf("m%d", i)}
		m.dir = filepath.Join(c.opts.Dir, m.name)
		c.members = append(c.members, m)
		for _, addr := range []*string{&m.client, &m.peer} {
			a, release, err := ports.Reserve()
			if err != nil {
				return err
			}
			*addr, m.release = a, append(m.release, release)
		}
		if m.admin, err = dial("", "", m.client); err != nil {
			return err
		}
	}
	if c.admin, err = dial("", "", c.Endpoints()...); err != nil {
		return err
	}
	if !ports.Held {
		c.releasePorts()
	}
	for _, m := range c.members {
		if err := c.launch(m); err != nil {
			return err
		}
	}
	for _, m := range c.members {
		if err := m.ready(ctx); err != nil {
			return err
		}
	}
	return nil
}

// launch starts the process of a member.
func (c *Cluster) launch(m *member) error {
	var peers []string
	for _, p := range c.members {
		peers = append(peers, p.name+"=http://"+p.peer)
	}
	args := []string{
		"--name=" + m.name,
		"--data-dir=" + filepath.Join(m.dir, "data"),
		"--listen-client-urls=http://" + m.client, "--advertise-client-urls=http://" + m.client,
		"--listen-peer-urls=http://" + m.peer, "--initial-advertise-peer-urls=http://" + m.peer,
		"--initial-cluster=" + strings.Join(peers, ","),
		"--log-level=warn", "--logger=zap",
		fmt.Sprintf("--socket-reuse-port=%t", ports.Held),
	}
	if !c.opts.Fsync {
		args = append(args, "--unsafe-no-fsync")
	}
	if c.opts.HeartbeatInterval > 0 {
		args = append(args, fmt.Sprintf("--heartbeat-interval=%d", c.opts.HeartbeatInterval.Milliseconds()))
	}
	if c.opts.ElectionTimeout > 0 {
		args = append(args, fmt.Sprintf("--election-timeout=%d", c.opts.ElectionTimeout.Milliseconds()))
	}
	if err := os.MkdirAll(m.dir, 0o700); err != nil {
		return err
	}
	proc, err := Run(Command{
		Name: filepath.Base(c.opts.Binary) + " " + m.name, Path: c.opts.Binary,
		Args: append(args, c.opts.Args...), Env: c.opts.Env, Log: filepath.Join(m.dir, "log"),
	})
	if err != nil {
		return err
	}
	m.mu.Lock()
	m.proc = proc
	m.mu.Unlock()
	return nil
}

// process returns the member's process, running or not.
func (m *member) process() *Process {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.proc
}

// asks returns the member's own client.
func (m *member) asks() *clientv3.Client {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.admin
}

// ready returns when the member answers a linearizable read.
func (m *member) ready(ctx context.Context) error {
	p := m.process()
	for {
		try, cancel := context.WithTimeout(ctx, time.Second)
		go func() {
			select {
			case <-p.Done():
				cancel()
			case <-try.Done():
			}
		}()
		_, err := m.asks().Get(try, "procs/ready")
		cancel()
		switch {
		case err == nil:
			return nil
		case p.Ended():
			return fmt.Errorf("%s ended by itself: %w\n%s", p.name, errors.Join(p.Err(), errEnded), p.Tail(4096))
		case ctx.Err() != nil:
			return fmt.Errorf("%s is not ready: %w\n%s", p.name, errors.Join(ctx.Err(), err), p.Tail(4096))
		}
		time.Sleep(pollEvery)
	}
}

// dial returns a client that finds a server that is back at once. It logs in if user is not empty, at its first call.
func dial(user, password string, endpoints ...string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{
		Endpoints: endpoints,
		Username:  user, Password: password,
		Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 10 * time.Millisecond, Multiplier: 1.5, Jitter: 0.2, MaxDelay: 100 * time.Millisecond},
			MinConnectTimeout: time.Second,
		})},
	})
}

// Endpoints returns the addresses of all members, running or not.
func (c *Cluster) Endpoints() []string {
	var eps []string
	for _, m := range c.members {
		eps = append(eps, m.client)
	}
	return eps
}

// Client returns a client of all members, which Close closes.
func (c *Cluster) Client() *clientv3.Client {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.admin
}

// MemberClient returns a client of one member, which Close closes.
func (c *Cluster) MemberClient(i int) *clientv3.Client { return c.members[i].asks() }

// Member returns the process of a member, running or not.
func (c *Cluster) Member(i int) *Process { return c.members[i].process() }

// Version returns the version that the members report.
func (c *Cluster) Version(ctx context.Context) (string, error) {
	st, err := c.members[0].asks().Status(ctx, c.members[0].client)
	if err != nil {
		return "", err
	}
	return st.Version, nil
}

// Crash kills a member (SIGKILL). Its data and its addresses stay for Restart.
func (c *Cluster) Crash(i int) { c.Member(i).Kill() }

// Restart starts members again, on the same data and addresses, and returns when
// each answers a linearizable read. Those that run are killed first. Without a
// majority none becomes ready, so restart as many as that takes in one call.
func (c *Cluster) Restart(ctx context.Context, members ...int) error {
	for _, i := range members {
		c.Crash(i)
		if err := c.launch(c.members[i]); err != nil {
			return err
		}
	}
	for _, i := range members {
		if err := c.members[i].ready(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Close kills all members. Their folders stay.
func (c *Cluster) Close() {
	for _, m := range c.members {
		if p := m.process(); p != nil {
			p.Kill()
		}
		if own := m.asks(); own != nil {
			_ = own.Close()
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, client := range append(c.old, c.admin) {
		if client != nil {
			_ = client.Close()
		}
	}
	c.releasePorts()
}

func (c *Cluster) releasePorts() {
	for _, m := range c.members {
		for _, release := range m.release {
			release()
		}
		m.release = nil
	}
}
