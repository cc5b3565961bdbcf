package console

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/build"
	"github.com/etcdkit/etcdkit/internal/fleet"
	"github.com/etcdkit/etcdkit/internal/record"
)

// processRequest is a request of a process in a queue.
type processRequest struct {
	Queue, Href, Token, Note string
	Since                    time.Time // of a holder, not earlier than its grant
}

// processThing is something else that a process has: an active run, a job, an attempt of a request.
type processThing struct{ Kind, Name, Href, subject string }

// processView is what the namespace shows of a session.
type processView struct {
	Known        bool
	Owner, Clock string
	Skew         string // by how much its clock differs, if that wants an operator
	Versions     build.Versions
	Since        time.Time
	holds, waits []processRequest
	things       []processThing
}

// leaseView is what etcd knows of a session's lease.
type leaseView struct {
	TTL                time.Duration
	Renewed, ExpiresBy time.Time
}

// processPage is the page of a process.
type processPage struct {
	processView
	leaseView
	Name, Lease  string // in hexadecimal, as etcdctl writes it, and in decimal
	Own          bool
	May          map[string]bool
	LeaseUnread  string // why the lease is not shown, or ""
	Holds, Waits []processRequest
	HoldsOf      int
	WaitsOf      int
	Things       []processThing
	ThingsOf     int
	Hidden       bool // it has more, which the viewer may not see
}

func (p processPage) title() string { return "Process " + cmp.Or(p.Owner, p.Name) }

// mostOfProcess bounds the rows of each table of a process.
const mostOfProcess = 200

// processName returns the name of a session: its lease in hexadecimal, as etcdctl writes it.
func processName(lease int64) string { return fmt.Sprintf("%016x", uint64(lease)) }

// leaseOf is the inverse of processName. A name has one form.
func leaseOf(name string) (int64, error) {
	lease, err := strconv.ParseUint(name, 16, 64)
	if err != nil || lease == 0 || processName(int64(lease)) != name {
		return 0, badRequest{fmt.Errorf("%.40q is no lease: it has sixteen digits, as etcdctl writes it", name)}
	}
	return int64(lease), nil
}

func readProcess(q request) (any, quality, error) {
	lease, err := leaseOf(q.name())
	if err != nil {
		return nil, quality{}, err
	}
	of, st, err := look(q, "process/"+q.name(), func(s *fleet.State) processView { return processOf(s, lease) })
	if err == nil && !of.Known {
		err = notFound{fmt.Errorf("no live session has the lease %s: its process has ended, is cut off from etcd, or has a new session", q.name())}
	}
	if err != nil {
		return nil, st, err
	}
	p := processPage{processView: of, Name: q.name(), Lease: strconv.FormatInt(lease, 10), Own: lease == int64(q.console.sess.Lease())}
	p.May = q.offers("process/"+q.name(), EndSession)
	mayRead := q.reader()
	p.Holds, p.HoldsOf = permitted(of.holds, mayRead)
	p.Waits, p.WaitsOf = permitted(of.waits, mayRead)
	for _, t := range of.things {
		if mayRead(t.subject) {
			if p.ThingsOf++; p.ThingsOf <= mostOfProcess {
				p.Things = append(p.Things, t)
			}
		}
	}
	p.Hidden = p.HoldsOf+p.WaitsOf+p.ThingsOf < len(of.holds)+len(of.waits)+len(of.things)
	p.May[string(Evict)] = slices.ContainsFunc(slices.Concat(of.holds, of.waits), func(r processRequest) bool {
		return mayRead(r.Queue) && !strings.HasPrefix(r.Queue, "rate/") && q.console.opts.may(q.Request, Action{Verb: Evict, Name: r.Queue, Target: r.Token}) == nil
	})
	p.leaseView, _, err = read(q, "lease/"+q.name(), func(ctx context.Context) (leaseView, error) {
		return askLease(ctx, q.console.inner.Etcd().Client, lease)
	})
	if err != nil {
		p.LeaseUnread = err.Error()
	}
	return p, st, nil
}

// permitted returns the requests in queues that the viewer may read, as many as a table has, and how many there are.
func permitted(all []processRequest, mayRead func(string) bool) (some []processRequest, of int) {
	for _, r := range all {
		if mayRead(r.Queue) {
			if of++; of <= mostOfProcess {
				some = append(some, r)
			}
		}
	}
	return some, of
}

// askLease asks etcd for a lease.
func askLease(ctx context.Context, client *clientv3.Client, lease int64) (leaseView, error) {
	ctx, cancel := context.WithTimeout(ctx, askBound)
	defer cancel()
	asked := time.Now()
	ttl, err := client.TimeToLive(ctx, clientv3.LeaseID(lease))
	if err != nil || ttl.TTL <= 0 {
		return leaseView{}, err
	}
	granted, left := time.Duration(ttl.GrantedTTL)*time.Second, time.Duration(ttl.TTL)*time.Second
	return leaseView{granted, asked.Add(left - granted).Truncate(time.Second), asked.Add(left + leaseReserve).Truncate(time.Second)}, nil
}

// leaseReserve is how much later than its TTL says etcd may end a lease, as concurrency.Request.ExpiresBy has it.
const leaseReserve = 1500 * time.Millisecond

// processOf returns what the namespace shows of a session.
func processOf(s *fleet.State, lease int64) (v processView) {
	session, live := s.Sessions[lease]
	if !live {
		return v
	}
	v = processView{Known: true, Owner: session.Owner, Versions: session.Versions, Since: record.Time(session.Since)}
	v.Clock, v.Skew = clockOf(s, lease)
	eachQueue(s, func(name subject, of *fleet.Queue) {
		holders, waiters := of.Of(lease)
		for _, r := range holders {
			if name.kind == concurrency.KindLimiter && name.key != "" && s.Limiters[name.name].Total != nil {
				continue // its permit is that in the total, or it waits there
			}
			v.holds = append(v.holds, processRequestOf(name, r, cmp.Or(r.Since, r.Requested)))
		}
		for _, r := range waiters {
			v.waits = append(v.waits, processRequestOf(name, r, r.Requested))
		}
	})
	oldest := func(a, b processRequest) int {
		return cmp.Or(fleet.CompareAges(a.Since, b.Since), strings.Compare(a.Queue, b.Queue), strings.Compare(a.Token, b.Token))
	}
	slices.SortFunc(v.holds, oldest)
	slices.SortFunc(v.waits, oldest)
	v.things = thingsOf(s, lease)
	return v
}

// eachQueue calls fn with all queues, the keys and totals of limiters among them.
func eachQueue(s *fleet.State, fn func(subject, *fleet.Queue)) {
	for id, of := range s.Queues {
		fn(subject{kind: concurrency.QueueKind(id.Label()), name: id.Name}, of)
	}
	for name, lim := range s.Limiters {
		if lim.Total != nil {
			fn(subject{kind: concurrency.KindLimiter, name: name}, lim.Total)
		}
		for key, of := range lim.Keys {
			fn(subject{concurrency.KindLimiter, name, key}, of)
		}
	}
}

func processRequestOf(name subject, r fleet.Request, since int64) processRequest {
	return processRequest{name.String(), pageOf("queue", name.String()), strconv.FormatInt(r.Token, 10), r.Note, record.Time(since)}
}

// thingsOf returns what else a session has.
func thingsOf(s *fleet.State, lease int64) (all []processThing) {
	for name, j := range s.Jobs {
		if j.Running() && j.Holder() == lease {
			all = append(all, processThing{"active run of the job", name, pageOf("job", name), "job/" + name})
		}
	}
	for _, name := range s.Plans(lease) {
		all = append(all, processThing{"has the job", name, pageOf("job", name), "job/" + name})
	}
	for name, st := range s.Stores {
		for _, ref := range st.Working(lease) {
			all = append(all, processThing{"attempt in the store " + name, ref, refOf(name, ref), "requests/" + name})
		}
	}
	slices.SortFunc(all, func(a, b processThing) int {
		return cmp.Or(strings.Compare(a.Kind, b.Kind), strings.Compare(a.Name, b.Name))
	})
	return all
}
