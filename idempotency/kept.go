package idempotency

import (
	"bytes"
	"context"
	"errors"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/keyspace"
)

// writeReserve is how long the write of an outcome may take: a lease of a retention pool lives as long
// beyond the retention of an outcome that is put on it at the end of its window.
const writeReserve = time.Second

// short reports whether an outcome that was put on a lease just now may expire before its retention
// ends: the write has taken longer than writeReserve.
func (p *pool) short(l *pooled) bool { return aged(l.sent) > p.window+writeReserve }

// kept is a recorded outcome, which is put on a lease.
type kept struct {
	kv    clientv3.KV
	entry keyspace.Entry
	text  []byte // the record
	mod   int64
	token int64 // of parts
	parts [][]byte
}

// putParts puts the parts of a result that is too large for its record on a lease. The parts are not
// read before the record is written. unchanged is false if the record was changed meanwhile.
func (k *kept) putParts(ctx context.Context, lease *pooled) (unchanged bool, err error) {
	for n, part := range k.parts {
		unchanged, err := commit.PutAt(ctx, k.kv, k.entry.Record, k.mod,
			clientv3.OpPut(k.entry.Part(k.token, n), string(part), clientv3.WithLease(lease.id)))
		if err != nil || !unchanged {
			return false, err
		}
	}
	return true, nil
}

// prolong moves an outcome whose write has taken long to a fresh lease, as often as needed: retention
// counts from the recording, so the outcome is reported as recorded only after that. It does not
// change the record, and does nothing if it was deleted. After an error, which is etcd's, ErrClosed or
// ctx's, the caller has to call it again.
func (k *kept) prolong(ctx context.Context, p *pool, l *pooled, res commit.Amending) error {
	// If an earlier try has written it, it is on the lease of that try, and a part may be on another one still.
	old := res.Found != nil && (res.Found.Lease != int64(l.id) || len(k.parts) > 0)
	k.mod = res.Mod
	var pause commit.Backoff
	for old || p.short(l) {
		fresh, unchanged, err := k.move(ctx, p)
		switch {
		case errors.Is(err, rpctypes.ErrLeaseNotFound):
			p.forget(fresh)
			if err := pause.Wait(ctx, nil); err != nil {
				return err
			}
			continue
		case err != nil || !unchanged:
			return err
		}
		l, old = fresh, false
	}
	return nil
}

// move puts an outcome on another lease: its record first, so that no late copy of an earlier move can have an effect
// after that, and then its parts. unchanged is false if the record was changed meanwhile. The error is
// rpctypes.ErrLeaseNotFound if that lease does not exist.
func (k *kept) move(ctx context.Context, p *pool) (l *pooled, unchanged bool, err error) {
	if l, err = p.take(ctx, 1+len(k.parts)); err != nil {
		return nil, false, err
	}
	for {
		res, err := commit.Amend(ctx, k.kv, commit.Amendment{
			Key: k.entry.Record, Mod: k.mod, Then: []clientv3.Op{commit.Put(k.entry.Record, k.text, l.id)},
			Mine: func(kv *mvccpb.KeyValue) bool { return k.is(kv) && kv.Lease == int64(l.id) },
		})
		switch {
		case err != nil:
			if !res.Doubt {
				p.giveAll(l, 1+len(k.parts), 0)
			}
			return l, false, err
		case res.Outcome == commit.LeaseGone:
			return l, false, rpctypes.ErrLeaseNotFound
		case res.Outcome == commit.Amended:
			k.mod = res.Mod
			unchanged, err = k.putParts(ctx, l)
			return l, unchanged, err
		case !k.is(res.Found):
			p.giveAll(l, 1+len(k.parts), 0)
			return l, false, nil
		}
		k.mod = res.Found.ModRevision // that of a late copy, which has put it on the lease of an earlier move
	}
}

// is reports whether a record is that of the outcome.
func (k *kept) is(kv *mvccpb.KeyValue) bool { return kv != nil && bytes.Equal(kv.Value, k.text) }
