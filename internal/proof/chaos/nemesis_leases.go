package chaos

import (
	"context"
	"math/rand/v2"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/proof/history"
)

// leaseNemeses remove leases and keys of others. The guarantees
// are excepted from what these do, so each act is declared.
func leaseNemeses() []Nemesis {
	return []Nemesis{
		{Name: "revoke-lease", Strike: revokeLease},
		{Name: "delete-keys", Strike: deleteKeys},
		{Name: "overwrite-presence", Strike: overwritePresence},
		{Name: "process-dies", Strike: processDies},
	}
}

// revokeLease ends leases of sessions, as an operator or etcd itself would.
func revokeLease(ctx context.Context, env *Env, r *rand.Rand) (effects int) {
	for every := time.Duration(200+r.IntN(800)) * time.Millisecond; ; {
		p, expire := env.Processes[r.IntN(len(env.Processes))], r.IntN(2) == 0
		if s := p.Session(); s != nil && s.Lease() != 0 {
			id, end := s.Lease(), env.Cluster.RevokeLease
			if expire {
				end = env.Cluster.ExpireLease
			}
			done := env.Recorder.Begin(history.Event{Name: LeaseEnded, Lease: int64(id)})
			if end(ctx, id) == nil {
				effects++
			}
			done()
		}
		if Sleep(ctx, every) != nil {
			return effects
		}
	}
}

// deleteKeys deletes live keys of sessions by hand: requests, IDs and presence
// keys.
func deleteKeys(ctx context.Context, env *Env, r *rand.Rand) (effects int) {
	for every := time.Duration(100+r.IntN(400)) * time.Millisecond; ; {
		draw := r.Uint64()
		resp, err := env.Admin().Get(ctx, env.Space.Root(), clientv3.WithPrefix())
		if err == nil {
			leased := resp.Kvs[:0]
			for _, kv := range resp.Kvs {
				if kv.Lease != 0 {
					leased = append(leased, kv)
				}
			}
			if len(leased) > 0 {
				kv := leased[draw%uint64(len(leased))]
				key := string(kv.Key)
				done := env.Recorder.Begin(history.Event{Name: KeyDeleted, Token: kv.CreateRevision, Lease: kv.Lease, Attr: map[string]string{"key": key}})
				resp, err := env.Admin().Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(key), "=", kv.CreateRevision)).
					Then(clientv3.OpDelete(key)).Commit()
				if err == nil && resp.Succeeded {
					effects++
				}
				done()
			}
		}
		if Sleep(ctx, every) != nil {
			return effects
		}
	}
}

// overwritten is what a presence key is overwritten with.
const overwritten = "not a session"

// overwritePresence puts a presence key again, without its lease.
func overwritePresence(ctx context.Context, env *Env, r *rand.Rand) (effects int) {
	p := env.Processes[r.IntN(len(env.Processes))]
	s := p.Session()
	if s == nil || s.Lease() == 0 {
		return 0
	}
	id := int64(s.Lease())
	key := env.Space.Session(id).Alive()
	armed, disarm, err := env.arm(ctx, "presence")
	if err != nil {
		return 0
	}
	done := env.Recorder.Begin(history.Event{Name: KeyOverwritten, Lease: id, Attr: map[string]string{"key": key}})
	resp, err := env.Admin().Txn(ctx).If(armed, clientv3.Compare(clientv3.CreateRevision(key), ">", 0)).
		Then(clientv3.OpPut(key, overwritten)).Commit()
	if err == nil && resp.Succeeded {
		effects++
	}
	done()
	<-ctx.Done()
	env.mend("an overwritten presence key", func(ctx context.Context) error {
		if err := disarm(ctx); err != nil {
			return err
		}
		// On no lease, so nothing else will. But the put may have been refused.
		_, err := env.Admin().Txn(ctx).If(clientv3.Compare(clientv3.Value(key), "=", overwritten)).Then(clientv3.OpDelete(key)).Commit()
		return err
	})
	return effects
}

// processDies ends a process without a word: its connections close, its lease runs
// out, and another process takes its place.
func processDies(ctx context.Context, env *Env, r *rand.Rand) (effects int) {
	p, free := env.claim(r.IntN(len(env.Processes)))
	defer free()
	if p == nil {
		return 0
	}
	if s := p.Session(); s != nil && s.Lease() != 0 {
		key := env.Space.Session(int64(s.Lease())).Alive()
		p.die()
		if resp, err := env.Admin().Get(ctx, key); err == nil && len(resp.Kvs) == 1 {
			effects++ // it is dead, and etcd does not know
		}
	}
	<-ctx.Done()
	env.mend("a process", p.open)
	return effects
}
