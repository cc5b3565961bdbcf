package commit

import (
	"context"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Amendment changes a key that stands at a known mod revision, and what belongs to it.
type Amendment struct {
	Key string
	Mod int64 // at which it must stand
	// Mine tells whether what is found at Key, nil for nothing, is what this
	// amendment leaves there. It must be true of no other change.
	Mine func(kv *mvccpb.KeyValue) bool
	If   []clientv3.Cmp // conditions beyond
	Then []clientv3.Op  // which changes Key
	Else []clientv3.Op  // read if a condition in If is not met
	// Same returns what puts again what stands at Key. It shuts out late copies after
	// a condition in If was found not met; it is not needed without If.
	Same func() clientv3.Op
	Together
}

// Outcome is what became of an amendment.
type Outcome int

// The outcomes of Amend.
const (
	// Overtaken: Key was changed by another. Nothing was done, or, if an answer was
	// lost, something that another has changed since.
	Overtaken Outcome = iota
	// Amended: it is done.
	Amended
	// Unmet: a condition in If is not met. Nothing was done, nor will be.
	Unmet
	// LeaseGone: a lease on which something was to be put is gone. Nothing was done.
	LeaseGone
)

// Amending is what came of an amendment.
type Amending struct {
	Outcome
	// Mod is the mod revision of Key after it was Amended, or after Unmet.
	Mod int64
	// Read has the answers of Then or of Else, or is nil if the amendment was found
	// applied only afterwards.
	Read []*etcdserverpb.ResponseOp
	// Doubt says that an answer was lost before.
	Doubt bool
	// Found is what stands at Key after Overtaken, or where the amendment was found
	// applied; nil for nothing.
	Found *mvccpb.KeyValue
}

// Amend repeats until the outcome is known, an error of etcd's that repeating would not
// change comes, or ctx ends; then it returns an error, and the change may be made, now
// or later, as long as Key stands at Mod.
func Amend(ctx context.Context, kv clientv3.KV, a Amendment) (Amending, error) {
	doubt, together := false, a.Together
	cmps := append([]clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(a.Key), "=", a.Mod)}, a.If...)
	otherwise := append([]clientv3.Op{clientv3.OpGet(a.Key)}, a.Else...)
	var pause Backoff
	for {
		resp, err := together.txn(ctx, ctx, kv, cmps, a.Then, otherwise)
		together = Together{} // only the first try
		if err == nil && resp.Succeeded {
			return Amending{Outcome: Amended, Mod: resp.Header.Revision, Read: resp.Responses}, nil
		}
		if err == nil {
			out, again, err := a.found(ctx, kv, resp.Responses, doubt)
			if err != nil || !again {
				return out, err
			}
			continue
		}
		switch classify(err) {
		case refused:
			return Amending{}, err
		case orphaned:
			if !doubt {
				return Amending{Outcome: LeaseGone}, nil
			}
			// A copy that came before may have been applied; the lease went after.
			return a.look(ctx, kv, Amending{Outcome: LeaseGone}, nil)
		case answered:
			return a.look(ctx, kv, Amending{}, err)
		case unanswered:
			doubt = true
		}
		if err := pause.Wait(ctx, err); err != nil {
			return Amending{}, err
		}
	}
}

// found judges a Txn whose conditions were not met.
func (a Amendment) found(ctx context.Context, kv clientv3.KV, read []*etcdserverpb.ResponseOp, doubt bool) (out Amending, again bool, err error) {
	var stands *mvccpb.KeyValue
	if kvs := read[0].GetResponseRange().Kvs; len(kvs) > 0 {
		stands = kvs[0]
	}
	switch {
	case stands != nil && stands.ModRevision == a.Mod && !doubt:
		return Amending{Outcome: Unmet, Mod: a.Mod, Read: read[1:]}, false, nil
	case stands != nil && stands.ModRevision == a.Mod:
		// A copy of it may be under way, and find the conditions met.
		same := Amendment{Key: a.Key, Mod: a.Mod, Then: []clientv3.Op{a.Same()}, Mine: func(kv *mvccpb.KeyValue) bool {
			return kv != nil && kv.ModRevision != a.Mod && !a.Mine(kv) && string(kv.Value) == string(stands.Value)
		}}
		shut, err := Amend(ctx, kv, same)
		switch {
		case err != nil:
			return Amending{}, false, err
		case shut.Outcome == Amended:
			return Amending{Outcome: Unmet, Mod: shut.Mod, Read: read[1:]}, false, nil
		}
		return Amending{}, true, nil // look again
	case a.Mine(stands):
		return applied(stands), false, nil
	}
	return Amending{Outcome: Overtaken, Doubt: doubt, Found: stands}, false, nil
}

func applied(stands *mvccpb.KeyValue) Amending {
	out := Amending{Outcome: Amended, Found: stands}
	if stands != nil {
		out.Mod = stands.ModRevision
	}
	return out
}

// look tells with a linearizable read whether the amendment was applied, where no copy
// of it is under way any more. If it was not, out and failed are returned.
func (a Amendment) look(ctx context.Context, kv clientv3.KV, out Amending, failed error) (Amending, error) {
	resp, err := Read(ctx, func(call context.Context) (*clientv3.GetResponse, error) { return kv.Get(call, a.Key) })
	if err != nil {
		return Amending{}, err
	}
	var stands *mvccpb.KeyValue
	if len(resp.Kvs) > 0 {
		stands = resp.Kvs[0]
	}
	switch {
	case stands != nil && stands.ModRevision == a.Mod:
		return out, failed
	case a.Mine(stands):
		return applied(stands), nil
	}
	return Amending{Outcome: Overtaken, Found: stands}, nil
}

// PutAt puts, if key stands at that mod revision, and tells whether it does. After a
// lost answer it may be done twice. It returns rpctypes.ErrLeaseNotFound if the lease
// of the put is gone, an error of etcd's that repeating would not change, or ctx's
// error; then it may be done, now or later, as long as key stands so.
func PutAt(ctx context.Context, kv clientv3.KV, key string, mod int64, put clientv3.Op) (stands bool, err error) {
	resp, _, err := again(ctx, kv, []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(key), "=", mod)}, []clientv3.Op{put}, nil)
	return err == nil && resp.Succeeded, err
}
