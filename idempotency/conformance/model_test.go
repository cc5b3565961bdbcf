package conformance_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"math"
	"strconv"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/idempotency/conformance"
)

// model is a simple store whose processes are all in this one. It decides everything under one lock,
// and writes to etcd what the promises look at there. One rule can be removed from it.
type model struct {
	without string

	mu     sync.Mutex
	fleets map[string]*fleet
}

// fleet is one store.
type fleet struct {
	mu      sync.Mutex
	entries map[string]*entry
	changed chan struct{} // closed and replaced when an entry changes
}

// entry is one request.
type entry struct {
	state   string // "working", "lost", "free", "done", "failed"
	payload string
	refuse  bool
	steps   map[string]string
	at      *attempt // the latest
	owner   *node
	answer  conformance.Answer
	failure string
}

// node is an instance.
type node struct {
	m      *model
	f      *fleet
	client *clientv3.Client
	prefix string
	seen   map[string]bool // outcomes of this process
}

type attempt struct {
	n      *node
	e      *entry
	key    string
	number int
	token  int64
	cancel context.CancelCauseFunc
	ifs    []clientv3.Cmp
	then   []clientv3.Op
}

var (
	errInProgress  = errors.New("in progress")
	errMismatch    = errors.New("mismatch")
	errUnknown     = errors.New("unknown")
	errFailed      = errors.New("failed before")
	errOmitted     = errors.New("omitted")
	errFenced      = errors.New("fenced")
	errConflict    = errors.New("conflict")
	errNotRecorded = errors.New("not recorded")
	errInvalid     = errors.New("invalid")
	errGone        = errors.New("the attempt was lost")
)

func (m *model) Kind(err error) conformance.Kind {
	for k, e := range map[conformance.Kind]error{
		conformance.InProgress: errInProgress, conformance.Mismatch: errMismatch, conformance.Unknown: errUnknown,
		conformance.Failed: errFailed, conformance.Omitted: errOmitted, conformance.Fenced: errFenced,
		conformance.Conflict: errConflict, conformance.NotRecorded: errNotRecorded, conformance.Invalid: errInvalid,
	} {
		if errors.Is(err, e) {
			return k
		}
	}
	return conformance.Other
}

// ttl is when a process that has died is noticed.
const ttl = 300 * time.Millisecond

func (m *model) Open(_ context.Context, client *clientv3.Client, prefix string) (conformance.Instance, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f := m.fleets[prefix]
	if f == nil {
		f = &fleet{entries: map[string]*entry{}, changed: make(chan struct{})}
		if m.fleets == nil {
			m.fleets = map[string]*fleet{}
		}
		m.fleets[prefix] = f
	}
	n := &node{m: m, f: f, client: client, prefix: prefix, seen: map[string]bool{}}
	if m.without != "the dead are noticed" {
		context.AfterFunc(client.Ctx(), func() { time.AfterFunc(ttl, func() { _ = n.Expire(context.Background(), nil) }) })
	}
	return n, nil
}

func (n *node) without(rule string) bool { return n.m.without == rule }

// stir wakes all waiting calls. The caller holds the lock of the fleet.
func (f *fleet) stir() {
	close(f.changed)
	f.changed = make(chan struct{})
}

func (n *node) Expire(context.Context, *clientv3.Client) error {
	n.f.mu.Lock()
	defer n.f.mu.Unlock()
	for key, e := range n.f.entries {
		if e.owner == n && e.state == "working" {
			n.lose(e)
		}
		if n.without("outcomes outlive their process") && e.owner == n && e.state == "done" {
			delete(n.f.entries, key)
		}
	}
	return nil
}

// lose ends an attempt. The fleet is locked.
func (n *node) lose(e *entry) {
	if n.without("lost attempts are taken over") {
		return
	}
	e.state = "lost"
	e.at.cancel(errGone)
	n.f.stir()
}

func (n *node) Close(ctx context.Context) error {
	if n.without("closing leaves no key") && n.client.Ctx().Err() == nil {
		_, _ = n.client.Put(ctx, n.prefix+"presence", "")
	}
	if n.without("closing leaves no lease") && n.client.Ctx().Err() == nil {
		_, _ = n.client.Grant(ctx, 60)
	}
	return nil
}

// name makes one of scope, operation and ID.
func (n *node) name(r conformance.Request) string {
	switch n.m.without {
	case "the scope counts":
		r.Scope = ""
	case "the operation counts":
		r.Op = ""
	case "parts of the key are kept apart":
		return r.Scope + r.Op + r.ID
	}
	return fmt.Sprintf("%q %q %q", r.Scope, r.Op, r.ID)
}

func (n *node) Do(ctx context.Context, r conformance.Request) (conformance.Answer, error) {
	var none conformance.Answer
	if r.ID == "" && !n.without("keys are checked") {
		return none, errInvalid
	}
	var late <-chan time.Time
	if r.Wait != nil {
		late = time.After(*r.Wait)
	}
	key := n.name(r)
	f := n.f
	f.mu.Lock()
	for {
		e := f.entries[key]
		fits := e == nil || e.payload == r.Payload || n.without("payloads are compared")
		finished := e != nil && (e.state == "done" || e.state == "failed")
		switch {
		case !fits && (finished && !n.without("payloads are compared with outcomes") || !finished && !n.without("payloads are compared in progress")):
			f.mu.Unlock()
			return none, errMismatch
		case finished && n.without("all processes know an outcome") && !n.seen[key]:
			delete(f.entries, key)
		case e == nil, e.state == "free", e.state == "lost" && !e.refuse && !r.Refuse, e.state == "lost" && n.without("refusals are kept"):
			return n.attempt(ctx, key, e, r) // unlocks
		case e.state == "lost":
			f.mu.Unlock()
			return none, errUnknown
		case finished:
			defer f.mu.Unlock()
			return e.replay()
		case n.without("one at a time"):
			e = &entry{state: "free", payload: r.Payload, steps: map[string]string{}}
			return n.attempt(ctx, key, e, r)
		case n.without("waiters get the result"):
			f.mu.Unlock()
			return conformance.Answer{Replayed: true, Attempt: e.at.number, Token: e.at.token}, nil
		case r.Wait != nil && *r.Wait == 0:
			if n.without("a call that does not wait changes nothing") {
				delete(f.entries, key)
			}
			f.mu.Unlock()
			return none, errInProgress
		default:
			changed := f.changed
			f.mu.Unlock()
			select {
			case <-changed:
			case <-late:
				if n.without("a call that stops waiting changes nothing") {
					f.mu.Lock()
					delete(f.entries, key)
					f.mu.Unlock()
				}
				return none, errInProgress
			case <-ctx.Done():
				return none, ctx.Err()
			}
			f.mu.Lock()
		}
	}
}

func (e *entry) replay() (conformance.Answer, error) {
	if e.state == "failed" {
		return conformance.Answer{}, fmt.Errorf("%w: %s", errFailed, e.failure)
	}
	a := e.answer
	a.Replayed = true
	return a, nil
}

// attempt does the work. The fleet is locked.
func (n *node) attempt(ctx context.Context, key string, e *entry, r conformance.Request) (conformance.Answer, error) {
	f := n.f
	if e == nil {
		e = &entry{steps: map[string]string{}}
	}
	a := &attempt{n: n, e: e, key: key, number: 1}
	if e.at != nil && !n.without("attempts are counted") {
		a.number = e.at.number + 1
	}
	outer := context.WithoutCancel(ctx)
	if n.without("the work outlives its caller") {
		outer = ctx
	}
	mine, cancel := context.WithCancelCause(outer)
	defer cancel(nil)
	a.cancel = cancel
	e.state, e.payload, e.owner, e.at, e.refuse = "working", r.Payload, n, a, e.refuse || r.Refuse
	f.entries[key] = e
	f.mu.Unlock()
	if n.without("a slow one keeps its claim") {
		defer time.AfterFunc(ttl/2, func() {
			f.mu.Lock()
			defer f.mu.Unlock()
			if e.at == a && e.state == "working" {
				n.lose(e)
			}
		}).Stop()
	}
	err := a.claim(ctx, r)
	if n.without("attempts begin") {
		err = errGone
	}
	if err != nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		if e.at == a {
			e.state = "free"
			f.stir()
		}
		return conformance.Answer{}, err
	}
	defer func() {
		v := recover()
		if v == nil {
			return
		}
		f.mu.Lock()
		switch {
		case n.without("a panic ends its attempt"):
		case n.without("a panic is no success"):
			e.state, e.answer = "done", conformance.Answer{Attempt: a.number, Token: a.token}
		default:
			n.lose(e)
		}
		f.mu.Unlock()
		panic(v)
	}()
	value, err := r.Func(mine, a)
	ans := conformance.Answer{Value: value, Attempt: a.number, Token: a.token}
	if err != nil {
		return ans, a.failed(err, r)
	}
	return a.succeeded(ctx, ans, r)
}

func (a *attempt) failed(err error, r conformance.Request) error {
	n, e := a.n, a.e
	if n.without("own keys come with the outcome") {
		_, _ = n.client.Txn(context.Background()).Then(a.then...).Commit()
	}
	n.f.mu.Lock()
	latest := e.at == a && e.state == "working"
	n.f.mu.Unlock()
	if !latest && !n.without("a zombie frees nothing") {
		return err
	}
	a.clear()
	n.f.mu.Lock()
	defer n.f.mu.Unlock()
	e.state, e.failure = "free", err.Error()
	if r.Remember && !n.without("failures are remembered") || n.without("errors are no outcomes") {
		e.state = "failed"
		a.expires(r.Retain)
	}
	n.f.stir()
	return err
}

func (a *attempt) succeeded(ctx context.Context, ans conformance.Answer, r conformance.Request) (conformance.Answer, error) {
	n, e := a.n, a.e
	large := len(ans.Value) > 1<<20
	if !n.without("the outcome outlives the caller") {
		ctx = context.WithoutCancel(ctx)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(n.client.Ctx(), cancel)() // etcd's client continues long after its end
	err := a.record(ctx, r.Retain)
	n.f.mu.Lock()
	defer n.f.mu.Unlock()
	defer n.f.stir()
	latest := e.at == a && e.state == "working"
	switch {
	case errors.Is(err, errConflict) && latest:
		e.state = "free"
		return ans, err
	case n.without("a zombie records nothing"):
	case err != nil && latest:
		e.state = "free" // only one of the rules' absence brings this about
		return ans, err
	case err != nil || !latest:
		return ans, errFenced
	}
	e.state, e.answer, e.owner = "done", ans, n
	n.seen[a.key] = true
	switch {
	case large && n.without("large results are done all the same"):
		e.state = "free"
	case large && n.without("large results are kept whole"):
		e.answer.Value = ans.Value[:1<<20]
	}
	a.expires(r.Retain)
	return ans, nil
}

// expires forgets the outcome when its time is up. The fleet is locked.
func (a *attempt) expires(d time.Duration) {
	switch {
	case a.n.without("outcomes go"):
		return
	case a.n.without("outcomes stay for as long as was said"):
		d /= 4
	}
	time.AfterFunc(d, func() {
		a.n.f.mu.Lock()
		defer a.n.f.mu.Unlock()
		if a.n.f.entries[a.key] == a.e {
			delete(a.n.f.entries, a.key)
		}
	})
}

// stored is the name of the request in etcd.
func (a *attempt) stored(kind string, r *conformance.Request) string {
	if r != nil && a.n.without("keys are hashed") {
		_, _ = a.n.client.Put(context.Background(), a.n.prefix+"raw/"+r.ID, "")
	}
	h := sha256.Sum256([]byte(a.key))
	return a.n.prefix + kind + hex.EncodeToString(h[:])
}

// claim puts a key whose create revision is the token.
func (a *attempt) claim(ctx context.Context, r conformance.Request) error {
	key := a.stored("claim/", &r)
	for {
		_, err := a.n.client.Delete(ctx, key)
		if err == nil {
			_, err = a.n.client.Txn(ctx).Then(clientv3.OpPut(key, "")).Commit()
		}
		if err == nil {
			var resp *clientv3.GetResponse
			if resp, err = a.n.client.Get(ctx, key); err == nil && len(resp.Kvs) == 1 {
				a.token = resp.Kvs[0].CreateRevision
				if a.n.without("tokens rise") {
					a.token = 1
				}
				return nil
			}
		}
		if err := pause(ctx, a.n.client); err != nil {
			return err
		}
	}
}

func pause(ctx context.Context, client *clientv3.Client) error {
	select {
	case <-time.After(5 * time.Millisecond):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-client.Ctx().Done():
		return errGone
	}
}

// clear removes the claim.
func (a *attempt) clear() {
	if !a.n.without("claims go") {
		_, _ = a.n.client.Delete(context.Background(), a.stored("claim/", nil))
	}
}

// record writes down that there is an outcome, with the caller's own keys, until it is there.
func (a *attempt) record(ctx context.Context, retain time.Duration) error {
	claim, record := a.stored("claim/", nil), a.stored("record/", nil)
	token := strconv.FormatInt(a.token, 10)
	ifs, first := append(a.Guard(), a.ifs...), true
	switch {
	case a.n.without("own keys come with the outcome"):
		ifs = ifs[:1]
		if _, err := a.n.client.Txn(ctx).Then(a.then...).Commit(); err == nil {
			a.then = nil
		}
	case a.n.without("own conditions count"):
		ifs = ifs[:1]
	case a.n.without("a zombie records nothing"):
		ifs = a.ifs
	}
	for {
		var resp *clientv3.TxnResponse
		lease, err := a.n.client.Grant(ctx, int64(math.Ceil(retain.Seconds())))
		if err == nil {
			then := []clientv3.Op{clientv3.OpPut(record, token, clientv3.WithLease(lease.ID))}
			if !a.n.without("claims go") {
				then = append(then, clientv3.OpDelete(claim))
			}
			if a.n.without("a lost response is looked into") && !first {
				ifs = nil
			}
			resp, err = a.n.client.Txn(ctx).If(ifs...).Then(append(then, a.then...)...).Else(clientv3.OpGet(record), clientv3.OpGet(claim)).Commit()
		}
		switch {
		case err != nil && a.n.without("a returned one is written until it is there"):
			a.clear()
			return err
		case err != nil:
			first = false
			if err := pause(ctx, a.n.client); err != nil {
				return err
			}
			continue
		case resp.Succeeded:
			return nil
		}
		recorded, claimed := resp.Responses[0].GetResponseRange().Kvs, resp.Responses[1].GetResponseRange().Kvs
		switch {
		case len(recorded) == 1 && string(recorded[0].Value) == token:
			return nil // it was done, and the answer lost
		case len(claimed) == 1 && claimed[0].CreateRevision == a.token:
			a.clear()
			return errConflict
		}
		return errFenced
	}
}

func (a *attempt) Attempt() int { return a.number }
func (a *attempt) Token() int64 { return a.token }

func (a *attempt) Guard() []clientv3.Cmp {
	if a.n.without("the guard guards") || a.n.without("tokens rise") {
		return []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(a.n.prefix+"nothing"), "=", 0)}
	}
	return []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(a.stored("claim/", nil)), "=", a.token)}
}

func (a *attempt) ChildKey(purpose string) string {
	if a.n.without("child keys are the same in all attempts") {
		purpose = fmt.Sprint(purpose, a.number)
	}
	h := sha256.Sum256([]byte(purpose + a.key))
	return hex.EncodeToString(h[:])
}

func (a *attempt) Attach(ifs []clientv3.Cmp, then ...clientv3.Op) {
	a.ifs, a.then = append(a.ifs, ifs...), append(a.then, then...)
}

func (a *attempt) Step(name string, fn func(context.Context) (string, error)) (string, error) {
	if a.n.without("there are steps") {
		return "", fmt.Errorf("steps: %w", errors.ErrUnsupported)
	}
	steps := func() (map[string]string, error) {
		a.n.f.mu.Lock()
		defer a.n.f.mu.Unlock()
		if a.e.at != a || a.e.state != "working" {
			return nil, errFenced
		}
		return maps.Clone(a.e.steps), nil
	}
	known, err := steps()
	if v, ok := known[name]; ok || err != nil {
		return v, err
	}
	v, err := fn(context.Background())
	if err != nil {
		return "", err
	}
	if known, err = steps(); err != nil {
		return v, err
	}
	if !a.n.without("steps are kept") {
		known[name] = v
	}
	a.n.f.mu.Lock()
	defer a.n.f.mu.Unlock()
	a.e.steps = known
	return v, nil
}
