package trial

import (
	"context"
	"fmt"
	"time"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/idempotency"
)

// workload is one measurement. prepare returns its operation: the nth of a client.
type workload struct {
	name      string
	contended bool // by all clients
	prepare   func(ctx context.Context, s *scratch, clients int) (func(ctx context.Context, client, n int) error, error)
}

var workloads = []workload{
	{"bare write", false, bareWrite},
	{"acquire and release", false, uncontended},
	{"contended lock", true, contendedLock},
	{"request done once", false, doneOnce},
}

func bareWrite(_ context.Context, s *scratch, _ int) (func(context.Context, int, int) error, error) {
	key := s.space.Root() + "bare"
	return func(ctx context.Context, _, _ int) error {
		_, err := s.etcd.Put(ctx, key, "x")
		return err
	}, nil
}

func uncontended(ctx context.Context, s *scratch, _ int) (func(context.Context, int, int) error, error) {
	sess, err := s.session(ctx, &concurrency.SessionOptions{Owner: "bench"})
	if err != nil {
		return nil, err
	}
	sem, err := concurrency.NewSemaphore(sess, "uncontended", 1, nil)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, _, _ int) error {
		return sem.Do(ctx, func(context.Context, *concurrency.Permit) error { return nil })
	}, nil
}

func contendedLock(ctx context.Context, s *scratch, clients int) (func(context.Context, int, int) error, error) {
	locks := make([]*concurrency.Mutex, clients)
	for i := range locks {
		sess, err := s.session(ctx, &concurrency.SessionOptions{Owner: fmt.Sprintf("bench %d", i)})
		if err != nil {
			return nil, err
		}
		if locks[i], err = concurrency.NewMutex(sess, "contended"); err != nil {
			return nil, err
		}
	}
	return func(ctx context.Context, client, _ int) error {
		return locks[client].Do(ctx, func(context.Context, *concurrency.Permit) error { return nil })
	}, nil
}

// doneOnce executes new requests. Their leases expire soon after the end.
func doneOnce(ctx context.Context, s *scratch, _ int) (func(context.Context, int, int) error, error) {
	sess, err := s.session(ctx, &concurrency.SessionOptions{Owner: "bench"})
	if err != nil {
		return nil, err
	}
	store, err := idempotency.NewStore(sess, "bench", &idempotency.Options{Retain: time.Minute, RetainUnknown: time.Minute})
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, client, n int) error {
		key := idempotency.Key{Scope: "bench", Op: "bench", ID: fmt.Sprintf("%d-%d", client, n)}
		_, err := idempotency.Do(ctx, store, key, "payload", func(context.Context, *idempotency.Attempt) (string, error) { return "result", nil })
		return err
	}, nil
}

// server is one member of the cluster as JSON.
type server struct {
	Endpoint string `json:"endpoint"`
	Version  string `json:"version,omitempty"`
	Leader   bool   `json:"leader"`
	Size     int64  `json:"database_bytes"`
	Error    string `json:"error,omitempty"`
}

func (s server) role() string {
	switch {
	case s.Error != "":
		return "no answer"
	case s.Leader:
		return "leader"
	}
	return "follower"
}

// servers asks the endpoints for their versions.
func (s *scratch) servers(ctx context.Context) (all []server) {
	for _, at := range s.etcd.Endpoints() {
		call, cancel := context.WithTimeout(ctx, s.call.Etcd.Timeout)
		st, err := s.etcd.Status(call, at)
		cancel()
		sv := server{Endpoint: at}
		if err != nil {
			sv.Error = err.Error()
		} else {
			sv.Version, sv.Leader, sv.Size = st.Version, st.Leader == st.Header.GetMemberId(), st.DbSize
		}
		all = append(all, sv)
	}
	return all
}
