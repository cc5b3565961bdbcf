package check

import (
	"github.com/etcdkit/etcdkit/internal/proof/history"
)

// goldenFence are golden histories that break a rule of effects.
var goldenFence = []goldenCase{
	{"a guard that holds too long", "fence/guard", func(t *scenario) {
		a := t.asks(0, t.mutex, 1)
		t.grant(a)
		t.byGuard(a)
		t.gives(a)
		e := *t.last(history.KindEffect)
		e.Rev = t.commit(change{key: "reg/x", value: "late"})
		t.emit(e)
	}},
	{"a guard that holds too long, and no answer", "fence/guard", func(t *scenario) {
		a := t.asks(0, t.mutex, 1)
		t.grant(a)
		t.byGuard(a)
		t.gives(a)
		e := *t.last(history.KindEffect)
		e.Outcome, e.Rev, e.Attr = history.Unknown, 0, map[string]string{"register": simPrefix + "reg/x", "value": "late", "mode": history.ModeGuard}
		t.commit(change{key: "reg/x", value: "late"})
		t.emit(e)
	}},
	{"a guard on a key that was written again", "fence/guard store/once", func(t *scenario) {
		a := t.asks(0, t.mutex, 1)
		t.grant(a)
		t.byGuard(a)
		e := *t.last(history.KindEffect)
		t.putAgain(a.req.key, a.req.lease)
		e.Rev = t.commit(change{key: "reg/x", value: "late"})
		t.emit(e)
	}},
	{"a write before admission", "fence/guard", func(t *scenario) {
		a, b := t.asks(0, t.mutex, 1), t.asks(1, t.mutex, 1)
		t.grant(a)
		b.ended = true
		t.byGuard(b)
		b.ended = false
		t.gives(a)
		t.grant(b)
	}},
	{"a write before the request", "fence/guard", func(t *scenario) {
		a := t.asks(0, t.mutex, 1)
		t.grant(a)
		t.byGuard(a)
		t.last(history.KindEffect).Rev = a.req.token - 1
	}},
	{"a write by a guard of no permit", "fence/guard", func(t *scenario) {
		t.emit(history.Event{Kind: history.KindEffect, Client: "c0", Gate: "mutex/m", Token: 3, Rev: t.rev, Outcome: history.OK,
			Attr: map[string]string{"register": "r", "mode": history.ModeGuard}})
	}},
	{"a register that takes a smaller token", "fence/falls", func(t *scenario) {
		a, b := t.asks(0, t.mutex, 1), t.asks(1, t.mutex, 1)
		t.grant(a)
		t.gives(a)
		t.grant(b)
		t.byToken(b)
		t.written["token"] = 0
		a.ended = true
		t.byToken(a)
	}},
	{"a holder is refused by its token", "fence/refused", func(t *scenario) {
		a := t.asks(0, t.mutex, 1)
		t.grant(a)
		t.written["token"] = a.req.token + 1
		t.byToken(a)
		t.gives(a)
	}},
	{"a holder is refused by its guard", "fence/refused", func(t *scenario) {
		a := t.asks(0, t.mutex, 1)
		t.grant(a)
		kv := t.keys[a.req.key]
		t.keys[a.req.key] = history.KV{}
		t.byGuard(a)
		t.keys[a.req.key] = kv
		t.check(a)
		t.gives(a)
	}},
}
