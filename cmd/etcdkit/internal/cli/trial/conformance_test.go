package trial_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/clitest"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/exit"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/trial"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/verb"
	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// A verb with a namespace of its own leaves no lease either, also none whose answer its client has not seen.
func TestScratchLeavesNoLease(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	var leases []int64
	err := trial.InScratch(testkit.Context(t), f.Call(io.Discard), "test", func(ctx context.Context, s *trial.Scratch) error {
		sess, err := s.Session(ctx, "test")
		require.NoError(t, err)
		require.NoError(t, s.Grant(ctx))
		leases = s.Leases()
		require.Contains(t, leases, int64(sess.Lease()))
		return nil
	})
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(leases), 2)
	for _, id := range leases {
		left, err := f.Etcd.Client().TimeToLive(testkit.Context(t), clientv3.LeaseID(id))
		require.NoError(t, err)
		require.Negative(t, left.TTL)
	}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	if f.Etcd.External() {
		t.Skip("its text is that of one member")
	}
	f.Shell("conformance --list")
	f.Shell("conformance")
	f.Shell("conformance --yes --only Limit,Order,Guard,Loss,Replay,OwnKeys --duration 500ms")
	f.Shell("conformance --yes --only Guard -o json")
	f.Shell("conformance --yes --only Speed")
	f.NothingLeft()
	f.Golden("conformance")
}

// A promise that is not kept is reported with what was seen, and is a failure.
func TestConformanceBroken(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	var out clitest.Writer
	a := &verb.Call{Output: "table", Std: verb.Streams{Out: &out, Err: &out}}
	all := []*trial.Kept{
		trial.NewKept("concurrency", "Limit", "no more are held", "", func(context.Context) error { return errors.New("4 were held under a limit of 3") }),
		trial.NewKept("idempotency", "Steps", "once", "not tested", func(context.Context) error { return errors.ErrUnsupported }),
		trial.NewKept("concurrency", "Order", "in order", "", func(context.Context) error { return nil }),
	}
	trial.TryAll(testkit.Context(t), a, all)
	err := trial.ReportPromises(a, all)
	code, text := exit.Explain(err)
	require.Equal(t, exit.Failed, code)
	f.Script.WriteString("$ etcdkit conformance\n" + string(out) + "etcdkit conformance: " + text + "\n[exit code 1]\n")
	out, a.Output = nil, "json"
	require.Error(t, trial.ReportPromises(a, all))
	f.Script.WriteString("$ etcdkit conformance -o json\n" + string(out))
	f.Golden("conformance-broken")
}

// An interruption in the middle removes everything, too.
func TestConformanceInterrupted(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	ctx, cancel := context.WithCancelCause(testkit.Context(t))
	watch := f.Etcd.Client().Watch(testkit.Context(t), f.Prefix, clientv3.WithPrefix())
	done := make(chan clitest.Result, 1)
	go func() {
		done <- f.RunWith(ctx, "conformance", "--yes", "--only", "Limit,Steps", "--duration", "1h")
	}()
	for events := 0; events < 100; { // in the middle
		events += len(testkit.Got(t, watch, "keys are written").Events)
	}
	cancel(exit.Interrupted{Signal: syscall.SIGINT})
	select {
	case r := <-done:
		require.Equal(t, 130, r.Code, r.Err)
	case <-time.After(testkit.Soon):
		t.Fatal("it does not end")
	}
	f.NothingLeft()
}

func TestConformanceUnreachable(t *testing.T) {
	t.Parallel()
	var out, errs clitest.Writer
	code := cli.Execute(t.Context(), []string{"conformance", "--yes", "--endpoints", "127.0.0.1:1", "--command-timeout", "200ms"}, verb.Streams{In: &bytes.Buffer{}, Out: &out, Err: &errs})
	require.Equal(t, exit.Unreachable, code, string(errs))
	require.Contains(t, string(errs), "etcd at 127.0.0.1:1")
}

// The test of the limit can fail: here another process raises the stored limit meanwhile.
func TestConformanceLimitCanFail(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	a := &verb.Call{Std: verb.Streams{Out: io.Discard, Err: io.Discard}}
	a.Etcd.Define(pflag.NewFlagSet("", pflag.ContinueOnError))
	a.Etcd.Endpoints, a.Etcd.Prefix = f.Etcd.Endpoints(), f.Prefix
	ctx := testkit.Context(t)
	for d := time.Second; ; d *= 2 {
		err := trial.InScratch(ctx, a, "conformance", func(ctx context.Context, s *trial.Scratch) error {
			sess, err := s.Session(ctx, "intruder")
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
			return trial.LimitIsKept(ctx, s, d)
		})
		if err == nil {
			continue // the limit was raised too late
		}
		require.ErrorContains(t, err, "permits were held at a time under a limit of 3")
		return
	}
}
