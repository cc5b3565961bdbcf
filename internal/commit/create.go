package commit

import (
	"cmp"
	"context"
	"errors"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// ErrOccupied says that the key to be created exists already, written by another creation.
var ErrOccupied = errors.New("key is occupied by another")

// Creation is one key to be created, or to be replaced, together with what belongs to it.
type Creation struct {
	Key, Value string
	// Bytes is Value, if that is "". It must not change.
	Bytes []byte
	// Mod is the mod revision of what Value replaces at Key; 0 for a key that must not exist.
	Mod int64
	// Lease is the lease of Key, if it is not the fence's.
	Lease clientv3.LeaseID
	// Mine reports whether a value found at Key was written by this creation. It must
	// return false for every other creation, earlier ones of this process included: a
	// nonce serves that.
	Mine func(value []byte) bool
	If   []clientv3.Cmp // conditions beyond those on Key and the fence
	Also []clientv3.Op  // put in the same Txn, after Key
	Read []clientv3.Op  // read in the same Txn, after all puts
	Else []clientv3.Op  // read instead if a condition fails
	Together
}

// Result is the outcome of a creation.
type Result struct {
	// Token is the revision of the creation, or 0 if the conditions in If
	// were not met and nothing was created.
	Token int64
	// Read has the responses to Read, or to Else if Token is 0. It is nil if a later read
	// has found the creation applied.
	Read []*etcdserverpb.ResponseOp
	// Also has the responses to Also, or is nil as Read is.
	Also []*etcdserverpb.ResponseOp
}

// Found reports whether a later read has found the creation applied, after a lost answer or beside
// an earlier copy. Nothing says then which of the Txns that have its value has applied it, and when.
func (r Result) Found() bool { return r.Token > 0 && r.Read == nil }

// Create creates c.Key, which must not exist or have the mod revision c.Mod, on the fence's lease or on c.Lease.
// It repeats what is worth repeating until ctx ends.
//
// It returns ErrOccupied if the key of another creation exists, or has another mod revision, or was deleted; ErrGone if
// the session or c.Lease is lost; or an error of etcd's that repeating would not change; then nothing was created.
//
// A *PendingError means that the outcome is not known: ctx ended, or etcd is out of space. The
// key may exist or may still appear. The caller must have it discarded, and must not create
// c.Key again before that. The end of ctx ends the call at once, but not the request that it
// has sent: Discard waits a second for its response.
func (f *Fence) Create(ctx context.Context, c Creation) (Result, error) {
	put := clientv3.OpPut(c.Key, c.Value, clientv3.WithLease(cmp.Or(c.Lease, f.lease)))
	if c.Value == "" {
		put = Put(c.Key, c.Bytes, cmp.Or(c.Lease, f.lease))
	}
	then := append([]clientv3.Op{put}, c.Also...)
	then = append(then, c.Read...)
	together := c.Together
	var pause Backoff
	for {
		if err := ctx.Err(); err != nil {
			return Result{}, err // nothing is under way
		}
		at := f.mod.Load()
		cmps := append([]clientv3.Cmp{c.expected()}, c.If...)
		together.common = &common{fenceAt{f.key, at}, f.unraised(at)}
		sent := together.send(ctx, f.kv, cmps, then, c.Else)
		together = Together{} // only the first try
		if !sent.answered(ctx) {
			return Result{}, &PendingError{fence: f, creation: c, at: at, sent: sent, cause: ctx.Err()}
		}
		resp, err := sent.result()
		switch {
		case err == nil && resp.Succeeded:
			read := 1 + len(c.Also)
			return Result{Token: resp.Header.Revision, Also: resp.Responses[1:read], Read: resp.Responses[read:]}, nil
		case err == nil:
			if out, again, err := f.unmet(ctx, c, at, resp.Responses); !again {
				return out, err
			}
		default:
			switch classify(err) {
			case refused:
				return Result{}, err
			case orphaned:
				return Result{}, ErrGone
			case answered:
				return Result{}, &PendingError{fence: f, creation: c, answered: true, cause: err}
			case unanswered:
				kvs, settled := f.settle(ctx, c.Key, at)
				switch {
				case errors.Is(settled, ErrGone):
					return Result{}, ErrGone
				case settled != nil:
					return Result{}, &PendingError{fence: f, creation: c, at: at, cause: joinCause(settled, err)}
				case !c.unchanged(kvs):
					return found(c, kvs)
				}
			}
		}
		if shared(err) {
			continue
		}
		if err := pause.Wait(ctx, err); err != nil {
			return Result{}, err // settled: nothing was created
		}
	}
}

// unmet finds out why the conditions of a creation were not met; it was sent when the fence
// had the mod revision at. again reports whether another try may succeed: the fence was raised
// meanwhile, or the key that occupied c.Key is gone.
func (f *Fence) unmet(ctx context.Context, c Creation, at int64, read []*etcdserverpb.ResponseOp) (out Result, again bool, err error) {
	kvs, err := f.readState(ctx, c.Key)
	switch {
	case errors.Is(err, ErrGone):
		return Result{}, false, err
	case err != nil:
		// clientv3 repeats a Txn when it takes the end of the call for its own: an
		// earlier copy may be why this one failed. Then the key shows it.
		return Result{}, false, &PendingError{fence: f, creation: c, answered: true, cause: err}
	case !c.unchanged(kvs):
		out, err = found(c, kvs)
		return out, false, err
	case f.mod.Load() == at && len(c.If) > 0:
		return Result{Read: read}, false, nil // it was the caller's conditions
	}
	return Result{}, true, nil
}

// expected is the condition on Key.
func (c Creation) expected() clientv3.Cmp {
	if c.Mod == 0 {
		return clientv3.Compare(clientv3.CreateRevision(c.Key), "=", 0)
	}
	return clientv3.Compare(clientv3.ModRevision(c.Key), "=", c.Mod)
}

// unchanged reports whether what was found at Key is what the creation expects there.
func (c Creation) unchanged(kvs []*mvccpb.KeyValue) bool {
	if len(kvs) == 0 {
		return c.Mod == 0
	}
	return kvs[0].ModRevision == c.Mod
}

func found(c Creation, kvs []*mvccpb.KeyValue) (Result, error) {
	switch {
	case len(kvs) == 0 || !c.Mine(kvs[0].Value):
		return Result{}, ErrOccupied
	case c.Mod > 0:
		return Result{Token: kvs[0].ModRevision}, nil
	}
	return Result{Token: kvs[0].CreateRevision}, nil
}

// readState reads key and the fence after a condition of a creation was not met. The usual
// creation is spared these two reads. It repeats until ctx ends.
func (f *Fence) readState(ctx context.Context, key string) ([]*mvccpb.KeyValue, error) {
	var before int64
	resp, err := Read(ctx, func(call context.Context) (*clientv3.TxnResponse, error) {
		before = f.mod.Load()
		return f.kv.Txn(call).Then(clientv3.OpGet(f.key), clientv3.OpGet(key)).Commit()
	})
	if err != nil {
		return nil, err
	}
	if err := f.check(resp.Responses[0].GetResponseRange().Kvs, before); err != nil {
		return nil, err
	}
	return resp.Responses[1].GetResponseRange().Kvs, nil
}

// settle shuts out every copy of a creation that was sent when the fence had the mod revision
// at, and returns the value at key. It puts the presence key again, so that compares with its
// former revision fail for ever. If another call has done that since, settle only reads: one
// raise settles everything that was sent before it. It repeats until that is done, etcd refuses
// it, or ctx ends.
func (f *Fence) settle(ctx context.Context, key string, at int64) ([]*mvccpb.KeyValue, error) {
	resp, _, err := again(ctx, f.kv, []clientv3.Cmp{f.unraised(at)},
		[]clientv3.Op{f.put(), clientv3.OpGet(key)},
		[]clientv3.Op{clientv3.OpGet(f.key), clientv3.OpGet(key)})
	switch {
	case err != nil && classify(err) == orphaned:
		return nil, ErrGone
	case err != nil:
		return nil, err
	case resp.Succeeded:
		f.learn(resp.Header.Revision)
	default:
		// Another call, or a copy of this one, has raised the fence: either way, what
		// was sent with the former revision is void.
		if err := f.check(resp.Responses[0].GetResponseRange().Kvs, at); err != nil {
			return nil, err
		}
	}
	return resp.Responses[1].GetResponseRange().Kvs, nil
}
