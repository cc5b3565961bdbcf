package idempotency

import (
	"context"
	"crypto/sha256"
	"errors"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/internal/commit"
)

// The form in which results are stored.
const (
	inline   = 128 << 10 // up to this they are in the record
	partSize = 1 << 20
)

// prepare makes the record of the outcome. It cannot fail: a result that cannot be encoded is left out,
// since the work is done.
func (a *Attempt) prepare(o *settlement) (parts [][]byte) {
	stored := o.stored
	if !o.ready {
		codec, err := "", error(nil)
		stored, codec, err = a.store.encode(o.value, bound(a.entry))
		o.ready, o.since, o.stored = true, now(), stored
		o.rec = a.rec
		o.rec.State, o.rec.EndMS, o.rec.Token, o.rec.Error = o.state, time.Now().UnixMilli(), a.token, o.failure
		o.rec.Body, o.rec.Codec = nil, codec
		switch {
		case err != nil || o.omit || len(stored) > a.store.opts.MaxResult:
			o.rec.Omitted, o.rec.Codec = true, ""
		case len(stored) > inline:
			sum := sha256.Sum256(stored)
			o.rec.Size, o.rec.Sum = len(stored), sum[:]
			o.rec.Parts = (len(stored) + partSize - 1) / partSize
		default:
			o.rec.Size, o.rec.Body = len(stored), stored
		}
		o.text = o.rec.Encode()
	}
	for n := range o.rec.Parts {
		parts = append(parts, stored[n*partSize:min(len(stored), (n+1)*partSize)])
	}
	return parts
}

// omit leaves out a value that is too large for a message of etcd or of the client.
func (a *Attempt) omit(o *settlement, err error) (parts [][]byte) {
	a.store.log.Warn("a result is too large for one message, and is not kept", zap.Stringer("request", a.key), zap.Int("bytes", len(o.stored)), zap.Error(err))
	o.omit, o.ready = true, false
	return a.prepare(o)
}

// writeParts writes a result that is too large for its record. The parts are not read before the record
// is written. gone reports that the lease does not exist any more.
func (a *Attempt) writeParts(ctx context.Context, lease *pooled, parts [][]byte) (gone bool, err error) {
	for n, part := range parts {
		unchanged, err := commit.PutAt(ctx, a.store.client, a.entry.Record, a.mod,
			clientv3.OpPut(a.entry.Part(a.token, n), string(part), clientv3.WithLease(lease.id)))
		switch {
		case errors.Is(err, rpctypes.ErrLeaseNotFound):
			return true, nil
		case err != nil || !unchanged: // if the record has changed, writing it will show that
			return false, err
		}
	}
	return false, nil
}
