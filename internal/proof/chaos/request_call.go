package chaos

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/internal/hostclock"
	"github.com/etcdkit/etcdkit/internal/proof/check"
	"github.com/etcdkit/etcdkit/internal/proof/history"
	"github.com/etcdkit/etcdkit/internal/proof/outcome"
)

// requestCall is one call for a request, and what its function does.
type requestCall struct {
	asked
	bound     time.Duration // of ctx
	payload   string
	reject    bool
	wait      time.Duration // for others; 0: as long as ctx
	likelyNew bool
	atMost    time.Duration // MaxExecution
	takes     time.Duration
	steps     int
	with      string // an effect that comes with the outcome: check.WithPut …
	big       bool   // the value does not fit into its record
	stuck     bool   // works on after its context has ended, and returns a value then
	fails     bool
	nothing   bool // a failure says that nothing was done
	remember  bool // its failure
	panics    bool
}

var payloads = []string{"7 EUR", "8 EUR"}

func drawRequestCall(r *rand.Rand, k asked) requestCall {
	ms := func(from, to int) time.Duration { return time.Duration(from+r.IntN(to-from)) * time.Millisecond }
	o := requestCall{asked: k, bound: ms(300, 5000), payload: payloads[0], reject: r.IntN(4) == 0, likelyNew: r.IntN(4) == 0, atMost: time.Minute}
	if r.IntN(10) == 0 {
		o.bound = ms(1, 60) // ends about when it is claimed
	}
	if r.IntN(30) == 0 {
		o.payload = payloads[1]
	}
	if r.IntN(5) == 0 {
		o.wait = ms(1, 500)
	}
	switch n := r.IntN(100); {
	case n < 50:
	case n < 90:
		o.takes = ms(0, 500)
	default:
		o.takes = ms(500, 6000) // longer than the TTL
	}
	if r.IntN(12) == 0 {
		o.atMost = ms(20, 500)
	}
	if r.IntN(3) == 0 {
		o.steps = 1 + r.IntN(3)
	}
	switch n := r.IntN(20); {
	case n < 8:
		o.with = check.WithPut
	case n < 9:
		o.with = check.WithConflict
	}
	o.big = r.IntN(100) == 0
	o.stuck, o.fails, o.remember, o.panics = r.IntN(6) == 0, r.IntN(8) == 0, r.IntN(2) == 0, r.IntN(40) == 0
	o.nothing = r.IntN(2) == 0
	return o
}

func (o requestCall) options() []idempotency.Option {
	onError := idempotency.Forget
	if o.remember {
		onError = idempotency.Remember
	}
	opts := []idempotency.Option{idempotency.Retain(o.retain), idempotency.OnLost(o.onLost), idempotency.MaxExecution(o.atMost),
		idempotency.OnError(func(error) idempotency.Action { return onError })}
	switch {
	case o.reject:
		opts = append(opts, idempotency.Wait(0))
	case o.wait > 0:
		opts = append(opts, idempotency.Wait(o.wait))
	}
	if o.likelyNew {
		opts = append(opts, idempotency.LikelyNew())
	}
	return opts
}

var errRequest = errors.New("the function's own error")

// recordWithin is how long a call may take after its function has returned.
const recordWithin = 5 * time.Second

// run calls for the request, and records all of it.
func (o requestCall) run(ctx context.Context, p *Process, st *requestStore) (err error) {
	ctx, cancel := context.WithTimeout(ctx, o.bound)
	defer cancel()
	gate := o.gate(p.Env.Space)
	call := p.rec.Call(history.Event{Name: history.RequestDo, Gate: gate, Attr: map[string]string{"payload": o.payload}})
	// ctx bounds what comes before the function, and other functions of this process.
	begin := p.rec.Call(history.Event{Name: history.RequestBegin, Gate: gate, Until: deadline(ctx)})
	begun := sync.OnceFunc(func() { begin.Return(history.Event{Outcome: history.OK}) })
	var end *history.Call
	defer func() {
		if v := recover(); v != nil {
			if v != errPanic { //nolint:errorlint // the value of the panic
				panic(v)
			}
			end.Return(history.Event{Outcome: history.OK})
			call.Return(history.Event{Outcome: history.Unknown, Error: errPanic.Error()})
			err = nil
		}
	}()
	res, err := idempotency.Do(ctx, st.Store, o.key, o.payload, func(ctx context.Context, a *idempotency.Attempt) (string, error) {
		begun()
		start := p.rec.Call(history.Event{Name: history.RequestStart, Gate: gate, N: int64(a.Attempt()), Token: a.Token(),
			Attr: map[string]string{"call": call.Tag(), "retain": o.retain.String(), "unknown": retainUnknown.String(), "atmost": o.atMost.String(), "with": o.with}})
		belief := start.Granted(a.Token())
		value, err := o.work(ctx, p, a, belief, call.Tag())
		belief.Check(a)
		belief.End(history.Released)
		as := "done"
		switch {
		case o.panics:
			as = "panic"
		case err == errRequest && o.nothing: //nolint:errorlint // as its function has returned it
			as, err = check.NothingDone, idempotency.NothingDone(err)
		case err != nil && !o.remember:
			as = "released"
		case err != nil:
			as = "failed"
		}
		end = p.rec.Call(history.Event{Name: history.Release, Gate: gate, Token: a.Token(), Until: hostclock.At(time.Now().Add(recordWithin)), Attr: map[string]string{"as": as}})
		if o.panics {
			panic(errPanic)
		}
		return value, err
	}, o.options()...)
	begun()
	if end != nil {
		end.Return(history.Event{Outcome: history.OK}) // or soon, in the background
	}
	return o.record(call, p, res, err)
}

// record records what a call returned.
func (o requestCall) record(call *history.Call, p *Process, res idempotency.Result[string], err error) error {
	e := history.Event{Outcome: history.OK, Token: res.Token}
	var failure *idempotency.FailedError
	switch {
	case err == nil:
		b, _ := json.Marshal(res.Value)
		sum := sha256.Sum256(b)
		e.Cause, e.Attr = history.Ran, map[string]string{"sum": hex.EncodeToString(sum[:])}
		if res.Replayed {
			e.Cause = history.Replayed
		}
	case errors.As(err, &failure):
		e.Cause, e.Token = history.FailedBefore, failure.Outcome.Token
	case errors.Is(err, idempotency.ErrNotRecorded):
		outcome.Return(call, err)
		return err
	case errors.Is(err, errRequest) || errors.Is(err, idempotency.ErrConflict):
		e.Cause = "error"
	case errors.Is(err, idempotency.ErrInProgress):
		e.Cause = history.InProgress
	case errors.Is(err, idempotency.ErrMismatch):
		e.Cause = history.Mismatch
	case errors.Is(err, idempotency.ErrUnknown):
		e.Cause = history.UnknownFate
	default:
		outcome.Return(call, err)
		return err
	}
	if err != nil {
		e.Error = err.Error()
	}
	call.Return(e)
	p.Env.Stats.Add("request: "+e.Cause, 1)
	if e.Cause == "error" {
		return nil
	}
	return err
}

// work is what the function does until its time is over or its attempt has ended. One
// that is stuck works on for a while then, and returns a value all the same.
func (o requestCall) work(ctx context.Context, p *Process, a *idempotency.Attempt, belief *history.Belief, tag string) (string, error) {
	if o.with != "" {
		put := clientv3.OpPut(p.Env.register(o.gate(p.Env.Space)), fmt.Sprint(a.Token()))
		var ifs []clientv3.Cmp
		if o.with == check.WithConflict {
			ifs = append(ifs, clientv3.Compare(clientv3.CreateRevision(p.Env.Space.Root()+"nothing"), ">", 0))
		}
		a.Attach(ifs, put)
	}
	begun, done := time.Now(), 0
	for belief.Check(a) {
		passed := time.Since(begun)
		if done < o.steps && passed >= o.takes*time.Duration(done)/time.Duration(o.steps) {
			done++
			_, err := idempotency.Step(a, fmt.Sprintf("step-%d", done), func(context.Context) (string, error) { return tag, nil })
			if err != nil && a.Err() == nil {
				return "", errors.Join(errRequest, err)
			}
			continue
		}
		if passed >= o.takes {
			break
		}
		select {
		case <-time.After(min(3*time.Millisecond, o.takes-passed)):
		case <-ctx.Done():
		}
	}
	if err := a.Err(); err != nil {
		belief.End(attemptCause(err))
		if !o.stuck {
			return "", errors.Join(errRequest, err)
		}
		_ = Sleep(p.Env.life, p.plan.margin+300*time.Millisecond)
	}
	if o.fails {
		return "", errRequest
	}
	if o.big {
		return tag + strings.Repeat(".", 150<<10), nil
	}
	return tag, nil
}

// attemptCause names why an attempt has ended, in the words of a history.
func attemptCause(err error) string {
	if errors.Is(err, idempotency.ErrTooLong) {
		return history.HeldTooLong
	}
	return outcome.Cause(err)
}
