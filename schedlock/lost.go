package schedlock

import (
	"context"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/internal/record"
)

// A process whose run is lost is dead, or cannot reach etcd: it reports nothing that others see. So another one
// does: a live process that uses the job when the lock is deleted without the record of an end, or when it has missed
// events, or the next one that begins to use it. Each reports and then marks the run as reported, so the fleet reports it at least once.

// losses is what a process knows of lost runs of a job. It is safe for concurrent use.
type losses struct {
	mu        sync.Mutex
	changed   int64 // revision of the latest event of a run's record
	suspected bool  // a lock was deleted, and no record with it
	reported  int64 // token of the latest run whose loss was reported
	begun     bool  // this process has looked for earlier ones

	reportedHere map[int64]bool // by token: runs after reported whose loss this process has reported
}

// rewound forgets the revisions of a history that was taken back.
func (s *losses) rewound() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changed, s.suspected, s.reported, s.begun, s.reportedHere = 0, false, 0, false, nil
}

// begin reports whether the process has not looked for lost runs of the job yet. From then on it has.
func (s *losses) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	first := !s.begun
	s.begun = true
	return first
}

// again makes begin report true once more: a look has failed.
func (s *losses) again() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begun = false
}

// suspects reports whether events have shown that a run may have been lost, once.
func (s *losses) suspects() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	is := s.suspected
	s.suspected = false
	return is
}

// record takes the revision at which the record of a run has changed. The events of a revision come before that of the lock.
func (s *losses) record(revision int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changed = max(s.changed, revision)
}

// lockGone takes the revision at which the lock was deleted: what ends a run or withdraws a claim changes its record in the
// same Txn. It does not matter whether this process has seen the claim: it may have started since.
func (s *losses) lockGone(revision int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.suspected = s.suspected || revision != s.changed
}

// mark takes the mark of reported runs.
func (s *losses) mark(value []byte) {
	r, ok := record.DecodeReported(value)
	if !ok && record.Later(value) > 0 {
		r.Token = math.MaxInt64 // the later release reports
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reported = r.Token
	maps.DeleteFunc(s.reportedHere, func(token int64, _ bool) bool { return token <= r.Token })
}

// first reports whether the loss of a run is not known to be reported. From then on it is: two looks for lost runs, or one and the
// claim of a further attempt, find the same one at the same time.
func (s *losses) first(token int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if token <= s.reported || s.reportedHere[token] {
		return false
	}
	if s.reportedHere == nil {
		s.reportedHere = map[int64]bool{}
	}
	s.reportedHere[token] = true
	return true
}

// reportLost reports the lost runs of a job that no process has reported, at this process's place in the order. If
// etcd does not answer, the next claim of this process looks again.
func reportLost(l *Locker, j *job) {
	ctx, cancel := l.untilClose(l.sess.Context())
	defer cancel()
	d, err := place(ctx, l, j, j.keys.Lost())
	if err == nil && sleep(ctx, d) {
		err = reportLostNow(ctx, l, j)
	}
	if err != nil {
		j.losses.again()
	}
}

// reportLostNow reports the lost runs of a job that no process has reported.
func reportLostNow(ctx context.Context, l *Locker, j *job) error {
	kvs, err := l.get(ctx, func() []clientv3.Op {
		horizon := j.keys.Run(l.horizon()) // those beyond it, of a wrong clock, are not in the place of others
		return []clientv3.Op{clientv3.OpGet(j.keys.Lock()), clientv3.OpGet(j.keys.Lost()), latestRuns(j.keys.Runs(), horizon, mostLost),
			latestRuns(horizon, clientv3.GetPrefixRangeEnd(j.keys.Runs()), mostLost)}
	})
	if err != nil {
		return err
	}
	lost := lostRuns(j, kvs[0], kvs[1], slices.Concat(kvs[3], kvs[2]))
	if len(lost) == 0 {
		return nil
	}
	var latest, mod int64
	for _, run := range lost {
		latest = max(latest, run.token)
		if r, ok := recordsOf(l, j.name).record(run.kv, kvs[0]); ok && j.losses.first(run.token) {
			logLost(l, r)
		}
	}
	if len(kvs[1]) > 0 {
		mod = kvs[1][0].ModRevision
	}
	value := record.Reported{Token: latest, By: l.sess.Owner()}.Encode()
	// A copy, and the mark of another process, find another revision.
	_, _ = repeat(ctx, l.etcd, func(call context.Context) (*clientv3.TxnResponse, error) {
		return l.kv.Txn(call).If(clientv3.Compare(clientv3.ModRevision(j.keys.Lost()), "=", mod)).Then(clientv3.OpPut(j.keys.Lost(), value)).Commit()
	})
	return nil
}

// mostLost is the number of records, the latest ones, among which lost runs are looked for.
const mostLost = 20

// readLost returns the read of those records among the latest that the end of a run may remove: by their number, if fewer are kept
// than are looked at for lost runs, or by their age. Usually there is none.
func readLost(k *claim, aged time.Time, first, horizon string) []clientv3.Op {
	if k.opts.Keep >= mostLost {
		horizon = min(horizon, k.job.keys.Run(aged))
	}
	if first >= horizon {
		return nil
	}
	return []clientv3.Op{latestRuns(first, horizon, mostLost), clientv3.OpGet(k.job.keys.Lost())}
}

// removable takes what the Txn of a claim has read of the records. As it was applied, no other run was active.
func (c *claimed) removable(j *job, read []*etcdserverpb.ResponseOp) {
	if len(read) > 0 {
		for _, kv := range read[0].GetResponseRange().Kvs {
			c.older = append(c.older, string(kv.Key))
		}
	}
	if len(read) > 2 {
		own := []*mvccpb.KeyValue{{CreateRevision: c.token}}
		c.lost = lostRuns(j, own, read[2].GetResponseRange().Kvs, read[1].GetResponseRange().Kvs)
	}
}

// unreported returns the key of the oldest of some lost runs that no process is known to have reported, or "".
func (s *losses) unreported(lost []lostRun) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, run := range lost {
		if run.token > s.reported {
			return string(run.kv.Key)
		}
	}
	return ""
}

// lostRun is the record of a run that was lost.
type lostRun struct {
	kv    *mvccpb.KeyValue
	token int64
}

// lostRuns returns the runs that were lost and are not reported, oldest first. A run of this process whose end etcd has not
// confirmed is not lost.
func lostRuns(j *job, lock, reported, runs []*mvccpb.KeyValue) (lost []lostRun) {
	var mark record.Reported
	if len(reported) > 0 {
		var ok bool
		if mark, ok = record.DecodeReported(reported[0].Value); !ok && later(reported[0]) {
			mark.Token = math.MaxInt64 // the later release reports
		}
	}
	for _, kv := range runs {
		r, ok := record.DecodeRun(kv.Value)
		token := tokenAt(kv, r)
		switch {
		case !ok || r.State != record.RunRunning || tokenOf(lock) == token:
		case token > mark.Token && !j.endedHere(token):
			lost = append(lost, lostRun{kv, token})
		}
	}
	slices.Reverse(lost)
	return lost
}

// logLost logs that a run was lost, and calls Options.Lost.
func logLost(l *Locker, r Record) {
	r.State, r.Token = RunLost, 0
	l.log.Warn("a run was lost with its process: it died, was partitioned or was paused for too long. What the run did is not known",
		zap.String("job", r.Job), zap.Time("tick", r.Tick), zap.Int("attempt", r.Attempt), zap.String("owner", r.Owner), zap.Time("start", r.Start))
	if l.opts.Lost != nil {
		l.opts.Lost(r)
	}
}

// afterClaim looks for lost runs in the background when this process claims its first tick of a job that has run, and
// reports the one whose tick was claimed again.
func afterClaim(l *Locker, j *job, c *claimed, mod int64) {
	if c.attempt > 1 {
		l.sess.Callback(func() { lostBefore(l, j, c, mod) })
	}
	if j.losses.begin() && len(c.older) > 1 {
		l.sess.Callback(func() { reportLost(l, j) })
	}
}

// lostBefore reports the loss of the run whose tick a process has claimed again, unless it was reported.
func lostBefore(l *Locker, j *job, c *claimed, mod int64) {
	if c.before == "" {
		return
	}
	kv := &mvccpb.KeyValue{Key: []byte(j.keys.Run(c.tick)), Value: []byte(c.before), ModRevision: mod}
	run, _ := record.DecodeRun(kv.Value)
	if r, ok := recordsOf(l, j.name).record(kv, nil); ok && r.State == RunLost && j.losses.first(tokenAt(kv, run)) {
		logLost(l, r)
	}
}
