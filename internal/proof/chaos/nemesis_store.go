package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/proof/history"
)

// storeNemeses change keys in etcd, or how much etcd may hold.
func storeNemeses() []Nemesis {
	return []Nemesis{
		{Name: "compaction", Strike: compaction},
		{Name: "no-space", Strike: noSpace},
		{Name: "foreign-keys", Needs: queues, Strike: foreignKeys},
		{Name: "damaged-limit", Needs: queues, Strike: damagedLimit},
	}
}

func queues(env *Env) bool { return len(env.Queues) > 0 }

// compaction takes the history away, up to the newest revision.
func compaction(ctx context.Context, env *Env, r *rand.Rand) int {
	for compacted := 0; ; {
		if _, err := env.Cluster.Compact(ctx); err == nil {
			compacted++
			env.Stats.Add("compactions", 1)
		}
		if Sleep(ctx, time.Duration(100+r.IntN(100))*time.Millisecond) != nil {
			return compacted
		}
	}
}

// noSpace raises the alarm of a full backend.
func noSpace(ctx context.Context, env *Env, _ *rand.Rand) (effects int) {
	if err := env.Cluster.SetNoSpace(ctx, true); err != nil {
		env.trouble("raise NOSPACE: %v", err)
	}
	if _, err := env.Admin().Put(ctx, outside, "more"); errors.Is(err, rpctypes.ErrNoSpace) {
		effects++
	}
	<-ctx.Done()
	env.mend("NOSPACE", func(ctx context.Context) error { return env.Cluster.SetNoSpace(ctx, false) })
	return effects
}

// foreignKeys plants what does not belong into the ranges of queues, and what looks
// as if it did.
func foreignKeys(ctx context.Context, env *Env, r *rand.Rand) (effects int) {
	var planted []string
	var leases []clientv3.LeaseID
	armed, disarm, err := env.arm(ctx, "foreign")
	if err != nil {
		return 0
	}
	for n := 1 + r.IntN(6); n > 0 && ctx.Err() == nil; n-- {
		g, kind, number, weight := env.Queues[r.IntN(len(env.Queues))], r.IntN(5), r.IntN(8), int64(1+r.IntN(3))
		who := env.Processes[r.IntN(len(env.Processes))]
		var owner int64 = 0x6a7
		if s := who.Session(); s != nil {
			owner = int64(s.Lease())
		}
		slot := keyspace.Slot{Lease: owner, Number: number, Weight: weight, Try: r.IntN(4) == 0}
		key, put := g.Slot(slot), clientv3.OpPut(g.Slot(slot), "planted")
		switch kind {
		case 0: // no slot at all
			key = g.Requests + fmt.Sprintf("light/garbage-%d", number)
			put = clientv3.OpPut(key, "planted")
		case 1: // an earlier or later layout
			key = g.Range + fmt.Sprintf("later/%d", number)
			put = clientv3.OpPut(key, "planted")
		case 2: // a slot of a live session, on no lease
		default: // a slot of a live session, on a stranger's lease; or a stranger's own request
			resp, err := env.Admin().Grant(ctx, 5)
			if err != nil {
				continue
			}
			leases = append(leases, resp.ID)
			if kind == 4 {
				slot.Lease = int64(resp.ID)
				key = g.Slot(slot)
			}
			put = clientv3.OpPut(key, "planted", clientv3.WithLease(resp.ID))
		}
		// An existing key is not overwritten: that is another harm.
		done := env.Recorder.Begin(history.Event{Name: KeyPlanted, Attr: map[string]string{"key": key}})
		resp, err := env.Admin().Txn(ctx).If(armed, clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).Then(put).Commit()
		done()
		planted = append(planted, key)
		if err == nil && resp.Succeeded {
			effects++
		}
	}
	<-ctx.Done()
	env.mend("foreign keys", func(ctx context.Context) error {
		if err := disarm(ctx); err != nil {
			return err
		}
		for _, id := range leases {
			if _, err := env.Admin().Revoke(ctx, id); err != nil && !errors.Is(err, rpctypes.ErrLeaseNotFound) {
				return err
			}
		}
		for _, key := range planted {
			// What a session wrote there meanwhile is not ours to delete.
			_, err := env.Admin().Txn(ctx).If(clientv3.Compare(clientv3.Value(key), "=", "planted")).
				Then(clientv3.OpDelete(key)).Commit()
			if err != nil {
				return err
			}
		}
		return nil
	})
	return effects
}

// damagedLimit makes the record of a limit unreadable, or deletes it, and puts it
// back later.
func damagedLimit(ctx context.Context, env *Env, r *rand.Rand) (effects int) {
	g, garbage := env.Queues[r.IntN(len(env.Queues))], []string{"garbage", `{"v":99}`, ""}[r.IntN(3)]
	resp, err := env.Admin().Get(ctx, g.Limit)
	if err != nil || len(resp.Kvs) == 0 {
		return 0
	}
	was := resp.Kvs[0]
	armed, disarm, err := env.arm(ctx, "limit")
	if err != nil {
		return 0
	}
	harm := clientv3.OpPut(g.Limit, garbage)
	if garbage == "" {
		harm = clientv3.OpDelete(g.Limit)
	}
	done := env.Recorder.Begin(history.Event{Name: LimitDamaged, Attr: map[string]string{"key": g.Limit}})
	txn, err := env.Admin().Txn(ctx).If(armed, clientv3.Compare(clientv3.ModRevision(g.Limit), "=", was.ModRevision)).Then(harm).Commit()
	done()
	if err == nil && txn.Succeeded {
		effects++
	}
	<-ctx.Done()
	env.mend("a limit", func(ctx context.Context) error {
		if err := disarm(ctx); err != nil || garbage == "" {
			return err // the next user stores it again
		}
		_, err := env.Admin().Txn(ctx).If(clientv3.Compare(clientv3.Value(g.Limit), "=", garbage)).
			Then(clientv3.OpPut(g.Limit, string(was.Value))).Commit()
		return err
	})
	return effects
}
