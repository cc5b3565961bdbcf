package cli

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// nothingLeft asserts that no key is left below the prefix.
func (f *fixture) nothingLeft() {
	f.t.Helper()
	require.Empty(f.t, testkit.Keys(f.t, f.etcd, f.prefix, ""))
}

// A verb with a namespace of its own leaves no lease either, also none whose answer its client has not seen.
func TestScratchLeavesNoLease(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var leases []int64
	err := f.app(io.Discard).scratch(testkit.Context(t), "test", func(ctx context.Context, s *scratch) error {
		sess, err := s.session(ctx, brisk("test"))
		require.NoError(t, err)
		_, err = s.clients[0].Grant(ctx, 600)
		require.NoError(t, err)
		leases = slices.Collect(maps.Keys(s.leases))
		require.Contains(t, leases, int64(sess.Lease()))
		return nil
	})
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(leases), 2)
	for _, id := range leases {
		left, err := f.etcd.Client().TimeToLive(testkit.Context(t), clientv3.LeaseID(id))
		require.NoError(t, err)
		require.Negative(t, left.TTL)
	}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.shell("conformance --list")
	f.shell("conformance")
	f.shell("conformance --yes --only Limit,Order,Guard,Loss,Replay,OwnKeys --duration 500ms")
	f.shell("conformance --yes --only Guard -o json")
	f.shell("conformance --yes --only Speed")
	f.nothingLeft()
	f.golden("conformance")
}

// A promise that is not kept is reported with what was seen, and is a failure.
func TestConformanceBroken(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var out writer
	a := &app{output: "table", std: Streams{Out: &out, Err: &out}}
	all := []*kept{
		{Name: "Limit", Of: "concurrency", Text: "no more are held", try: func(context.Context) error { return errors.New("4 were held under a limit of 3") }},
		{Name: "Steps", Of: "idempotency", Text: "once", Result: "not tested", try: func(context.Context) error { return errors.ErrUnsupported }},
		{Name: "Order", Of: "concurrency", Text: "in order", try: func(context.Context) error { return nil }},
	}
	a.tryAll(testkit.Context(t), all)
	err := a.reportPromises(all)
	code, text := explain(err)
	require.Equal(t, exitFailed, code)
	f.script.WriteString("$ etcdkit conformance\n" + string(out) + "etcdkit conformance: " + text + "\n[exit code 1]\n")
	out, a.output = nil, "json"
	require.Error(t, a.reportPromises(all))
	f.script.WriteString("$ etcdkit conformance -o json\n" + string(out))
	f.golden("conformance-broken")
}

// writer keeps what is written.
type writer []byte

func (w *writer) Write(p []byte) (int, error) { *w = append(*w, p...); return len(p), nil }

// An interruption in the middle removes everything, too.
func TestConformanceInterrupted(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ctx, cancel := context.WithCancelCause(testkit.Context(t))
	watch := f.etcd.Client().Watch(testkit.Context(t), f.prefix, clientv3.WithPrefix())
	done := make(chan result, 1)
	go func() {
		done <- f.runWith(ctx, "conformance", "--yes", "--only", "Limit,Steps", "--duration", "1h")
	}()
	for events := 0; events < 100; { // in the middle
		events += len(testkit.Got(t, watch, "keys are written").Events)
	}
	cancel(interrupted{syscall.SIGINT})
	select {
	case r := <-done:
		require.Equal(t, 130, r.code, r.err)
	case <-time.After(testkit.Soon):
		t.Fatal("it does not end")
	}
	f.nothingLeft()
}

func TestConformanceUnreachable(t *testing.T) {
	t.Parallel()
	var out, errs writer
	code := execute(t.Context(), []string{"conformance", "--yes", "--endpoints", "127.0.0.1:1", "--command-timeout", "200ms"}, Streams{In: &bytes.Buffer{}, Out: &out, Err: &errs})
	require.Equal(t, exitUnreachable, code, string(errs))
	require.Contains(t, string(errs), "etcd at 127.0.0.1:1")
}

// The test of the limit can fail: here another process raises the stored limit meanwhile.
func TestConformanceLimitCanFail(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	a := &app{std: Streams{Out: io.Discard, Err: io.Discard}}
	a.etcd.define(pflag.NewFlagSet("", pflag.ContinueOnError))
	a.etcd.Endpoints, a.etcd.prefix = f.etcd.Endpoints(), f.prefix
	ctx := testkit.Context(t)
	for d := time.Second; ; d *= 2 {
		err := a.scratch(ctx, "conformance", func(ctx context.Context, s *scratch) error {
			sess, err := s.session(ctx, brisk("intruder"))
			require.NoError(t, err)
			sem, err := concurrency.NewSemaphore(sess, "limit", 0, &concurrency.SemaphoreOptions{AdoptLimit: true})
			require.NoError(t, err)
			raised := make(chan struct{})
			go func() {
				defer close(raised)
				for sem.SetLimit(ctx, 12) != nil { // until the limit is stored
					time.Sleep(time.Millisecond)
				}
			}()
			defer func() { <-raised }()
			return limitIsKept(ctx, s, d)
		})
		if err == nil {
			continue // the limit was raised too late
		}
		require.ErrorContains(t, err, "permits were held at a time under a limit of 3")
		return
	}
}
