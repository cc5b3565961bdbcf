package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/exit"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/output"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/verb"
	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/internal/doctor"
	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/fleet"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/record"
	"github.com/etcdkit/etcdkit/schedlock"
)

// probeTTL is the TTL of the session that doctor opens: the shortest that needs no Margin.
const probeTTL = 5 * time.Second

// session opens a session, as a service does. The checks after it use it, or one that only reads.
func (d *examination) session(ctx context.Context) []finding {
	asked := time.Now()
	opts := &concurrency.SessionOptions{Prefix: d.call.Etcd.Prefix, Owner: verb.Owner("doctor"), TTL: probeTTL}
	sess, err := concurrency.NewSession(ctx, d.client, d.call.Etcd.Namespace, opts)
	if err != nil { // the checks after it read
		d.sess, _ = concurrency.NewSession(engine.Leaseless(ctx), d.client, d.call.Etcd.Namespace, opts)
	}
	code := exit.CodeOf(err)
	if code == exit.Denied && d.grants.ReadsOnly() {
		return one(levelWarn, "As the role says: see permissions, above.", "no session: the user may only read")
	}
	if code == exit.Denied {
		return one(levelFail,
			"The user cannot acquire anything in this namespace. Its role needs read and write permission for it: see docs/operations.md, "+
				"roles.", "no session: %v", err)
	}
	if err != nil {
		return one(levelFail, "", "no session: %v", err)
	}
	d.sess = sess
	found := one(levelOK, "", "a session was opened in %s", doctor.Millis(time.Since(asked)))
	ttl, err := d.client.TimeToLive(ctx, sess.Lease())
	if err != nil {
		return append(found, notMade("the TTL that etcd grants", err)...)
	}
	found = append(found, granted(probeTTL, time.Duration(ttl.GrantedTTL)*time.Second)...)
	renewed, err := d.client.KeepAliveOnce(ctx, sess.Lease())
	if err != nil {
		return append(found, one(levelFail,
			"Permits end with their leases, which are not renewed: look for what is between this machine and etcd, and passes no streams on.",
			"a renewal is not answered: %v", err)...)
	}
	return append(found, renewal(time.Duration(renewed.TTL)*time.Second, time.Duration(ttl.GrantedTTL)*time.Second)...)
}

// renewal judges the answer to a renewal.
func renewal(got, granted time.Duration) []finding {
	if got < granted {
		return one(levelFail,
			"It is an older one's, as of etcd's gRPC proxy: a permit would be trusted for too long. Give clients the addresses of the "+
				"members.", "a renewal gives a TTL of %v, less than the granted %v", got, granted)
	}
	return one(levelOK, "", "a renewal is answered")
}

// noSession is the finding of a check where no session could be opened, not even one that only reads.
func noSession() []finding {
	return one(levelWarn, "", "not examined: the namespace could not be read")
}

// granted judges the TTL that etcd grants.
func granted(asked, got time.Duration) []finding { //nolint:unparam // asked is probeTTL, as the tests say
	switch {
	case got > asked:
		return one(levelWarn, "etcd's election timeout is long: a dead holder's permit is free that much later.",
			"etcd grants a TTL of %v where %v was asked for", got, asked)
	case got < asked:
		return one(levelFail, "A holder would lose its permit before it expects that: use a server that grants what is asked for.",
			"etcd grants a TTL of %v where %v was asked for", got, asked)
	}
	return one(levelOK, "", "etcd grants the TTL that is asked for")
}

// presence reads the presence keys of the live sessions, without that of doctor.
func (d *examination) presence(ctx context.Context) (space keyspace.Space, alive []*mvccpb.KeyValue, err error) {
	if space, err = d.call.Etcd.Space(); err != nil {
		return space, nil, err
	}
	resp, err := d.client.Get(ctx, space.Sessions(), clientv3.WithPrefix())
	if err != nil {
		return space, nil, err
	}
	for _, kv := range resp.Kvs {
		if kv.Lease != 0 && (d.sess == nil || kv.Lease != int64(d.sess.Lease())) && string(kv.Key) == space.Session(kv.Lease).Alive() {
			alive = append(alive, kv)
		}
	}
	return space, alive, nil
}

// sessions counts the live sessions.
func (d *examination) sessions(ctx context.Context) []finding {
	_, alive, err := d.presence(ctx)
	if err != nil {
		return notMade("live sessions", err)
	}
	var live doctor.Sessions
	for _, kv := range alive {
		s, _ := record.DecodeSession(kv.Value) // one that cannot be read is live as well
		live.Add(s.Owner, record.Time(s.AtMS), s.Etcdkit)
	}
	return live.Findings(d.now())
}

// mostHeard is how many bytes of changes doctor listens to: some thousands of requests. A busy namespace has them within a
// moment, and what a busy process writes is among them.
const mostHeard = 1 << 20

// clocks compares this machine's clock with what live processes write while it listens, as the console does.
func (d *examination) clocks(ctx context.Context) (found []finding) {
	space, err := d.call.Etcd.Space()
	if err != nil {
		return notMade("clocks of live sessions", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	heard := 0
	all := fleet.New(d.client.KV, d.client.Watcher, space, fleet.Options{
		Probe: time.Second, Refresh: time.Hour, Logger: zap.NewNop(), Now: d.now, Only: []string{space.Clocks(), space.Sessions()},
		Changed: func(bytes int) {
			if heard += bytes; heard > mostHeard {
				cancel()
			}
		},
	})
	var listens sync.WaitGroup
	listens.Go(func() { _ = all.Run(ctx) })
	defer listens.Wait()
	defer cancel()
	if err := all.Await(ctx, 1); err != nil {
		return notMade("clocks of live sessions", err)
	}
	began := time.Now()
	select {
	case <-time.After(d.listen):
	case <-ctx.Done(): // what has come until then is compared
	}
	looked := min(d.listen, max(100*time.Millisecond, time.Since(began).Round(100*time.Millisecond)))
	var own int64
	if d.sess != nil {
		own = int64(d.sess.Lease())
	}
	all.View(func(s *fleet.State, m fleet.Meta) {
		found = doctor.Clocks(s.Clocks(own), d.now(), fmt.Sprintf("in %v", looked))
		if exit.CodeOf(m.Failure) == exit.Denied { // it may read the sessions, and not all of the namespace
			found = append(found, notMade("what processes write", m.Failure)...)
		}
	})
	return found
}

// foreign looks for keys that are not etcdkit's, outside of queues and jobs.
func (d *examination) foreign(ctx context.Context) []finding {
	space, err := d.call.Etcd.Space()
	if err != nil {
		return notMade("keys", err)
	}
	found, read, err := doctor.Foreign(ctx, d.client, space)
	if err != nil {
		return cutShort(ctx, read, "keys", err)
	}
	return found
}

// queues looks for keys that are not etcdkit's in the ranges of queues, and for queues that admit nothing.
func (d *examination) queues(ctx context.Context) []finding {
	if d.sess == nil {
		return noSession()
	}
	space, err := d.call.Etcd.Space()
	if err != nil {
		return notMade("queues", err)
	}
	state, err := d.call.Queues(ctx, d.sess, append(fleet.Queues(space), space.Queues(keyspace.Rate))...)
	if err != nil {
		return notMade("queues", err)
	}
	return doctor.QueuesOf(state, output.ShellWord, d.now())
}

// lostRuns looks for runs of jobs whose processes died.
func (d *examination) lostRuns(ctx context.Context) (found []finding) {
	if d.sess == nil {
		return noSession()
	}
	l, err := schedlock.New(d.sess, nil)
	if err != nil {
		return notMade("jobs", err)
	}
	names, err := l.Jobs(ctx)
	if err != nil {
		return notMade("jobs", err)
	}
	each := make([][]finding, len(names))
	var examined atomic.Int64
	err = d.call.ReadEach(len(names), "jobs", func(i int) (err error) {
		if each[i], err = d.job(ctx, l, names[i]); err != nil {
			return fmt.Errorf("job %s: %w", names[i], err)
		}
		examined.Add(1)
		return nil
	})
	found = slices.Concat(each...)
	if err != nil {
		return append(found, cutShort(ctx, int(examined.Load()), "jobs", err)...)
	}
	return append(found, doctor.Jobs(len(names))...)
}

// job examines one job.
func (d *examination) job(ctx context.Context, l *schedlock.Locker, name string) (found []finding, err error) {
	st, err := l.Status(ctx, name)
	if err != nil && !errors.Is(err, schedlock.ErrUnknownJob) { // removed meanwhile
		return nil, err
	}
	if p := st.Paused; p != nil {
		found = doctor.JobPaused(name, p.By, p.Reason, p.Since, d.now())
	}
	foreign, err := d.foreignKeys(ctx, name)
	if err != nil {
		return nil, err
	}
	if foreign > 0 {
		found = append(found, doctor.JobForeign(name, foreign)...)
	}
	since, err := d.unstarted(ctx, st)
	if err != nil {
		return nil, err
	}
	if st.Plan != nil && st.Plan.Gone {
		found = append(found, doctor.JobGone(name)...)
	}
	switch {
	case !st.Running && !since.IsZero():
		found = append(found, doctor.JobUnstarted(name, since)...)
	case doctor.Outlasts(since, d.now()):
		found = append(found, doctor.JobOutlasts(name, since)...)
	}
	records, err := l.History(ctx, name)
	if err != nil && !errors.Is(err, schedlock.ErrUnknownJob) {
		return nil, err
	}
	return append(found, doctor.JobRuns(name, runsOf(records, d.now()), d.now())...), nil
}

// foreignKeys counts the keys in the range of a job that are not etcdkit's.
func (d *examination) foreignKeys(ctx context.Context, job string) (n int, err error) {
	space, err := d.call.Etcd.Space()
	if err != nil {
		return 0, err
	}
	keys := space.Job(job)
	resp, err := d.client.Get(ctx, keys.Range, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return 0, err
	}
	for _, kv := range resp.Kvs {
		if !keys.Owns(string(kv.Key)) {
			n++
		}
	}
	return n, nil
}

// unknownRequests looks for requests whose attempts were lost.
func (d *examination) unknownRequests(ctx context.Context) (found []finding) {
	if d.sess == nil {
		return noSession()
	}
	space, err := d.call.Etcd.Space()
	if err != nil {
		return notMade("stores", err)
	}
	names, err := d.call.Etcd.NamesBelow(ctx, d.client, space.Stores(), func(key string) (string, string, bool) {
		name, ok := space.ParseStore(key)
		return name, space.Store(name).Range, ok
	})
	if err != nil {
		return notMade("stores", err)
	}
	for _, name := range names {
		s, err := idempotency.NewStore(d.sess, name, nil)
		if err != nil {
			return append(found, notMade("store "+name, err)...)
		}
		read, refused, open, unreadable := 0, 0, 0, 0
		for r, err := range s.List(ctx, idempotency.Filter{}) {
			if err != nil {
				found = append(found, one(levelWarn, "'etcdkit requests stats' reads all of them, however long that takes.",
					"store %s: only %d requests could be read: %v", name, read, err)...)
				break
			}
			read++
			switch {
			case r.State == idempotency.Unknown && r.Refuse:
				refused++
			case r.State == idempotency.Unknown:
				open++
			case r.State == idempotency.Unreadable:
				unreadable++
			}
		}
		found = append(found, doctor.Unknown(name, read, refused, open)...)
		found = append(found, doctor.Unreadable(name, unreadable)...)
	}
	return append(found, doctor.Stores(len(names))...)
}
