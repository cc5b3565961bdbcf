package console

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/internal/record"
)

// storeRow is a store of requests.
type storeRow struct {
	Name string
	Keys int64
}

func readStores(q request) (any, time.Time, error) {
	rows, asOf, err := read(q, "stores", q.console.stores)
	return rows, asOf, err
}

// stores lists the stores, by one key of each.
func (c *console) stores(ctx context.Context) (rows []storeRow, err error) {
	space := c.inner.Space()
	root := space.Stores()
	for from := root; len(rows) < mostRead; {
		resp, err := c.inner.Read(ctx, from, clientv3.WithRange(clientv3.GetPrefixRangeEnd(root)), clientv3.WithLimit(1), clientv3.WithKeysOnly())
		if err != nil {
			return nil, err
		}
		if len(resp.Kvs) == 0 {
			break
		}
		key := string(resp.Kvs[0].Key)
		name, ok := space.ParseStore(key)
		if !ok { // a foreign key
			from = key + "\x00"
			continue
		}
		from = clientv3.GetPrefixRangeEnd(space.Store(name).Range)
		count, err := c.inner.Read(ctx, space.Store(name).Records(), clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil {
			return nil, err
		}
		rows = append(rows, storeRow{name, count.Count})
	}
	return rows, nil
}

// store returns a store.
func (c *console) store(name string) (*idempotency.Store, error) {
	return idempotency.NewStore(c.sess, name, &idempotency.Options{SingleTenant: true, CacheBytes: -1})
}

// stateRow is a state that records can be selected by.
type stateRow struct {
	Value   int
	Label   string
	Current bool
}

// recordRow is a record.
type recordRow struct {
	Ref, State, Op, Scope, Owner, Failure string
	Attempt                               int
	Started, Ended                        time.Time
	Bad, Unknown, Deletable               bool
}

// storePage is the page of a store.
type storePage struct {
	Name    string
	States  []stateRow
	Records []recordRow
	Cut     bool // there are more
	May     map[string]bool
}

// storeState is what is read of a store in one state.
type storeState struct {
	records []idempotency.Record
	cut     bool
}

// shownStates are the states in the order of the page: those first that want an operator.
var shownStates = []idempotency.State{idempotency.Unknown, idempotency.InProgress, idempotency.Failed, idempotency.Unreadable, idempotency.Released, idempotency.Done}

func readStore(q request) (any, time.Time, error) {
	name := q.name()
	n, _ := strconv.Atoi(q.URL.Query().Get("state"))
	state := idempotency.State(n)
	if !slices.Contains(shownStates, state) {
		state = shownStates[0]
	}
	found, asOf, err := read(q, "store/"+strconv.Itoa(int(state))+"/"+name, func(ctx context.Context) (out storeState, err error) {
		s, err := q.console.store(name)
		if err != nil {
			return out, err
		}
		for r, err := range s.List(ctx, idempotency.Filter{State: state}) {
			switch {
			case err != nil && len(out.records) > 0 && ctx.Err() != nil: // a long list
				return storeState{out.records, true}, nil
			case err != nil:
				return out, err
			case len(out.records) == pageSize:
				return storeState{out.records, true}, nil
			}
			out.records = append(out.records, r)
		}
		return out, nil
	})
	if err != nil {
		return nil, asOf, err
	}
	p := storePage{Name: name, Cut: found.cut, May: q.offers("requests/"+name, Resolve, Delete)}
	for _, s := range shownStates {
		p.States = append(p.States, stateRow{int(s), s.String(), s == state})
	}
	for _, r := range found.records {
		p.Records = append(p.Records, recordRow{
			Ref: string(r.Ref), State: r.State.String(), Op: r.Op, Scope: r.Scope, Owner: r.Owner, Failure: r.Failure, Attempt: r.Attempt,
			Started: r.Started, Ended: r.Ended, Bad: r.State == idempotency.Unknown || r.State == idempotency.Unreadable,
			Unknown: r.State == idempotency.Unknown, Deletable: r.State != idempotency.InProgress,
		})
	}
	return p, asOf, nil
}

// sessionRow is a live session.
type sessionRow struct {
	Owner, Lease string
	Since        time.Time
	Clock        string // compared with this process's, if it was measured
}

// sessionList is the list of the live sessions.
type sessionList struct {
	Sessions []sessionRow
	Cut      bool
}

func readSessions(q request) (any, time.Time, error) {
	list, asOf, err := read(q, "sessions", q.console.sessions)
	return list, asOf, err
}

// skew describes the difference of a clock to this process's. What an event takes is part of it.
func skew(ahead time.Duration) string {
	switch ahead = ahead.Round(100 * time.Millisecond); {
	case ahead > 0:
		return fmt.Sprintf("%v ahead", ahead)
	case ahead < 0:
		return fmt.Sprintf("%v behind", -ahead)
	}
	return "agrees"
}

func (c *console) sessions(ctx context.Context) (list sessionList, err error) {
	space := c.inner.Space()
	root := space.Root() + "session/"
	l, err := c.locker()
	if err != nil {
		return list, err
	}
	clocks := map[clientv3.LeaseID]string{}
	for _, of := range l.Clocks() {
		if of.Known {
			clocks[of.Lease] = skew(of.Ahead)
		}
	}
	for from := root; len(list.Sessions) < mostRead; {
		resp, err := c.inner.Read(ctx, from, clientv3.WithRange(clientv3.GetPrefixRangeEnd(root)), clientv3.WithLimit(500))
		if err != nil {
			return list, err
		}
		for _, kv := range resp.Kvs {
			if kv.Lease == 0 || string(kv.Key) != space.Session(kv.Lease).Alive() {
				continue
			}
			row := sessionRow{Lease: strconv.FormatInt(kv.Lease, 10), Clock: clocks[clientv3.LeaseID(kv.Lease)]}
			if at, ok := record.DecodeClock(kv.Value); ok {
				row.Owner, row.Since = at.Owner, time.UnixMilli(at.AtMS)
			}
			list.Sessions = append(list.Sessions, row)
		}
		if !resp.More {
			break
		}
		from = string(resp.Kvs[len(resp.Kvs)-1].Key) + "\x00"
		list.Cut = len(list.Sessions) >= mostRead
	}
	slices.SortStableFunc(list.Sessions, func(a, b sessionRow) int { return compareAges(a.Since, b.Since) })
	return list, nil
}
