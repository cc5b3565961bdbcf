package processes

import (
	"context"
	"fmt"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/proof/chaos"
	"github.com/etcdkit/etcdkit/internal/proof/history"
)

// recovery is how long things may take when nothing harms them any more.
const recovery = chaos.Slowness * 20 * time.Second

// quiescencePhase is the part of the run after the faults: everything must work again, and
// nothing may be left in etcd. It returns what does not hold.
func (r *run) quiescencePhase() (findings []string) {
	r.note("no more faults")
	findings = append(findings, r.together(Stop)...)
	r.mend("the servers", func(ctx context.Context) error {
		for i := range servers {
			if p := r.cluster.Member(i); p.Ended() {
				return fmt.Errorf("server %d ended by itself: %v\n%s", i, p.Err(), p.Tail(2000)) //nolint:errorlint // nil after an exit of 0
			}
			if _, err := r.cluster.MemberClient(i).Get(ctx, "chaos/head"); err != nil {
				return err
			}
		}
		return nil
	})
	r.mark(history.MarkHealthy)
	defer r.probeLatency()()
	findings = append(findings, r.together(Probe)...)
	root := r.env.Space.Root()
	findings = append(findings, r.emptied("after all permits were released", root+"semaphore/", root+"limiter/", root+"mutex/", root+"election/", root+"request-id/")...)
	r.mark(history.MarkIdle)
	findings = append(findings, r.together(Leave)...)
	findings = append(findings, r.emptied("after all sessions were closed", root)...)
	r.mark(history.MarkDrained)
	return findings
}

// probeLatency records a slow etcd until the returned function is called.
func (r *run) probeLatency() (end func()) {
	return chaos.ProbeLatency(r.life, r.recorder, r.cluster.Client(), r.observers()...)
}

// emptied waits until no key is left below prefixes, for as long as leases of killed
// clients may take to run out. It returns what is left then.
func (r *run) emptied(when string, prefixes ...string) (left []string) {
	for end := time.Now().Add(r.TTL + recovery); ; {
		if left = r.left(when, prefixes...); len(left) == 0 {
			return nil
		}
		if time.Now().After(end) || chaos.Sleep(r.life, 100*time.Millisecond) != nil {
			return left
		}
	}
}

// mark records that the run has reached a phase, when the tap has seen all before.
func (r *run) mark(phase string) {
	ctx, cancel := context.WithTimeout(r.life, recovery)
	defer cancel()
	if err := r.tap.Complete(ctx); err != nil {
		r.note("the tap is not complete: %v", err)
	}
	r.recorder.Mark(phase)
}

// left lists the keys below prefixes, apart from limits, registers and the records of jobs,
// which stay.
func (r *run) left(when string, prefixes ...string) (findings []string) {
	ctx, cancel := context.WithTimeout(r.life, recovery)
	defer cancel()
	for _, prefix := range prefixes {
		resp, err := r.cluster.Client().Get(ctx, prefix, clientv3.WithPrefix())
		if err != nil {
			return []string{"cannot list what is left: " + err.Error()}
		}
		for _, kv := range resp.Kvs {
			if key := string(kv.Key); kv.Lease != 0 || !strings.HasSuffix(key, "/limit") && !strings.HasSuffix(key, "/default") && !strings.Contains(key, "/register/") && !chaos.Recorded(key) {
				findings = append(findings, fmt.Sprintf("%s exists %s (created %d, lease %x): %.200s", key, when, kv.CreateRevision, kv.Lease, kv.Value))
			}
		}
	}
	return findings
}
