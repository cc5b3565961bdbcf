package chaos

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/proof/history"
)

// How long things may take when nothing harms them any more. A session that is
// lost needs a new lease; a dead one's permits come back after its TTL, half a
// second, and up to 7 s if the revocation fails at the server.
const (
	recovery = Slowness * 30 * time.Second
	cleanup  = 3 * time.Second
)

// quiescencePhase is the part of the run after the faults: everything must work again, and
// nothing may be left in etcd or in memory. It returns what does not hold.
func (env *Env) quiescencePhase(ctx context.Context, workloads []Workload) (findings []string) {
	env.mend("the members", func(ctx context.Context) error {
		for i := range env.Members() {
			if !env.answers(ctx, i, true) {
				return fmt.Errorf("member %d does not answer", i)
			}
		}
		return nil
	})
	env.mark(ctx, history.MarkHealthy)
	defer ProbeLatency(ctx, env.Recorder, env.Admin(), env.observers()...)()
	begun, before := time.Now(), env.Stats.Get(stoodStill)
	found := env.probe(ctx, workloads)
	still := time.Duration(env.Stats.Get(stoodStill)-before) * time.Millisecond
	if still > time.Since(begun)/4 { // leases do not survive that
		for _, f := range found {
			env.doubt("%s (all processes were stalled for %v of %v)", f, still, time.Since(begun).Round(time.Millisecond))
		}
		found = nil
	}
	findings = append(findings, found...)
	_ = Sleep(ctx, cleanup)
	env.mark(ctx, history.MarkIdle)
	findings = append(findings, env.left("after all permits were released", env.Space.Root()+"semaphore/", env.Space.Root()+"limiter/", env.Space.Root()+"mutex/", env.Space.Root()+"election/", env.Space.Root()+"request-id/")...)

	longest := time.Duration(0)
	for _, p := range env.Processes {
		longest = max(longest, p.plan.ttl)
		bounded, cancel := context.WithTimeout(ctx, recovery)
		if err := p.close(bounded); err != nil {
			findings = append(findings, fmt.Sprintf("%s: close: %v", p.Name, err))
		}
		cancel()
	}
	for end := time.Now().Add(longest + recovery); ; {
		left := env.left("after all sessions were closed", env.Space.Root())
		if len(left) == 0 {
			break
		}
		if time.Now().After(end) {
			findings = append(findings, left...)
			break
		}
		_ = Sleep(ctx, 100*time.Millisecond)
	}
	env.mark(ctx, history.MarkDrained)
	return findings
}

// mark records that the run has reached a phase, when the tap has seen all before.
func (env *Env) mark(ctx context.Context, phase string) {
	ctx, cancel := context.WithTimeout(ctx, recovery)
	defer cancel()
	if err := env.tap.Complete(ctx); err != nil {
		env.note("the tap is not complete: %v", err)
	}
	env.Recorder.Mark(phase)
}

// probe uses every workload from every process. Each has its own time, so that one that
// hangs is the only one that is reported.
func (env *Env) probe(ctx context.Context, workloads []Workload) (findings []string) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, p := range env.Processes {
		wg.Go(func() {
			opening, cancel := context.WithTimeout(ctx, recovery)
			for err := p.open(opening); err != nil; err = p.open(opening) {
				if Sleep(opening, 100*time.Millisecond) != nil {
					break
				}
			}
			cancel()
			for _, s := range workloads {
				ctx, cancel := context.WithTimeout(ctx, recovery)
				err := s.Probe(ctx, p)
				for (errors.Is(err, concurrency.ErrLost) || errors.Is(err, concurrency.ErrUnconfirmed)) && Sleep(ctx, 100*time.Millisecond) == nil {
					err = s.Probe(ctx, p) // a busy machine may cost a lease even now
				}
				cancel()
				if err != nil {
					mu.Lock()
					findings = append(findings, fmt.Sprintf("%s of %s do not work when all is well again: %v", s.Name(), p.Name, err))
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	return findings
}

// left lists the keys below prefixes, apart from limits and the records of jobs, which stay.
func (env *Env) left(when string, prefixes ...string) (findings []string) {
	ctx, cancel := context.WithTimeout(context.Background(), recovery)
	defer cancel()
	for _, prefix := range prefixes {
		resp, err := env.Admin().Get(ctx, prefix, clientv3.WithPrefix())
		if err != nil {
			findings = append(findings, fmt.Sprintf("cannot list %s: %v", prefix, err))
			continue
		}
		for _, kv := range resp.Kvs {
			key := string(kv.Key)
			if !strings.HasSuffix(key, "/limit") && !strings.HasSuffix(key, "/default") && !strings.HasPrefix(key, env.register("")) && !Recorded(key) {
				findings = append(findings, fmt.Sprintf("%s exists %s (created %d, lease %x): %.200s", key, when, kv.CreateRevision, kv.Lease, kv.Value))
			}
		}
	}
	return findings
}

// Recorded reports whether a key is one of a job's that stay: its run records and their
// floor, its plan, up to which run losses were reported, and the operator who paused or resumed it last. So do the tokens of a rate.
func Recorded(key string) bool {
	if strings.Contains(key, "/bucket/") && strings.HasSuffix(key, "/left") {
		return true
	}
	_, of, job := strings.Cut(key, "/job/")
	return job && (strings.Contains(of, "/run/") || strings.Contains(of, "/floor/") || strings.HasSuffix(of, "/operation") || strings.HasSuffix(of, "/plan") || strings.HasSuffix(of, "/reported-loss"))
}

// ours marks goroutines of what is under test.
var ours = []string{
	"etcdkit/etcdkit/concurrency", "etcdkit/internal/lease", "etcdkit/internal/mirror", "etcdkit/internal/commit",
	"etcdkit/schedlock", "etcdkit/idempotency",
}

// leftGoroutines lists goroutines of the product that do not end.
func leftGoroutines() []string {
	var left []string
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		left = nil
		buf := make([]byte, 16<<20)
		buf = buf[:runtime.Stack(buf, true)]
	next:
		for _, stack := range strings.Split(string(buf), "\n\n") {
			for _, part := range ours {
				if strings.Contains(stack, part) {
					left = append(left, "a goroutine is left:\n"+stack)
					continue next
				}
			}
		}
		if len(left) == 0 {
			return nil
		}
	}
	return left
}
