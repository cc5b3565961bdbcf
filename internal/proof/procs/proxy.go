package procs

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/etcdkit/etcdkit/internal/ports"
)

// Proxy is etcd's gRPC proxy in front of all members of a cluster, a process of its own. Its methods may be called
// from several goroutines at once.
type Proxy struct {
	cluster *Cluster
	dir     string
	address string
	release func()

	mu   sync.Mutex
	proc *Process
}

// StartProxy starts a proxy and returns when it answers a linearizable read. The cluster's binary has to be etcd
// itself: a test binary that runs itself as a server has no proxy.
//
// The proxy cannot share a port that is reserved for it, as a server can, so it listens at another loopback address,
// where no process gets that port by chance. Systems other than Linux do not have that address by default.
func (c *Cluster) StartProxy(ctx context.Context) (*Proxy, error) {
	reserved, release, err := ports.Reserve()
	if err != nil {
		return nil, err
	}
	_, port, err := net.SplitHostPort(reserved)
	if err != nil {
		release()
		return nil, err
	}
	p := &Proxy{cluster: c, dir: filepath.Join(c.opts.Dir, "proxy"), address: net.JoinHostPort("127.0.0.2", port), release: release}
	if err := p.Restart(ctx); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// Endpoint returns the address for clients.
func (p *Proxy) Endpoint() string { return p.address }

// Process returns the present process, running or not.
func (p *Proxy) Process() *Process {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.proc
}

// Restart starts the proxy at its address, and returns when it answers a linearizable read. One that runs is killed
// first.
func (p *Proxy) Restart(ctx context.Context) error {
	if old := p.Process(); old != nil {
		old.Kill()
	}
	if err := os.MkdirAll(p.dir, 0o700); err != nil {
		return err
	}
	binary := p.cluster.opts.Binary
	proc, err := Run(Command{
		Name: filepath.Base(binary) + " grpc-proxy", Path: binary, Env: p.cluster.opts.Env, Log: filepath.Join(p.dir, "log"),
		Args: []string{
			"grpc-proxy", "start", "--endpoints=" + strings.Join(p.cluster.Endpoints(), ","),
			"--listen-addr=" + p.address, "--advertise-client-url=" + p.address, "--data-dir=" + filepath.Join(p.dir, "data"),
		},
	})
	if err != nil {
		return err
	}
	p.mu.Lock()
	p.proc = proc
	p.mu.Unlock()
	return p.ready(ctx, proc)
}

// ready returns when the proxy answers a linearizable read.
func (p *Proxy) ready(ctx context.Context, proc *Process) error {
	client, err := dial("", "", p.address)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	for {
		try, cancel := context.WithTimeout(ctx, time.Second)
		_, err := client.Get(try, "procs/ready")
		cancel()
		switch {
		case err == nil:
			return nil
		case proc.Ended():
			return fmt.Errorf("%s ended by itself: %w\n%s", proc.name, errEnded, proc.Tail(4096))
		case ctx.Err() != nil:
			return fmt.Errorf("%s is not ready: %w\n%s", proc.name, err, proc.Tail(4096))
		}
		time.Sleep(pollEvery)
	}
}

// Close kills the proxy.
func (p *Proxy) Close() {
	if proc := p.Process(); proc != nil {
		proc.Kill()
	}
	p.release()
}
