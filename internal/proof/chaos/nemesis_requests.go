package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/etcdkit/etcdkit/embedtest"
)

// requestNemeses strike single requests and messages of one process.
func requestNemeses() []Nemesis {
	return []Nemesis{
		{Name: "lost-answers", Strike: lostAnswers},
		{Name: "refusals", Strike: refusals},
		{Name: "doubled-requests", Strike: doubled},
		{Name: "late-requests", Strike: late},
		{Name: "broken-streams", Strike: brokenStreams},
		{Name: "lost-events", Strike: lostEvents},
		{Name: "lost-renewals", Strike: lostRenewals},
	}
}

// some matches about one in n messages, the same ones for the same seed as far as
// the messages are the same.
func some(r *rand.Rand, n int) func(string, any) bool {
	first := int64(r.IntN(n))
	var seen atomic.Int64
	return func(string, any) bool { return (seen.Add(1)-1+first)%int64(n) == 0 }
}

// writing reports whether a request may write, for those that one in n is to be struck
// of.
func writing(r *rand.Rand, n int) func(string, any) bool {
	pick := some(r, n)
	return func(method string, msg any) bool {
		switch method {
		case "Txn", "Put", "DeleteRange":
			return pick(method, msg)
		}
		return false
	}
}

// lostAnswers has requests carried out, and their answers lost.
func lostAnswers(ctx context.Context, env *Env, r *rand.Rand) int {
	method := []string{"LeaseGrant", "LeaseRevoke", "Range", ""}[r.IntN(4)]
	err := []error{nil, rpctypes.ErrGRPCTimeout, rpctypes.ErrGRPCNoSpace, context.DeadlineExceeded}[r.IntN(4)]
	match := some(r, 1+r.IntN(4))
	if r.IntN(2) == 0 {
		method, match = "", writing(r, 1+r.IntN(4))
	}
	return injected(ctx, env, r, embedtest.Fault{Method: method, Match: match, Times: -1, Do: embedtest.DropResponse, Err: err})
}

// refusals fails requests that are never sent, with what etcd says when it is
// too busy, has no leader, or closes a connection.
func refusals(ctx context.Context, env *Env, r *rand.Rand) int {
	err := []error{nil, rpctypes.ErrGRPCRequestTooManyRequests, rpctypes.ErrGRPCNoLeader, rpctypes.ErrGRPCStopped}[r.IntN(4)]
	return injected(ctx, env, r, embedtest.Fault{Match: some(r, 1+r.IntN(4)), Times: -1, Do: embedtest.FailWith, Err: err})
}

// doubled has writes carried out twice: the copy comes later.
func doubled(ctx context.Context, env *Env, r *rand.Rand) int {
	return injected(ctx, env, r, embedtest.Fault{Match: writing(r, 1+r.IntN(3)), Times: -1, Do: embedtest.Duplicate})
}

// connections returns those of a process, or of the next one that has not died.
func (env *Env) connections(who int) *embedtest.Client {
	for ; ; who++ {
		if c := env.Processes[who%len(env.Processes)].Client(); c != nil {
			return c
		}
	}
}

// injected puts a fault into force on a process until ctx ends. What is held is
// let go every now and then.
func injected(ctx context.Context, env *Env, r *rand.Rand, f embedtest.Fault) int {
	return injectedInto(ctx, env, r.IntN(len(env.Processes)), r, f)
}

// injectedInto is injected for a process that is chosen already.
func injectedInto(ctx context.Context, env *Env, who int, r *rand.Rand, f embedtest.Fault) int {
	every := time.Duration(50+r.IntN(1000)) * time.Millisecond
	inj := env.connections(who).Inject(f)
	for Sleep(ctx, every) == nil {
		_ = inj.Release()
	}
	inj.Remove()
	_ = inj.Release()
	return inj.Hits()
}

// late holds writes back until their callers have given up, or long gone on,
// and then has them carried out: those that create a request come back to a name
// that was settled, freed and often taken anew.
func late(ctx context.Context, env *Env, r *rand.Rand) int {
	who, pick := r.IntN(len(env.Processes)), writing(r, 1+r.IntN(4))
	wait := time.Duration(200+r.IntN(3000)) * time.Millisecond
	var mu sync.Mutex
	created := map[string]string{} // by the held requests: value by key
	inj := env.connections(who).Inject(embedtest.Fault{
		Times: -1, Do: embedtest.HoldRequest,
		Match: func(m string, msg any) bool {
			if !pick(m, msg) {
				return false
			}
			txn, ok := msg.(*etcdserverpb.TxnRequest)
			if !ok {
				return true
			}
			for _, op := range txn.Success {
				if put := op.GetRequestPut(); put != nil {
					mu.Lock()
					created[string(put.Key)] = string(put.Value)
					mu.Unlock()
				}
			}
			return true
		},
	})
	<-ctx.Done()
	inj.Remove()
	// No more are held; those that are wait some more.
	_ = Sleep(env.life, wait)
	env.mend("look at names", func(ctx context.Context) error {
		mu.Lock()
		defer mu.Unlock()
		for key, value := range created {
			resp, err := env.Admin().Get(ctx, key)
			if err != nil {
				return err
			}
			if len(resp.Kvs) == 1 && string(resp.Kvs[0].Value) != value {
				env.Stats.Add("late copies of a reused name", 1)
			}
		}
		return nil
	})
	_ = inj.Release()
	for _, res := range inj.LateResponses() {
		if reply, ok := res.Response.(*etcdserverpb.TxnResponse); ok {
			if reply.Succeeded {
				env.Stats.Add("late copies applied", 1)
			} else {
				env.Stats.Add("late copies refused", 1)
			}
		}
	}
	return inj.Hits()
}

// brokenStreams breaks streams of watches and renewals again and again.
func brokenStreams(ctx context.Context, env *Env, r *rand.Rand) int {
	method := []string{"Watch", "LeaseKeepAlive"}[r.IntN(2)]
	err := []error{nil, rpctypes.ErrGRPCNoLeader, rpctypes.ErrGRPCInvalidAuthToken}[r.IntN(3)]
	return injected(ctx, env, r, embedtest.Fault{Method: method, Match: some(r, 1+r.IntN(3)), Times: -1, Do: embedtest.FailWith, Err: err})
}

// lostEvents swallows events of watches, as defects of etcd have done.
func lostEvents(ctx context.Context, env *Env, r *rand.Rand) int {
	who, pick := r.IntN(len(env.Processes)), some(r, 1+r.IntN(3))
	return injectedInto(ctx, env, who, r, embedtest.Fault{
		Method: "Watch", Times: -1, Do: embedtest.DropResponse,
		Match: func(m string, msg any) bool {
			own := "/none"
			if s := env.Processes[who].Session(); s != nil {
				own = fmt.Sprintf("/%016x-", uint64(s.Lease())) //nolint:gosec // leases use all bits
			}
			// G1 assumes, see docs/guarantees.md, that a change of a limit is not lost, nor
			// that a key of this process was deleted by another.
			assumed := func(e *mvccpb.Event) bool {
				key := string(e.Kv.Key)
				return strings.HasSuffix(key, "/limit") || e.Type == mvccpb.DELETE && strings.Contains(key, own)
			}
			events := msg.(*etcdserverpb.WatchResponse).Events
			return len(events) > 0 && !slices.ContainsFunc(events, assumed) && pick(m, msg)
		},
	})
}

// lostRenewals swallows renewals or their answers.
func lostRenewals(ctx context.Context, env *Env, r *rand.Rand) int {
	do := []embedtest.Action{embedtest.DropResponse, embedtest.HoldResponse, embedtest.HoldRequest}[r.IntN(3)]
	who := r.IntN(len(env.Processes))
	inj := env.connections(who).Inject(embedtest.Fault{Method: "LeaseKeepAlive", Times: -1, Do: do})
	<-ctx.Done()
	inj.Remove()
	_ = inj.Release()
	return inj.Hits()
}
