package chaos

import (
	"context"
	"math/rand/v2"
	"reflect"
	"time"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/proof/history"
	"github.com/etcdkit/etcdkit/internal/proof/outcome"
)

// ask is one acquisition: what is asked for, and what is done with it.
type ask struct {
	gate     string
	weight   int
	id       string
	takeOver bool
	shared   bool // its permit's key may serve other calls of the process: no note, and Token is not asked for

	try, do    bool          // TryAcquire; Do
	bound      time.Duration // of ctx
	wait       time.Duration // option Wait; 0: not given
	maxWaiters int           // option MaxWaiters; below 0: not given
	maxHold    time.Duration // option MaxHold; 0: not given

	hold    time.Duration
	effects int           // number of writes meanwhile
	stuck   bool          // never releases it: MaxHold does
	patient time.Duration // bound of Release; 0: its ctx has ended already
	late    bool          // a write comes after the release

	register Register // of an exclusive permit
}

// asker is what permits are asked from.
type asker struct {
	acquire, try func(context.Context, ...concurrency.AcquireOption) (*concurrency.Permit, error)
	do           func(context.Context, func(context.Context, *concurrency.Permit) error, ...concurrency.AcquireOption) error
}

// plain asks for a permit, waits for it as long as ctx, and releases it at once.
func plain(gate string, weight int, register Register) ask {
	return ask{gate: gate, weight: weight, register: register, maxWaiters: -1, bound: time.Minute, patient: time.Minute, effects: 1}
}

// drawAsk draws everything that is not the queue's.
func drawAsk(r *rand.Rand) ask {
	ms := func(from, to int) time.Duration { return time.Duration(from+r.IntN(to-from)) * time.Millisecond }
	a := ask{weight: 1, maxWaiters: -1, bound: ms(300, 4000), hold: ms(0, 60), effects: r.IntN(3), patient: 3 * time.Second}
	if r.IntN(10) == 0 {
		a.bound = ms(1, 60) // ends about when it is granted
	}
	if r.IntN(20) == 0 {
		a.hold = ms(300, 2500)
	}
	switch n := r.IntN(100); {
	case n < 20:
		a.try = true
	case n < 35:
		a.do = true
	case n < 50:
		a.wait = ms(1, 1000)
	case n < 60:
		a.maxWaiters = r.IntN(4)
	}
	if r.IntN(8) == 0 {
		a.maxHold = ms(20, 400)
		a.stuck = r.IntN(3) == 0 && !a.do
	}
	switch r.IntN(10) {
	case 0:
		a.patient = 0
	case 1:
		a.patient = ms(1, 20)
	}
	return a
}

func (a ask) name() string {
	switch {
	case a.try:
		return history.Try
	case a.do:
		return "do"
	}
	return history.Acquire
}

func (a ask) options(note string) []concurrency.AcquireOption {
	var opts []concurrency.AcquireOption
	if !a.shared {
		opts = append(opts, concurrency.Note(note))
	}
	if a.weight > 1 {
		opts = append(opts, concurrency.Weight(a.weight))
	}
	if a.id != "" {
		opts = append(opts, concurrency.ID(a.id))
	}
	if a.takeOver {
		opts = append(opts, concurrency.TakeOver())
	}
	if a.wait > 0 {
		opts = append(opts, concurrency.Wait(a.wait))
	}
	if a.maxWaiters >= 0 {
		opts = append(opts, concurrency.MaxWaiters(a.maxWaiters))
	}
	if a.maxHold > 0 {
		opts = append(opts, concurrency.MaxHold(a.maxHold))
	}
	return opts
}

// run acquires, holds, acts and releases, and records all of it.
func (a ask) run(ctx context.Context, p *Process, from asker) error {
	ctx, cancel := context.WithTimeout(ctx, a.bound)
	defer cancel()
	e := history.Event{Name: history.Acquire, Gate: a.gate, Weight: int64(a.weight), ID: a.id, Until: deadline(ctx)}
	if a.try {
		e.Name = history.Try
	}
	switch {
	case a.takeOver:
		e.Attr = map[string]string{"takeover": "yes"}
	case a.shared:
		e.Attr = map[string]string{"shared": "yes"}
	}
	call := p.rec.Call(e)
	opts := a.options(call.Tag())
	if a.do {
		return a.runDo(ctx, p, from, call, opts)
	}
	get := from.acquire
	if a.try {
		get = from.try
	}
	permit, err := get(ctx, opts...)
	if err != nil {
		outcome.Return(call, err)
		return err
	}
	belief := call.Granted(token(permit))
	if !a.work(context.Background(), p, permit, belief) {
		belief.End(outcome.Cause(permit.Err()))
	}
	if a.stuck {
		return nil
	}
	belief.Check(permit)
	belief.End(history.Released)

	back, cancel := context.WithTimeout(context.Background(), a.patient)
	defer cancel()
	release := a.releases(back, p, permit)
	err = permit.Release(back)
	a.shows(release, permit)
	outcome.Return(release, err)
	if a.late && err == nil {
		p.act(permit, a.gate, a.register)
	}
	return err
}

// token returns a permit's token without its method, by which a permit is not kept any more.
func token(p *concurrency.Permit) int64 {
	return reflect.ValueOf(p).Elem().FieldByName("token").Int()
}

// releases records that a release begins.
func (a ask) releases(ctx context.Context, p *Process, permit *concurrency.Permit) *history.Call {
	e := history.Event{Name: history.Release, Gate: a.gate, Until: deadline(ctx)}
	if !a.shared {
		e.Token = permit.Token()
	}
	return p.rec.Call(e)
}

// shows records whether a release has released a key that may be shared: if so, the permit shows its token.
func (a ask) shows(release *history.Call, permit *concurrency.Permit) {
	if a.shared {
		release.Of(permit.Token())
	}
}

// runDo is run for a permit that comes and goes around a function.
func (a ask) runDo(ctx context.Context, p *Process, from asker, call *history.Call, opts []concurrency.AcquireOption) error {
	var release *history.Call
	var held *concurrency.Permit
	err := from.do(ctx, func(ctx context.Context, permit *concurrency.Permit) error {
		held = permit
		belief := call.Granted(token(permit))
		if !a.work(ctx, p, permit, belief) && permit.Err() != nil {
			belief.End(outcome.Cause(permit.Err()))
		}
		belief.Check(permit)
		belief.End(history.Released)
		release = a.releases(ctx, p, permit)
		return nil
	}, opts...)
	if release == nil {
		outcome.Return(call, err)
		return err
	}
	// Do reports no release that is not confirmed yet; the permit does.
	now, cancel := context.WithCancel(ctx)
	cancel()
	released := held.Release(now)
	a.shows(release, held)
	release.Done(released, outcome.Definite)
	return err
}

// work holds the permit and acts under it until its time is over, and returns
// whether it was held until then.
func (a ask) work(ctx context.Context, p *Process, permit *concurrency.Permit, belief *history.Belief) bool {
	begun, done := time.Now(), 0
	for {
		if !belief.Check(permit) {
			return false
		}
		passed := time.Since(begun)
		if done < a.effects && passed >= a.hold*time.Duration(done)/time.Duration(a.effects) {
			done++
			p.act(permit, a.gate, a.register)
			continue
		}
		pause := 3 * time.Millisecond
		if !a.stuck {
			if passed >= a.hold {
				return true
			}
			pause = min(pause, a.hold-passed)
		}
		select {
		case <-time.After(pause):
		case <-permit.Context().Done():
		case <-ctx.Done():
			return false
		}
	}
}
