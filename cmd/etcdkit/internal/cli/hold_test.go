package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
	"github.com/etcdkit/etcdkit/observe"
)

// A permit of hold stays when the command has ended, is found by its ID, and leaves nothing when it is
// released.
func TestHold(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.also = []pattern{{regexp.MustCompile(` --prefix \S+`), ""}} // that of the test, where users have the default
	f.shell("hold -N test production --id deploy-42 --for 30m")
	st := f.status("production")
	require.Len(t, st.Holders, 1)
	require.Equal(t, "deploy-42", st.Holders[0].ID)
	f.shows(st.Holders[0].Token, "4711")
	f.shell("show -N test production")
	f.shell("hold -N test production --id deploy-42 --for 30m --no-wait")
	f.shell("hold -N test production --id deploy-43 --for 30m --no-wait")
	f.shell("release -N test production --id deploy-43")
	f.shell("release -N test production --id deploy-42 --token 4712") // of another attempt
	f.shell("evict -N test mutex/production 4711 --yes")              // which has no process
	require.Len(t, f.status("production").Holders, 1)
	f.shell("release -N test production --id deploy-42 --token 4711")
	f.shell("release -N test mutex/production --id deploy-42")
	f.shell("release -N test limiter/api --id deploy-42")
	require.Empty(t, testkit.Keys(t, f.etcd, f.prefix, "mutex"), "no request is left")
	leases, err := f.etcd.Client().Leases(testkit.Context(t))
	require.NoError(t, err)
	for _, l := range leases.Leases {
		require.NotEqual(t, st.Holders[0].Lease, l.ID, "its lease is revoked")
	}
	r := f.shell("hold -N test staging --limit 3 --id build-7 --for 10m -o json")
	var held struct{ Token string }
	require.NoError(t, json.Unmarshal([]byte(r.out), &held))
	f.shows(held.Token, "4720")
	f.shell("hold -N test staging --limit 4 --id build-8 --for 10m")
	f.shell("release -N test staging --id build-7 -o json")
	f.shell("hold -N test production --for 30m")
	f.shell("hold -N test production --id x --for 1s")
	f.shell("hold -N test production --id x --for 30m --lock --limit 3")
	f.shell("hold -N test production --id x --for 30m --leader")
	f.golden("hold")
}

// A permit of hold that is taken by force leaves no lease, which would show its session as live.
func TestEvictHold(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	require.Zero(t, f.run("hold", "-N", "test", "x", "--id", "a", "--for", "30m").code)
	held := f.status("x").Holders[0]
	r := f.run("evict", "-N", "test", "x", strconv.FormatInt(held.Token, 10), "--yes", "--force")
	require.Zero(t, r.code, r.err)
	require.Empty(t, testkit.Keys(t, f.etcd, f.prefix, "mutex"))
	left, err := f.etcd.Client().TimeToLive(testkit.Context(t), held.Lease)
	require.NoError(t, err)
	require.Negative(t, left.TTL)
}

// A permit that is granted as etcd goes away may last as long as --for: hold says so.
func TestHoldThroughAnOutage(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var gone atomic.Bool
	var errs bytes.Buffer
	unavailable := status.Error(codes.Unavailable, "for a test")
	a := f.app(&errs,
		grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			if gone.Load() {
				return unavailable
			}
			return invoke(ctx, method, req, reply, cc, opts...)
		}),
		grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			if strings.HasSuffix(method, "/LeaseKeepAlive") && (gone.Load() || len(testkit.Keys(t, f.etcd, f.prefix, "mutex/")) > 0) {
				gone.Store(true)
				time.Sleep(10 * time.Millisecond) // etcd's client opens it again at once
				return nil, unavailable
			}
			return open(ctx, desc, cc, method, opts...)
		}))
	require.Error(t, a.keep(testkit.Context(t), asking{id: "a"}, concurrency.KindMutex, "x", 30*time.Minute))
	a.messages.close()
	testkit.Closed(t, a.messages.done, "its messages are written")
	require.Contains(t, errs.String(), "it may hold a permit now or later, for 30m0s. This removes it: etcdkit release -N test --prefix "+f.prefix+" mutex/x --id a\n")
	require.Zero(t, f.run("release", "-N", "test", "mutex/x", "--id", "a").code)
}

// An ID may be no text. Then two may be shown alike, and each is released by its own.
func TestIDsThatAreNoText(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	sm, err := concurrency.NewSemaphore(f.session(runOwner+"ada"), "x", 3, nil)
	require.NoError(t, err)
	f.permit(sm.Acquire(testkit.Context(t), concurrency.ID("job-\xfd")))
	for _, id := range []string{"job-\xff", "job-\xfe"} {
		r := f.run("hold", "-N", "test", "x", "--limit", "3", "--id", id, "--for", "10m")
		require.Zero(t, r.code, r.err)
	}
	st, err := sm.Status(testkit.Context(t))
	require.NoError(t, err)
	r := f.run("evict", "-N", "test", "semaphore/x", strconv.FormatInt(st.Holders[1].Token, 10), "--yes")
	require.Contains(t, r.err, "etcdkit release -N test --prefix "+f.prefix+" semaphore/x --id, with the ID that hold was given")
	for _, id := range []string{"job-\xfe", "job-\xff"} {
		require.Zero(t, f.run("release", "-N", "test", "x", "--id", id).code, "%q", id)
		require.Equal(t, 1, f.run("release", "-N", "test", "x", "--id", id).code, "%q", id)
	}
	r = f.run("release", "-N", "test", "x", "--id", "job-\xfd")
	require.Equal(t, 1, r.code)
	require.Contains(t, r.err, "is of a command that may still work")
}

// status reads a mutex.
func (f *fixture) status(name string) concurrency.Status {
	f.t.Helper()
	m, err := concurrency.NewMutex(f.session("test"), name)
	require.NoError(f.t, err)
	st, err := m.Status(testkit.Context(f.t), concurrency.CheckLeases())
	require.NoError(f.t, err)
	return st
}

// A permit that no step releases ends by itself, and the next one is admitted.
func TestHoldEnds(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	begun := time.Now()
	r := f.run("hold", "-N", "test", "x", "--id", "a", "--for", "5s")
	require.Zero(t, r.code, r.err)
	r = f.run("hold", "-N", "test", "x", "--id", "b", "--for", "10m", "--wait", "1m")
	require.Zero(t, r.code, r.err)
	require.Regexp(t, `waiting for mutex/x: 1st in the queue, behind etcdkit hold by .* \(\w+, until [0-9:]+ UTC at the latest if it does not renew\)`, r.err, "in the first report")
	require.NotContains(t, r.err, "\x1b")
	st := f.status("x")
	require.Len(t, st.Holders, 1, "%s%s%+v", r.out, r.err, st)
	require.Equal(t, "b", st.Holders[0].ID)
	granted := begun.Add(5 * time.Second) // or later
	require.Greater(t, st.Holders[0].ExpiresBy, granted.Add(10*time.Minute-2*time.Second), "it counts from the grant")
}

// A wait that is interrupted leaves no request.
func TestHoldIsWithdrawn(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	r := f.run("hold", "-N", "test", "x", "--id", "a", "--for", "30m")
	require.Zero(t, r.code, r.err)
	ctx, cancel := context.WithCancelCause(testkit.Context(t))
	defer cancel(nil)
	errs := &signalled{at: "waiting for mutex/x", do: func() { cancel(interrupted{syscall.SIGINT}) }}
	args := []string{"hold", "x", "--id", "b", "--for", "30m", "-N", "test", "--endpoints", strings.Join(f.etcd.Endpoints(), ","), "--prefix", f.prefix}
	require.Equal(t, 130, execute(ctx, args, Streams{In: strings.NewReader(""), Out: &bytes.Buffer{}, Err: errs}))
	st := f.status("x")
	require.Empty(t, st.Waiters)
	require.Equal(t, "a", st.Holders[0].ID)
}

func TestWaitingFor(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	holder := func(name string, age time.Duration) observe.Holder {
		return observe.Holder{Owner: name, Requested: now.Add(-age)}
	}
	sure := holder("web-7", 250*time.Second)
	sure.ExpiresBy = now.Add(10 * time.Second)
	many := make([]observe.Holder, 10)
	for i := range many {
		many[i] = holder("web", time.Minute)
	}
	for text, w := range map[string]observe.Waiting{
		"waiting for semaphore/x: at most 500 requests before this one":                                                          {Ahead: 500},
		"waiting for semaphore/x: 3rd in the queue, behind web-7 (4m10s, until 12:00:10 UTC at the latest if it does not renew)": {Ahead: 3, Blocking: []observe.Holder{sure}},
		"waiting for semaphore/x: 1st in the queue, behind a (1s), b (2s), c (3s)":                                               {Ahead: 3, Blocking: []observe.Holder{holder("a", time.Second), holder("b", 2*time.Second), holder("c", 3*time.Second)}},
		"waiting for semaphore/x: 1st in the queue, behind a (1s), a (1s), 2 others":                                             {Ahead: 4, Blocking: []observe.Holder{holder("a", time.Second), holder("a", time.Second), holder("a", time.Second), holder("a", time.Second)}},
		"waiting for semaphore/x: 40 requests before this one, the oldest of web (1m0s), web (1m0s), 8 others":                   {Ahead: 40, Blocking: many},
		"waiting for semaphore/x: it is paused by a limit of 0 ('etcdkit limit' changes it)":                                     {Ahead: 1, Blocking: []observe.Holder{sure}},
	} {
		w.Name = "x"
		if w.Limit = 2; strings.Contains(text, "paused") {
			w.Limit = 0
		}
		require.Equal(t, text, waitingFor(concurrency.KindSemaphore, w, now))
	}
}

// full is an output that cannot be written.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// A permit of which the caller learns no token is not kept.
func TestHoldThatCannotBePrinted(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var errs bytes.Buffer
	args := []string{"hold", "x", "--id", "a", "--for", "30m", "-N", "test", "--endpoints", strings.Join(f.etcd.Endpoints(), ","), "--prefix", f.prefix}
	require.Equal(t, exitFailed, execute(testkit.Context(t), args, Streams{In: strings.NewReader(""), Out: full{}, Err: &errs}))
	require.Contains(t, errs.String(), "its token cannot be printed: no space left on device; it is released")
	require.Empty(t, f.status("x").Holders)
}

// A request that is removed while it waits has never had a permit: its exit code is not that of a lost one.
func TestHoldIsRemovedWhileItWaits(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	r := f.run("hold", "-N", "test", "x", "--id", "a", "--for", "30m")
	require.Zero(t, r.code, r.err)
	errs := &signalled{at: "waiting for mutex/x", do: sync.OnceFunc(func() {
		require.Zero(t, f.run("release", "-N", "test", "x", "--id", "b").code)
	})}
	args := []string{"hold", "x", "--id", "b", "--for", "30m", "-N", "test", "--endpoints", strings.Join(f.etcd.Endpoints(), ","), "--prefix", f.prefix}
	require.Equal(t, exitNotAcquired, execute(testkit.Context(t), args, Streams{In: strings.NewReader(""), Out: &bytes.Buffer{}, Err: errs}))
	require.Contains(t, errs.String(), "the request was removed before it was granted")
}
