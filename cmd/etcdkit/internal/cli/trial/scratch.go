// Package trial has the verbs that measure and test on the user's own cluster, bench and conformance, in a
// namespace that they make and remove.
package trial

import (
	"cmp"
	"context"
	crypto "crypto/rand"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/exit"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/verb"
	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/join"
	"github.com/etcdkit/etcdkit/internal/keyspace"
)

// scratch is a namespace that a verb makes for itself, below --prefix and with a random part, and removes
// when it ends, for whatever reason.
type scratch struct {
	call      *verb.Call
	config    clientv3.Config
	namespace string
	space     keyspace.Space
	etcd      *clientv3.Client // of the verb itself

	mu       sync.Mutex
	clients  []*clientv3.Client
	sessions []*concurrency.Session
	leases   map[int64]bool // that were asked for, and were not revoked
}

// unique returns a name with a random part.
func unique(name string) string { return "etcdkit-" + name + "-" + strings.ToLower(crypto.Text()[:10]) }

// inScratch runs fn with a namespace of its own.
func inScratch(ctx context.Context, c *verb.Call, name string, fn func(context.Context, *scratch) error) (err error) {
	config, err := c.Etcd.ClientConfig(ctx)
	if err != nil {
		return err
	}
	s := &scratch{call: c, config: *config, namespace: unique(name), leases: map[int64]bool{}}
	s.config.DialOptions = append(slices.Clip(s.config.DialOptions), grpc.WithChainUnaryInterceptor(s.follow))
	if s.space, err = keyspace.New(c.Etcd.Prefix, s.namespace); err != nil {
		return exit.AsUsage(err)
	}
	if s.etcd, err = c.Etcd.Client(ctx); err != nil {
		return err
	}
	defer func() { err = join.Errors(err, s.remove(context.WithoutCancel(ctx))) }()
	return fn(ctx, s)
}

// follow keeps which leases the clients have. Each has an ID before it is asked for, so that one whose answer does not
// come is revoked at the end, too.
func (s *scratch) follow(
	ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
) error {
	switch r := req.(type) {
	case *etcdserverpb.LeaseGrantRequest:
		named := &etcdserverpb.LeaseGrantRequest{TTL: r.TTL, ID: cmp.Or(r.ID, rand.Int64())}
		s.mu.Lock()
		s.leases[named.ID] = true
		s.mu.Unlock()
		req = named
	case *etcdserverpb.LeaseRevokeRequest:
		err := invoke(ctx, method, req, reply, cc, opts...)
		if err == nil {
			s.mu.Lock()
			delete(s.leases, r.ID)
			s.mu.Unlock()
		}
		return err
	}
	return invoke(ctx, method, req, reply, cc, opts...)
}

// reach returns an error if etcd cannot be reached, denies the user, or refuses a write: no promise is broken
// by that, and nothing can be measured.
func reach(ctx context.Context, c *verb.Call) error {
	space, err := keyspace.New(c.Etcd.Prefix, unique("probe"))
	if err != nil {
		return exit.AsUsage(err)
	}
	return c.WithClient(ctx, func(ctx context.Context, client *clientv3.Client) error {
		key := space.Root() + "probe" // etcd checks permissions and space for writes that are not made, too
		if _, err := client.Txn(ctx).If(clientv3.Compare(clientv3.Version(key), "<", 0)).Then(clientv3.OpPut(key, "")).Commit(); err != nil {
			return c.Etcd.Unreachable(err)
		}
		return nil
	})
}

// session opens a session on a connection of its own: to etcd, another process.
func (s *scratch) session(ctx context.Context, opts *concurrency.SessionOptions) (*concurrency.Session, error) {
	client, err := clientv3.New(s.config)
	if err != nil {
		return nil, s.call.Etcd.Unreachable(err)
	}
	s.mu.Lock()
	s.clients = append(s.clients, client)
	s.mu.Unlock()
	opts.Prefix = s.call.Etcd.Prefix
	ctx, cancel := context.WithTimeout(ctx, s.call.Etcd.Timeout)
	defer cancel()
	sess, err := concurrency.NewSession(ctx, client, s.namespace, opts)
	if err != nil {
		return nil, s.call.Etcd.Unreachable(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sessions = append(s.sessions, sess)
	return sess, nil
}

// remove closes the sessions, and removes all that they have asked etcd for: the keys of the namespace and the leases.
func (s *scratch) remove(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*s.call.Etcd.Timeout)
	defer cancel()
	soon, end := context.WithTimeout(ctx, s.call.Etcd.Timeout)
	defer end()
	var closing sync.WaitGroup
	for _, sess := range s.sessions {
		closing.Go(func() { _ = sess.Close(soon) })
	}
	closing.Wait()
	for _, c := range s.clients {
		verb.Close(c)
	}
	defer verb.Close(s.etcd)
	for pass := 0; ; pass++ {
		resp, err := s.etcd.Delete(ctx, s.space.Root(), clientv3.WithPrefix())
		if err != nil {
			return fmt.Errorf("keys with the prefix %s may be left: delete them with etcdctl: %w", s.space.Root(), err)
		}
		revoked, err := s.revoke(ctx)
		if err != nil {
			return fmt.Errorf("revoke the leases, which expire else: %w", err)
		}
		if pass > 0 && resp.Deleted == 0 && !revoked {
			return nil
		}
		time.Sleep(settling)
	}
}

// revoke revokes the leases that are left, and reports whether there were any.
func (s *scratch) revoke(ctx context.Context) (some bool, err error) {
	s.mu.Lock()
	leases := slices.Collect(maps.Keys(s.leases))
	s.mu.Unlock()
	for _, id := range leases {
		switch _, err := s.etcd.Revoke(ctx, clientv3.LeaseID(id)); {
		case err == nil:
			some = true
		case !errors.Is(err, rpctypes.ErrLeaseNotFound):
			return some, err
		}
	}
	return some, nil
}

// settling is the time in which etcd executes what it has received of a client that is closed.
const settling = 50 * time.Millisecond

// brisk are options of sessions whose losses are noticed soon.
func brisk(owner string) *concurrency.SessionOptions {
	return &concurrency.SessionOptions{TTL: 5 * time.Second, Owner: owner}
}
