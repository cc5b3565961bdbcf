package idempotency

import (
	"context"
	"crypto/sha256"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

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
	if o.text == "" {
		stored, codec, err := a.store.encode(o.value, bound(a.entry))
		o.since, o.stored = now(), stored
		o.rec = a.rec
		o.rec.State, o.rec.EndMS, o.rec.Token, o.rec.Error = o.state, time.Now().UnixMilli(), a.token, o.failure
		o.rec.Body, o.rec.Codec = nil, codec
		why := a.store.opts.unstorable(stored, err)
		if why != nil && !o.omit {
			keepNone(a, why)
		}
		switch {
		case why != nil || o.omit:
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
		parts = append(parts, o.stored[n*partSize:min(len(o.stored), (n+1)*partSize)])
	}
	return parts
}

// omit leaves out a value that is too large for a message of etcd or of the client.
func (a *Attempt) omit(o *settlement, err error) (parts [][]byte) {
	keepNone(a, fmt.Errorf("%w: %d bytes: %w", errOneMessage, len(o.stored), err))
	o.omit, o.text = true, ""
	return a.prepare(o)
}

// putParts puts the parts of a result that is too large for its record on a lease. The parts are not
// read before the record is written. unchanged is false if the record was changed meanwhile.
func (s *Store) putParts(ctx context.Context, k kept, lease *pooled) (unchanged bool, err error) {
	for n, part := range k.parts {
		unchanged, err := commit.PutAt(ctx, s.kv, k.entry.Record, k.mod,
			clientv3.OpPut(k.entry.Part(k.token, n), string(part), clientv3.WithLease(lease.id)))
		if err != nil || !unchanged {
			return false, err
		}
	}
	return true, nil
}
