package engine

import (
	"context"
	"errors"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/commit"
)

// ErrLeaseless: a call needs the lease of a session that has none.
var ErrLeaseless = errors.New("the session has no lease: it can acquire nothing")

type leaselessKey struct{}

// Leaseless derives a ctx with which New starts a session without a lease, for tools that read, and change what
// others have written. It writes nothing itself, so it needs read permission alone until a call changes
// something, works while etcd has no space for a lease, and is not shown among the sessions. Calls that
// would write on its lease return ErrLeaseless.
func Leaseless(ctx context.Context) context.Context {
	return context.WithValue(ctx, leaselessKey{}, true)
}

// Leaseless reports whether the session has no lease.
func (s *Session) Leaseless() bool { return s.leaseless }

// openLeaseless ends New for a session without a lease. One read shows that etcd answers, and permits it.
func (s *Session) openLeaseless(ctx context.Context) (*Session, error) {
	close(s.ran)
	root := s.space.Root()
	resp, err := s.Read(ctx, root, clientv3.WithRange(clientv3.GetPrefixRangeEnd(root)), clientv3.WithLimit(1), clientv3.WithKeysOnly())
	if err == nil && resp.Header.GetClusterId() == 0 {
		err = commit.ErrNotEtcd
	}
	if err != nil {
		s.work.refuse()
		s.stop()
		s.etcd.Close()
		return nil, s.Explain(err)
	}
	return s, nil
}
