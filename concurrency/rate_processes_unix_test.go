//go:build unix

package concurrency_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/hostclock"
	"github.com/etcdkit/etcdkit/internal/proof/check"
)

// rateEnv has what a process of TestRateOfProcesses is given.
const rateEnv = "ETCDKIT_RATE"

// rateProcess is a process that takes all tokens that it gets, and what it has taken: each within a
// span of the host's clock.
type rateProcess struct {
	cmd   *exec.Cmd
	stdin io.Closer

	mu    sync.Mutex
	spans []check.Span
	read  chan struct{} // closed when there is nothing more to read
}

func startRateProcess(t *testing.T, given string) *rateProcess {
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(ctxT(t), self, "-test.run=^TestRateOfProcesses$", "-test.v")
	cmd.Env = append(os.Environ(), rateEnv+"="+given)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	p := &rateProcess{cmd: cmd, stdin: stdin, read: make(chan struct{})}
	t.Cleanup(func() { _ = cmd.Process.Kill(); <-p.read; _ = cmd.Wait() })
	go func() {
		defer close(p.read)
		for sc := bufio.NewScanner(out); sc.Scan(); {
			var from, to int64
			if n, _ := fmt.Sscanf(sc.Text(), "took %d %d", &from, &to); n == 2 {
				p.mu.Lock()
				p.spans = append(p.spans, check.Span{From: time.Unix(0, from), To: time.Unix(0, to)})
				p.mu.Unlock()
			}
		}
	}()
	return p
}

func (p *rateProcess) taken() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.spans)
}

// TestRateOfProcesses: real processes take tokens, one is stopped beyond its lease and runs on, one
// is killed. By the host's clock, and outside of etcd, they never take more than the rate and the
// burst allow.
func TestRateOfProcesses(t *testing.T) {
	if given := os.Getenv(rateEnv); given != "" {
		takeTokens(t, given)
		return
	}
	if testing.Short() {
		t.Skip("leases of processes have to end")
	}
	t.Parallel()
	f := shared(t)
	var on []*rateProcess
	for range 4 {
		on = append(on, startRateProcess(t, f.Root+" "+f.Endpoints()[0]))
	}
	more := func(p *rateProcess, n int, why string) {
		t.Helper()
		before := p.taken()
		require.Eventually(t, func() bool { return p.taken() >= before+n }, soon, 10*tick, why)
	}
	for _, p := range on {
		more(p, 20, "each has a share")
	}
	stopped, killed := on[0], on[1]
	require.NoError(t, stopped.cmd.Process.Signal(syscall.SIGSTOP))
	require.Eventually(t, func() bool { return len(f.Keys("/alive")) == len(on)-1 }, soon, 10*tick, "its lease ends, and others take its shares")
	more(on[2], 50, "the others go on")
	before := stopped.taken()
	require.NoError(t, stopped.cmd.Process.Signal(syscall.SIGCONT))
	more(stopped, 20, "it has new shares")
	require.NoError(t, killed.cmd.Process.Kill())
	more(on[3], 100, "the others go on")
	var spans []check.Span
	for _, p := range on {
		_ = p.stdin.Close()
		if p != killed {
			<-p.read
		}
		p.mu.Lock()
		spans = append(spans, p.spans...)
		p.mu.Unlock()
	}
	t.Logf("%d tokens; the stopped process had %d before and %d after", len(spans), before, stopped.taken()-before)
	require.NoError(t, check.Rate(spans, rateOfProcesses.PerSecond, rateOfProcesses.Burst))
}

var rateOfProcesses = concurrency.Rate{PerSecond: 100, Burst: 20}

func takeTokens(t *testing.T, given string) {
	var prefix, endpoint string
	_, err := fmt.Sscan(given, &prefix, &endpoint)
	require.NoError(t, err)
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}})
	require.NoError(t, err)
	defer c.Close()
	o := quick()
	o.Prefix = prefix
	s, err := concurrency.NewSession(ctxT(t), c, "test", o)
	require.NoError(t, err)
	defer func() { _ = s.Close(ctxT(t)) }()
	l, err := concurrency.NewRateLimiter(s, "x", rateOfProcesses, nil)
	require.NoError(t, err)
	var ended sync.WaitGroup
	stop := make(chan struct{})
	ended.Go(func() { _, _ = io.Copy(io.Discard, os.Stdin); close(stop) })
	defer ended.Wait()
	for {
		from := hostclock.Now()
		err := l.Allow()
		to := hostclock.Now()
		switch {
		case err == nil:
			fmt.Printf("took %d %d\n", from, to)
			continue
		case errors.Is(err, concurrency.ErrLimitMismatch), errors.Is(err, concurrency.ErrInvalid):
			require.NoError(t, err)
		}
		select {
		case <-stop:
			return
		case <-time.After(tick):
		}
	}
}
