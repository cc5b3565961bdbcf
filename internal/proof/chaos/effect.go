package chaos

import (
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/proof/history"
	"github.com/etcdkit/etcdkit/schedlock"
)

// held is a permit or a run.
type held interface {
	Token() int64
	Guard() clientv3.Cmp
}

// act does something under a permit, without asking whether it is still held: that
// is what guard and token are for. An exclusive permit's effect goes to a register
// that checks tokens, another's to etcd, under its guard.
func (p *Process) act(permit held, gate string, register Register) {
	e := history.Event{Kind: history.KindEffect, Gate: gate, Token: permit.Token(), Outcome: history.Fail}
	if register != nil {
		e.Attr = map[string]string{"register": gate, "mode": history.ModeToken}
		var accepted bool
		if accepted, e.N = register.Write(permit.Token()); accepted {
			e.Outcome = history.OK
		}
		p.rec.Add(e)
		return
	}
	client := p.Client()
	if client == nil {
		return // dead
	}
	key := p.Env.register(gate)
	value := fmt.Sprintf("%s/%d", p.Name, p.Env.writes.Add(1))
	e.Attr = map[string]string{"register": key, "mode": history.ModeGuard, "value": value}
	ctx, cancel := context.WithTimeout(p.Env.life, time.Second)
	defer cancel()
	txn := client.Txn(ctx).If(permit.Guard())
	if run, ok := permit.(*schedlock.Run); ok {
		txn = run.Txn(ctx)
	}
	resp, err := txn.Then(clientv3.OpPut(key, value)).Commit()
	switch {
	case err != nil:
		e.Outcome, e.Error = history.Unknown, err.Error()
	case resp.Succeeded:
		e.Outcome, e.Rev = history.OK, resp.Header.Revision
	}
	p.rec.Add(e)
}

// register is the key that guarded writes go to. It lies in the tapped range, and in
// that of no queue.
func (env *Env) register(gate string) string { return env.Space.Root() + "register/" + gate }
