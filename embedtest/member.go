package embedtest

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/server/v3/embed"
	"google.golang.org/grpc"

	"github.com/etcdkit/etcdkit/internal/ports"
)

// member is one etcd server. It keeps its directory and its addresses when it is stopped.
type member struct {
	s    *servers
	name string
	dir  string

	clientAddr, peerAddr, httpAddr string   // httpAddr only with TLS
	freePort                       []func() // of each address
	front                          *front   // nil without peers
	initialCluster                 string

	cut bool // by CutPeers; guarded by servers.mu

	lifecycle sync.Mutex // one start or stop at a time
	stuck     bool       // a previous run has not ended; guarded by lifecycle
	mu        sync.Mutex
	run       *running // nil while stopped
	last      *running // run, or the one before while stopped: for the member ID
}

// running is one run of a member, from its start to its stop.
type running struct {
	etcd *embed.Etcd
	ctx  context.Context // ends when etcd fails; the cause is the reason
	end  context.CancelCauseFunc

	mu         sync.Mutex
	up         bool // launch has succeeded
	grpc       []*grpc.Server
	registered chan struct{} // closed when etcd has registered its first gRPC server

	storage sync.RWMutex // is held by each call of Status, which reads the storage
	stopped bool         // the storage is being closed
}

// status keeps a call of Status from reading a storage that is being closed: etcd would end the process. A
// gRPC server that is stopped does not wait for its calls.
func (r *running) status(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if info.FullMethod == "/etcdserverpb.Maintenance/Status" {
		r.storage.RLock()
		defer r.storage.RUnlock()
		if r.stopped {
			return nil, rpctypes.ErrGRPCStopped
		}
	}
	return handler(ctx, req)
}

func (m *member) endpoint() string {
	if m.s.tls != nil {
		return "https://" + m.clientAddr
	}
	return "http://" + m.clientAddr
}

func (m *member) peerURL() string {
	if m.front != nil {
		return "http://" + m.front.addr()
	}
	return "http://" + m.peerAddr
}

func (r *running) add(s *grpc.Server) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.grpc = append(r.grpc, s)
	if len(r.grpc) == 1 {
		close(r.registered)
	}
}

// start starts the member and returns before it serves.
func (m *member) start() error {
	m.lifecycle.Lock()
	defer m.lifecycle.Unlock()
	if m.s.ended() {
		return errClosed
	}
	if m.running() != nil {
		return fmt.Errorf("embedtest: start member %s: it is running", m.name)
	}
	if m.stuck {
		return fmt.Errorf("embedtest: start member %s: its previous server failed and has not ended", m.name)
	}
	if !ports.Held {
		m.freePorts()
	}
	if m.front != nil {
		m.front.lift()
	}
	m.waitForLocks()
	r := &running{registered: make(chan struct{})}
	r.ctx, r.end = context.WithCancelCause(context.Background())
	if err := m.launch(r); err != nil {
		if m.front != nil {
			m.front.sever()
		}
		return err
	}
	m.mu.Lock()
	m.run, m.last = r, r
	m.mu.Unlock()
	return nil
}

// waitServing waits until the member has joined and etcd has registered its gRPC server,
// which close needs.
func (m *member) waitServing(ctx context.Context) error {
	r, err := m.serving()
	if err != nil {
		return err
	}
	select {
	case <-r.registered:
		return nil
	case <-r.ctx.Done():
		return context.Cause(r.ctx)
	case <-r.etcd.Server.StopNotify():
		return fmt.Errorf("embedtest: start member %s: it has stopped", m.name)
	case err, ok := <-r.etcd.Err():
		if !ok {
			err = errors.New("stopped")
		}
		return fmt.Errorf("embedtest: start member %s: %w", m.name, err)
	case <-ctx.Done():
		return fmt.Errorf("embedtest: start member %s: not ready: %w", m.name, ctx.Err())
	}
}

func (m *member) running() *running {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.run
}

// serving returns the current run, or an error with the reason why there is none.
func (m *member) serving() (*running, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.run == nil {
		if m.last != nil && m.last.ctx.Err() != nil {
			return nil, context.Cause(m.last.ctx)
		}
		return nil, errClosed
	}
	return m.run, nil
}

// known returns the current run, or the previous one, or nil.
func (m *member) known() *running {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.last
}

// stop stops the member; hard means without a transfer of the leadership.
func (m *member) stop(hard bool) {
	m.lifecycle.Lock()
	defer m.lifecycle.Unlock()
	m.mu.Lock()
	r := m.run
	m.run = nil
	m.mu.Unlock()
	if r != nil {
		m.shutdown(r, hard)
	}
}

func (m *member) shutdown(r *running, hard bool) {
	if r.await(func() { m.close(r, hard) }) {
		return
	}
	m.abandon()
	if m.front != nil {
		m.front.sever()
	}
}

// close stops etcd. It stops the gRPC servers first: etcd would wait for more than five
// seconds for open watches to end.
func (m *member) close(r *running, hard bool) {
	ready := true
	select {
	case <-r.registered:
	default:
		ready = false // etcd's Stop would wait for readiness for ever
	}
	r.mu.Lock()
	servers := r.grpc
	r.mu.Unlock()
	for _, s := range servers {
		s.Stop()
	}
	r.storage.Lock()
	r.stopped = true
	r.storage.Unlock()
	if hard || !ready {
		r.etcd.Server.HardStop()
	} else {
		r.etcd.Server.Stop()
	}
	if m.front != nil {
		m.front.sever()
	}
	r.etcd.Close()
}

// release closes the member's front and frees its ports.
func (m *member) release() {
	if m.front != nil {
		m.front.close()
	}
	m.freePorts()
}

func (m *member) freePorts() {
	for _, f := range m.freePort {
		f()
	}
	m.freePort = nil
}
