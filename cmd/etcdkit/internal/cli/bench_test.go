package cli

import (
	"context"
	"errors"
	"regexp"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

func TestBench(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.also = []pattern{
		{regexp.MustCompile(`(?m)^([a-z ]+  \d)  \d+  \d+  .*ms$`), "$1  5000  1000  0.80ms  1.10ms  2.40ms  9.00ms"},
		{regexp.MustCompile(`"count":\d+`), `"count":5000`}, {regexp.MustCompile(`"per_second":[\d.e+]+`), `"per_second":1000`},
		{regexp.MustCompile(`"database_bytes":[1-9]\d*`), `"database_bytes":20971520`},
	}
	f.shell("bench")
	f.shell("bench --yes --duration 100ms --clients 3")
	f.shell("bench --yes --duration 100ms --clients 2 -o json")
	f.shell("bench --yes --duration 100ms --clients 1 --endpoints 127.0.0.1:1 --command-timeout 3s -o json")
	f.shell("bench --yes --clients 0")
	f.nothingLeft()
	f.golden("bench")
}

func TestBenchInterrupted(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ctx, cancel := context.WithCancelCause(testkit.Context(t))
	watch := f.etcd.Client().Watch(testkit.Context(t), f.prefix, clientv3.WithPrefix())
	done := make(chan result, 1)
	go func() { done <- f.runWith(ctx, "bench", "--yes", "--duration", "1h") }()
	testkit.Got(t, watch, "it writes")
	cancel(interrupted{syscall.SIGINT})
	r := testkit.Got(t, done, "it ends")
	require.Equal(t, 130, r.code, r.err)
	require.Empty(t, r.out)
	f.nothingLeft()
}

func TestSummarize(t *testing.T) {
	var took []time.Duration
	for n := range 200 {
		took = append(took, time.Duration(200-n)*time.Millisecond)
	}
	require.Equal(t, measured{"x", 3, 200, 100, seconds(100 * time.Millisecond), seconds(180 * time.Millisecond), seconds(198 * time.Millisecond), seconds(200 * time.Millisecond)},
		summarize("x", 3, took, 2*time.Second))
	require.Equal(t, measured{Name: "x", Clients: 1}, summarize("x", 1, nil, 0))
	one := summarize("x", 1, []time.Duration{time.Second}, time.Second)
	require.Equal(t, one.P50, one.Most)
}

// An operation that fails ends the measurement with its error.
func TestRepeatFails(t *testing.T) {
	wrong := errors.New("wrong")
	took, _, err := repeat(t.Context(), 3, time.Hour, time.Hour, func(ctx context.Context, client, n int) error {
		if client == 1 && n == 2 {
			return wrong
		}
		return nil
	})
	require.ErrorIs(t, err, wrong)
	require.NotEmpty(t, took)
}
