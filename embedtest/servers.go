package embedtest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/internal/ports"
)

// servers are the members that this package runs, and the directory that they share. An external cluster
// has none. It is safe for concurrent use.
type servers struct {
	opts    Options
	tb      TB // nil when started without a test
	log     *zap.Logger
	logBuf  *logBuffer
	dir     string
	ownDir  *dataDir // nil if Options.Dir names dir
	tls     *serverTLS
	members []*member
	abort   context.CancelCauseFunc // cancels the start

	mu      sync.Mutex // guards member.cut as well
	inUse   bool       // from the end of the start until Close begins
	closing bool
	failure error // the first fatal error of etcd
}

// start starts all members, and returns when connect does. Where the system cannot reserve ports,
// it retries with other ports if another process has bound one.
func (s *servers) start(ctx context.Context, connect func(context.Context) error) (err error) {
	if s.opts.TLS {
		if s.tls, err = newServerTLS(); err != nil {
			return err
		}
	}
	for range 5 {
		if err = s.makeDir(); err != nil {
			return err
		}
		if err = s.addMembers(); err != nil {
			return err
		}
		if err = s.checkRoom(s.members...); err != nil {
			return err
		}
		if err = s.startAll(ctx); err == nil {
			return connect(ctx)
		}
		if ports.Held || !ports.Taken(err) || s.ownDir == nil {
			return err
		}
		_ = s.stop()
	}
	return err
}

func (s *servers) makeDir() (err error) {
	if s.dir = s.opts.Dir; s.dir == "" {
		if s.ownDir, err = newDataDir(); err == nil {
			s.dir = s.ownDir.path()
		}
		return err
	}
	if err = os.MkdirAll(s.dir, 0o700); err != nil {
		return fmt.Errorf("embedtest: create data directory: %w", err)
	}
	return nil
}

func (s *servers) addMembers() error {
	s.members = nil
	var peers []string
	for i := range s.opts.Members {
		m := &member{s: s, name: fmt.Sprintf("m%d", i)}
		m.dir = filepath.Join(s.dir, m.name)
		s.members = append(s.members, m)
		if err := os.MkdirAll(m.dir, 0o700); err != nil {
			return fmt.Errorf("embedtest: create data directory: %w", err)
		}
		addrs := []*string{&m.clientAddr, &m.peerAddr}
		if s.tls != nil {
			addrs = append(addrs, &m.httpAddr)
		}
		for _, a := range addrs {
			addr, release, err := ports.Reserve()
			if err != nil {
				return fmt.Errorf("embedtest: reserve a port: %w", err)
			}
			*a = addr
			m.freePort = append(m.freePort, release)
		}
		if s.opts.Members > 1 {
			f, err := newFront(m.peerAddr)
			if err != nil {
				return err
			}
			m.front = f
		}
		peers = append(peers, m.name+"="+m.peerURL())
	}
	for _, m := range s.members {
		m.initialCluster = strings.Join(peers, ",")
	}
	return nil
}

// checkRoom returns an error if the file system of the data directory has too little space
// for these members. If the space is unknown, it returns nil.
func (s *servers) checkRoom(members ...*member) error {
	var all int64
	for _, m := range members {
		all += need(m.dir)
	}
	free, known := freeSpace(s.dir)
	if !known || free >= all {
		return nil
	}
	place := "named by Options.Dir"
	if s.ownDir != nil {
		place = "set TMPDIR to a directory with more space"
	}
	count := "1 member"
	if len(members) != 1 {
		count = fmt.Sprintf("%d members", len(members))
	}
	return fmt.Errorf("embedtest: not enough disk space in %s: %.1f MB needed for %s, %.1f MB free (%s)",
		s.dir, mega(all), count, mega(free), place)
}

// startAll starts the members one after the other and then waits for all: a member that
// finds the port of another one bound but not served waits a whole second for it.
func (s *servers) startAll(ctx context.Context) error {
	for _, m := range s.members {
		if err := m.start(); err != nil {
			return err
		}
	}
	for _, m := range s.members {
		if err := m.waitServing(ctx); err != nil {
			return err
		}
	}
	return nil
}

// versionKnown reports whether each running member knows the cluster's version.
func (s *servers) versionKnown() bool {
	for _, m := range s.members {
		if r := m.running(); r != nil && r.etcd.Server.ClusterVersion() == nil {
			return false
		}
	}
	return true
}

// restart starts members with their data and addresses, and returns when each of them serves linearizable
// reads.
func (s *servers) restart(ctx context.Context, ms []*member) error {
	for _, m := range ms {
		m.stop(false)
		for err := m.start(); err != nil; err = m.start() {
			// Where the system cannot reserve ports, another process may use this one for a moment.
			if !ports.Taken(err) || sleep(ctx, pollEvery) != nil {
				return err
			}
		}
		s.applyCuts()
	}
	for _, m := range ms {
		if err := m.waitServing(ctx); err != nil {
			return err
		}
		r, err := m.serving()
		if err != nil {
			return err
		}
		if err := r.waitRead(ctx); err != nil {
			return fmt.Errorf("embedtest: start member %s: no linearizable read succeeded: %w", m.name, err)
		}
	}
	return nil
}

func (s *servers) member(i int) (*member, error) {
	if i < 0 || i >= len(s.members) {
		return nil, fmt.Errorf("embedtest: member %d does not exist: the cluster has %d (Options.Members)", i, len(s.members))
	}
	return s.members[i], nil
}

// leader returns the number of the member that is the leader for a majority of all members, or -1.
func (s *servers) leader() int {
	votes := make(map[uint64]int)
	for _, m := range s.members {
		if r := m.running(); r != nil {
			votes[r.etcd.Server.Lead()]++
		}
	}
	for i, m := range s.members {
		r := m.running()
		if r == nil {
			continue
		}
		id := uint64(r.etcd.Server.MemberID())
		if r.etcd.Server.Lead() == id && 2*votes[id] > len(s.members) {
			return i
		}
	}
	return -1
}

// setCut cuts a member off, or ends that.
func (s *servers) setCut(m *member, cut bool) {
	s.mu.Lock()
	m.cut = cut
	s.mu.Unlock()
	s.applyCuts()
}

// applyCuts applies the cuts in force to every pair of members.
func (s *servers) applyCuts() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.members {
		r := a.running()
		if r == nil {
			continue
		}
		for _, b := range s.members {
			peer := b.known()
			switch {
			case a == b || peer == nil:
			case a.cut || b.cut:
				r.etcd.Server.CutPeer(peer.etcd.Server.MemberID())
			default:
				r.etcd.Server.MendPeer(peer.etcd.Server.MemberID())
			}
		}
	}
}

// everywhere waits until ok holds for every running member that is not cut off.
func (s *servers) everywhere(ctx context.Context, ok func(*running) bool) error {
	for _, m := range s.members {
		err := retry(ctx, func() error {
			s.mu.Lock()
			cut := m.cut
			s.mu.Unlock()
			if r := m.running(); r != nil && !cut && !ok(r) {
				return fmt.Errorf("embedtest: member %s has not applied the change", m.name)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// stop stops the members and removes the data directory, unless Options.Dir names it.
func (s *servers) stop() error {
	var wg sync.WaitGroup
	for _, m := range s.members {
		wg.Go(func() {
			m.stop(true)
			m.release()
		})
	}
	wg.Wait()
	if s.ownDir == nil {
		return nil
	}
	return s.ownDir.remove()
}

// failed records the first failure of a member. It reports whether the cluster was in
// use. While the cluster starts or closes, Start, New or Close reports the failure.
func (s *servers) failed(err error) (inUse bool) {
	s.mu.Lock()
	if s.failure == nil {
		s.failure = err
	}
	inUse = s.inUse
	s.mu.Unlock()
	s.abort(err)
	if !inUse {
		return false
	}
	// Written at once and not through the test, which may wait for ever for the member.
	fmt.Fprintf(os.Stderr, "%v\n%s", err, s.logged())
	if s.tb == nil {
		os.Exit(1) // there is no test to fail
	}
	return true
}

// started marks the end of the start, which returned err. It returns the failure if a
// member failed meanwhile, and otherwise err.
func (s *servers) started(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failure != nil {
		return s.failure
	}
	s.inUse = err == nil
	return err
}

// logged returns the buffered log with a heading, or "" if it is empty or there is no buffer.
func (s *servers) logged() string {
	if s.logBuf == nil || s.logBuf.String() == "" {
		return ""
	}
	return "log of etcd:\n" + s.logBuf.String()
}

// end begins the end of the members: no member starts from now on, and Close reports a failure.
func (s *servers) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closing, s.inUse = true, false
}

// ended reports whether end was called.
func (s *servers) ended() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closing
}

// firstFailure returns the first fatal error of etcd, or nil.
func (s *servers) firstFailure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failure
}
