package members_test

import (
	"context"
	"fmt"
	"net"
	"path"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/namespace"
	"google.golang.org/grpc"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/members"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// M6: connections beside a client whose KV is wrapped would leave out what the wrapping does.
func TestWrappedClient(t *testing.T) {
	t.Parallel()
	c := embedtest.Start(t, &embedtest.Options{Members: 3})
	for name, wrap := range map[string]func(*clientv3.Client){
		"plain":   func(*clientv3.Client) {},
		"KV":      func(c *clientv3.Client) { c.KV = namespace.NewKV(c.KV, "team-a/") },
		"Watcher": func(c *clientv3.Client) { c.Watcher = namespace.NewWatcher(c.Watcher, "team-a/") },
		"Lease":   func(c *clientv3.Client) { c.Lease = namespace.NewLease(c.Lease, "team-a/") },
	} {
		client := c.NewClient(t, nil).Client
		wrap(client)
		e, log := session(t, client)
		said := log.FilterMessageSnippet("is not etcd's own").Len()
		require.Equal(t, name != "plain", e.Wrapped, name)
		if name == "plain" {
			require.Zero(t, said)
			require.NotSame(t, client.KV, e.KV)
			continue
		}
		require.Equal(t, 1, said, name)
		require.Equal(t, client.KV, e.KV, name)
		require.Equal(t, client.Watcher, e.Watcher, name)
		require.Equal(t, client.Lease, e.Lease, name)
	}
	client := c.NewClient(t, &embedtest.ClientOptions{Endpoints: c.Endpoints()[:1]}).Client
	e, log := session(t, client)
	require.Equal(t, client.KV, e.KV, "there is no other member")
	require.Zero(t, log.Len())
}

// network counts the connections of a client and what is sent.
type network struct {
	open atomic.Int64
	mu   sync.Mutex
	sent map[string]int
}

type counted struct {
	net.Conn
	closed func()
}

func (c counted) Close() error { c.closed(); return c.Conn.Close() }

func (n *network) configure(c *clientv3.Config) {
	n.sent = map[string]int{}
	c.DialOptions = append(c.DialOptions,
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
			if err != nil {
				return nil, err
			}
			n.open.Add(1)
			return counted{conn, sync.OnceFunc(func() { n.open.Add(-1) })}, nil
		}),
		grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			n.mu.Lock()
			n.sent[path.Base(method)]++
			n.mu.Unlock()
			return invoke(ctx, method, req, reply, cc, opts...)
		}))
}

// methods returns the methods that were called.
func (n *network) methods() (all []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for m := range n.sent {
		all = append(all, m)
	}
	slices.Sort(all)
	return all
}

// In calm no connection and no request is added; in trouble one connection to each member, and probes that
// change nothing; afterwards none.
func TestConnections(t *testing.T) {
	t.Parallel()
	c := etcd(t)
	var n network
	e, log := session(t, client(t, c, n.configure))
	puts := func(d time.Duration) {
		done := make(chan struct{})
		time.AfterFunc(d, func() { close(done) })
		longest(t, e, 4, done)
	}
	puts(500 * time.Millisecond)
	require.EqualValues(t, 3, n.open.Load())
	require.Equal(t, []string{"Put"}, n.methods())
	victim := follower(t, c)
	require.NoError(t, c.Member(victim).Pause())
	puts(2 * time.Second)
	require.EqualValues(t, 6, n.open.Load())
	require.Equal(t, []string{"Check", "Put", "Status"}, n.methods(), "M10: probes are reads")
	require.NoError(t, c.Member(victim).Resume())
	require.Eventually(t, func() bool { return log.FilterMessageSnippet("answers again").Len() == 1 }, testkit.Soon, 10*time.Millisecond)
	require.Eventually(t, func() bool { return n.open.Load() == 3 }, testkit.Soon, 50*time.Millisecond, "all goes by the client again")
	puts(500 * time.Millisecond)
	require.EqualValues(t, 3, n.open.Load())
}

// M13: a stream that moves to another member has all events, each once and in order.
func TestWatchesMove(t *testing.T) {
	t.Parallel()
	c := etcd(t)
	const watchers, events = 6, 300
	writer, _ := session(t, client(t, c))
	began, err := writer.Put(ctxT(t), "begin", "")
	require.NoError(t, err)
	var wg sync.WaitGroup
	for range watchers {
		e, _ := session(t, client(t, c))
		watch := e.Watch(clientv3.WithRequireLeader(ctxT(t)), "event", clientv3.WithRev(began.Header.Revision+1), clientv3.WithCreatedNotify())
		<-watch
		defer e.Await()() // as a caller that waits for it
		wg.Go(func() {
			for n := 0; n < events; {
				for _, ev := range (<-watch).Events {
					if want := fmt.Sprint(n); string(ev.Kv.Value) != want {
						t.Errorf("event %s, want %s", ev.Kv.Value, want)
					}
					n++
				}
				if ctxErr := t.Context().Err(); ctxErr != nil || t.Failed() {
					return
				}
			}
		})
	}
	victim := follower(t, c)
	for i := range events {
		if i == events/3 {
			stop(t, c, victim)
		}
		if i == events*2/3 {
			require.NoError(t, c.Member(victim).Resume())
		}
		// A copy that the stopped member sends on when it continues must find that the next event has come.
		is := clientv3.Compare(clientv3.Value("event"), "=", fmt.Sprint(i-1))
		if i == 0 {
			is = clientv3.Compare(clientv3.CreateRevision("event"), "=", 0)
		}
		for {
			_, err := writer.Txn(ctxT(t)).If(is).Then(clientv3.OpPut("event", fmt.Sprint(i))).Commit()
			if err == nil {
				break
			}
			require.True(t, members.Unanswered(err), err)
		}
		time.Sleep(5 * time.Millisecond)
	}
	begun := time.Now()
	wg.Wait()
	t.Logf("the last watcher was done after %v", time.Since(begun))
}

// M7: with users etcd's client logs in for each stream, round robin.
func TestStoppedFollowerWithUsers(t *testing.T) {
	t.Parallel()
	c := etcd(t)
	require.NoError(t, c.EnableAuth(ctxT(t), "root", "secret"))
	victim := follower(t, c)
	var n network
	e, log := session(t, client(t, c, n.configure, func(c *clientv3.Config) { c.Username, c.Password = "root", "secret" }))
	_, err := e.Put(ctxT(t), "k", "1")
	require.NoError(t, err)
	stop(t, c, victim)
	done := make(chan struct{})
	time.AfterFunc(4*time.Second, func() { close(done) })
	streams := make(chan time.Duration)
	go func() {
		var most time.Duration
		defer func() { streams <- most }()
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			default:
			}
			begun := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			<-e.Watch(clientv3.WithRequireLeader(ctx), fmt.Sprint("w", i), clientv3.WithCreatedNotify())
			cancel()
			most = max(most, time.Since(begun))
		}
	}()
	most := longest(t, e, 4, done)
	opening := <-streams
	n.mu.Lock()
	defer n.mu.Unlock()
	t.Logf("the longest put took %v, the longest opening of a watch %v; %d logins", most, opening, n.sent["Authenticate"])
	require.Less(t, most, 2500*time.Millisecond)
	require.Less(t, opening, 15*time.Second, "without this it never ends")
	require.Equal(t, 1, log.FilterMessageSnippet("does not answer while others do").Len(), "%v", log.All())
}
