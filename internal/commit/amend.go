package commit

import (
	"context"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Amendment changes a key whose mod revision is known, and what belongs to it.
type Amendment struct {
	Key string
	Mod int64 // the mod revision that Key must have
	// Mine reports whether the value at Key, nil for none, was written by this
	// amendment. It must return false for every other change.
	Mine func(kv *mvccpb.KeyValue) bool
	If   []clientv3.Cmp // further conditions
	Then []clientv3.Op  // must change Key
	Else []clientv3.Op  // read if a condition in If is not met
	// Doubt says that an earlier call with this amendment has ended with an error: a copy of it may be under way.
	Doubt bool
	// Same returns a put of the present value of Key. It shuts out late copies after a
	// condition in If was not met. It is not needed without If, nor if such a condition will never be met.
	Same func() clientv3.Op
	Together
}

// Outcome is the outcome of an amendment.
type Outcome int

// The outcomes of Amend.
const (
	// Overtaken: another change of Key came first. Nothing was done; or, if a response
	// was lost, something that another change has replaced.
	Overtaken Outcome = iota
	// Amended: the change is made.
	Amended
	// Unmet: a condition in If is not met. Nothing was changed, nor will be.
	Unmet
	// LeaseGone: the lease of a put is gone. Nothing was changed.
	LeaseGone
)

// Amending is the result of an amendment.
type Amending struct {
	Outcome
	// Mod is the mod revision of Key after Amended or Unmet.
	Mod int64
	// Read has the responses to Then or Else. It is nil if a later read has found the
	// amendment applied.
	Read []*etcdserverpb.ResponseOp
	// Doubt reports whether a response was lost before. With an error it says that the change may be made, now or later;
	// otherwise it is not.
	Doubt bool
	// Found is the value at Key after Overtaken, or where a later read has found the
	// amendment applied; nil for none.
	Found *mvccpb.KeyValue
}

// Amend makes a change and reports its outcome. It repeats until the outcome is known. It
// returns an error of etcd's that repeating would not change, or ctx's error; then the change
// may be made, now or later, as long as Key has the mod revision Mod, unless Doubt is false.
func Amend(ctx context.Context, kv clientv3.KV, a Amendment) (Amending, error) {
	doubt, together := a.Doubt, a.Together
	cmps := append([]clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(a.Key), "=", a.Mod)}, a.If...)
	otherwise := append([]clientv3.Op{clientv3.OpGet(a.Key)}, a.Else...)
	var pause Backoff
	for {
		resp, err := together.txn(ctx, kv, cmps, a.Then, otherwise)
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
			return Amending{Doubt: doubt}, err
		case orphaned:
			if !doubt {
				return Amending{Outcome: LeaseGone}, nil
			}
			// An earlier copy may have been applied before the lease ended.
			return a.readState(ctx, kv, Amending{Outcome: LeaseGone}, nil, doubt)
		case answered:
			return a.readState(ctx, kv, Amending{Doubt: doubt}, err, true)
		case unanswered:
			doubt = true
		}
		if shared(err) {
			continue
		}
		if err := pause.Wait(ctx, err); err != nil {
			return Amending{Doubt: doubt}, err
		}
	}
}

// found returns the outcome of a Txn whose conditions were not met.
func (a Amendment) found(ctx context.Context, kv clientv3.KV, read []*etcdserverpb.ResponseOp, doubt bool) (out Amending, again bool, err error) {
	var stands *mvccpb.KeyValue
	if kvs := read[0].GetResponseRange().Kvs; len(kvs) > 0 {
		stands = kvs[0]
	}
	switch {
	case stands != nil && stands.ModRevision == a.Mod && (!doubt || a.Same == nil):
		return Amending{Outcome: Unmet, Mod: a.Mod, Read: read[1:]}, false, nil
	case stands != nil && stands.ModRevision == a.Mod:
		// A copy of it may be under way and may find the conditions met.
		same := Amendment{Key: a.Key, Mod: a.Mod, Then: []clientv3.Op{a.Same()}, Mine: func(kv *mvccpb.KeyValue) bool {
			return kv != nil && kv.ModRevision != a.Mod && !a.Mine(kv) && string(kv.Value) == string(stands.Value)
		}}
		shut, err := Amend(ctx, kv, same)
		switch {
		case err != nil:
			return Amending{Doubt: true}, false, err
		case shut.Outcome == Amended:
			return Amending{Outcome: Unmet, Mod: shut.Mod, Read: read[1:]}, false, nil
		}
		return Amending{}, true, nil // try again
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

// readState finds out with a linearizable read whether the amendment was applied. No copy of
// it may be under way any more. If it was not applied, out and failed are returned.
func (a Amendment) readState(ctx context.Context, kv clientv3.KV, out Amending, failed error, doubt bool) (Amending, error) {
	resp, err := Read(ctx, func(call context.Context) (*clientv3.GetResponse, error) { return kv.Get(call, a.Key) })
	if err != nil {
		return Amending{Doubt: true}, err
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
	return Amending{Outcome: Overtaken, Doubt: doubt, Found: stands}, nil
}

// PutAt puts if key has that mod revision, and reports whether it has. After a lost response
// it may put twice. It returns rpctypes.ErrLeaseNotFound if the lease of the put is gone, an
// error of etcd's that repeating would not change, or ctx's error; then the put may be done,
// now or later, as long as key has that mod revision.
func PutAt(ctx context.Context, kv clientv3.KV, key string, mod int64, put clientv3.Op) (stands bool, err error) {
	resp, _, err := again(ctx, kv, []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(key), "=", mod)}, []clientv3.Op{put}, nil)
	return err == nil && resp.Succeeded, err
}
