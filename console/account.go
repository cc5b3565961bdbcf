package console

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/fleet"
	"github.com/etcdkit/etcdkit/internal/record"
)

// Bounds of the records of what operators have changed.
const (
	changesKept  = 30 * 24 * time.Hour
	changeLease  = time.Hour // for which one lease is used for new records
	mostChanges  = 1000
	changesSlack = 100 // more, until the oldest are deleted
	accountBound = 2 * time.Second
)

// accounts records in etcd what operators change.
type accounts struct {
	sess *engine.Session
	log  *zap.Logger
	now  func() time.Time

	mu    sync.Mutex
	lease clientv3.LeaseID
	until time.Time
}

// changeOf returns the record of an action on one target.
func changeOf(o order, at target) record.Change {
	act := o.action()
	return record.Change{Verb: string(act.Verb), Name: act.Name, Target: act.Target, Before: at.before, After: o.value, Reason: o.reason}
}

// begin records that an action begins, and returns what records how it has ended. An action that cannot be recorded is
// made and logged nevertheless: it may be what ends an incident.
func (a *accounts) begin(ctx context.Context, change record.Change, actor string) (ended func(error)) {
	now := a.now()
	change.AtMS, change.By, change.Open = now.UnixMilli(), actor, true
	key := a.sess.Space().Change(now.UnixMilli(), strings.ToLower(rand.Text()[:8]))
	_ = a.store(ctx, key, change) // the outcome below is stored also if this was not
	return func(failed error) {
		change.Open = false
		if failed != nil {
			change.Failed = failed.Error()
		}
		if err := a.store(ctx, key, change); err != nil {
			a.log.Warn("an action of the console could not be recorded in etcd", zap.String("action", change.Verb), zap.String("name", change.Name), zap.String("target", change.Target),
				zap.String("actor", actor), zap.String("failed", change.Failed), zap.Error(err))
			return
		}
		a.trim(ctx)
	}
}

// store writes a record, on another lease if that of the last one has ended.
func (a *accounts) store(ctx context.Context, key string, change record.Change) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), accountBound)
	defer cancel()
	for again := true; ; again = false {
		lease, err := a.forChanges(ctx)
		if err == nil {
			_, err = a.sess.KV().Put(ctx, key, change.Encode(), clientv3.WithLease(lease))
		}
		if !again || !errors.Is(err, rpctypes.ErrLeaseNotFound) {
			return err
		}
		a.forget(lease)
	}
}

// forget has the next record take another lease than one that has ended.
func (a *accounts) forget(lease clientv3.LeaseID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.lease == lease {
		a.until = time.Time{}
	}
}

// forChanges returns the lease of new records.
func (a *accounts) forChanges(ctx context.Context) (clientv3.LeaseID, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if time.Now().Before(a.until) {
		return a.lease, nil
	}
	granted, err := a.sess.Etcd().Client.Grant(ctx, int64(changesKept/time.Second))
	if err != nil {
		return 0, err
	}
	a.lease, a.until = granted.ID, time.Now().Add(changeLease)
	return granted.ID, nil
}

// trim deletes the oldest records, if there are too many.
func (a *accounts) trim(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), accountBound)
	defer cancel()
	all := a.sess.Space().Changes()
	resp, err := a.sess.Read(ctx, all, clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil || resp.Count <= mostChanges+changesSlack {
		return
	}
	old, err := a.sess.Read(ctx, all, clientv3.WithPrefix(), clientv3.WithKeysOnly(), clientv3.WithLimit(resp.Count-mostChanges), clientv3.WithSort(clientv3.SortByKey, clientv3.SortAscend))
	if err == nil && len(old.Kvs) > 0 {
		_, _ = a.sess.KV().Delete(ctx, all, clientv3.WithRange(string(old.Kvs[len(old.Kvs)-1].Key)+"\x00")) // the next action repeats it
	}
}

// changeRow is what an operator has changed.
type changeRow struct {
	At                            time.Time
	By, Verb, Name, Href, Target  string
	Before, After, Reason, Failed string
	Open                          bool     // whether it was made is not known
	Queues                        []string // of an action on many, those that the viewer may read
}

// changeList is the page of the changes.
type changeList struct {
	Name  string // of which it has the changes alone, or ""
	Rows  []changeRow
	Chips []chips
	pager
}

// Pager returns the place in the table.
func (l changeList) Pager() pager { return l.pager }

func readChanges(q request) (any, quality, error) {
	rows, st, err := look(q, "changes", changesOf)
	if err != nil {
		return nil, st, err
	}
	l := changeList{Name: q.name()}
	mayRead := q.reader()
	var some []changeRow
	for _, r := range rows {
		all := r.Queues // all viewers share them
		r.Queues = nil
		for _, name := range all {
			if mayRead(name) {
				r.Queues = append(r.Queues, name)
			}
		}
		if mayRead(r.Name) && (l.Name == "" || slices.ContainsFunc(append(r.Queues, r.Name), func(name string) bool { return name == l.Name || keyIn(name, l.Name) })) {
			some = append(some, r)
		}
	}
	var verbs []choice[changeRow]
	for _, v := range []Verb{SetLimit, Evict, RequestStop, Pause, Resume, Unlock, Trigger, Resolve, Delete, EndSession} {
		verbs = append(verbs, choice[changeRow]{name: string(v), label: string(v), is: func(r changeRow) bool { return r.Verb == string(v) }})
	}
	verbs = append(verbs, choice[changeRow]{"failed", "failed", true, func(r changeRow) bool { return r.Failed != "" || r.Open }})
	some, chosen := choose(q, "show", "Action", some, verbs)
	l.Chips = []chips{chosen}
	l.Rows, l.pager = paged(q, some, "page")
	return l, st, nil
}

// changesOf returns what operators have changed, the latest first.
func changesOf(s *fleet.State) (rows []changeRow) {
	for _, c := range s.Changes {
		rows = append(rows, changeRow{
			At: record.Time(c.AtMS), By: c.By, Verb: c.Verb, Name: c.Name, Href: hrefOf(c.Name), Target: c.Target,
			Before: c.Before, After: c.After, Reason: c.Reason, Failed: c.Failed, Open: c.Open, Queues: c.Queues,
		})
	}
	slices.SortFunc(rows, func(a, b changeRow) int {
		return cmp.Or(b.At.Compare(a.At), strings.Compare(a.Name, b.Name), strings.Compare(a.Target, b.Target))
	})
	return rows
}

// hrefOf returns the address of the page of a name as Authorize knows it.
func hrefOf(name string) string {
	kind, rest, _ := strings.Cut(name, "/")
	switch kind {
	case "job":
		return pageOf("job", rest)
	case "requests":
		return pageOf("store", rest)
	case "process":
		return pageOf("process", rest)
	}
	return pageOf("queue", name)
}
