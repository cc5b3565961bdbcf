package idempotency

import (
	"context"
	"errors"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/keyspace"
)

// spare is by how much a lease of a retention pool lives longer than what is put on it
// at the end of its window has to.
const spare = time.Second

// short reports whether what was put on a lease of the pool just now may expire too soon: to
// put it has taken longer than there was to spare.
func (p *pool) short(l *pooled) bool { return aged(l.sent) > p.window+spare }

// kept is an outcome as it was recorded.
type kept struct {
	entry keyspace.Entry
	text  string // the record
	mod   int64
	token int64
	parts [][]byte
}

// prolong puts an outcome that was long on its way on another lease, as often as it takes: retention
// counts from the record, so an outcome is reported as recorded only after that. It does not change
// a letter of it, and leaves it alone if it was deleted. It returns an error of etcd's that
// repeating would not change at once, ErrClosed, or ctx's error; then it is to be tried again.
func (s *Store) prolong(ctx context.Context, p *pool, l *pooled, res commit.Amending, k kept) error {
	// Where an earlier try is found to have written it, it hangs on the lease of that one.
	old := res.Found != nil && res.Found.Lease != int64(l.id)
	k.mod = res.Mod
	var pause commit.Backoff
	for old || p.short(l) {
		fresh, stands, err := s.move(ctx, p, &k)
		switch {
		case errors.Is(err, rpctypes.ErrLeaseNotFound):
			if err := pause.Wait(ctx, nil); err != nil {
				return err
			}
			continue
		case err != nil || !stands:
			return err
		}
		l, old = fresh, false
	}
	return nil
}

// move puts an outcome on another lease. Stands reports whether it hangs there now; if not, another
// has changed it.
func (s *Store) move(ctx context.Context, p *pool, k *kept) (l *pooled, stands bool, err error) {
	if l, err = p.take(ctx, 1+len(k.parts)); err != nil {
		return nil, false, err
	}
	for n, part := range k.parts {
		stands, err := commit.PutAt(ctx, s.client, k.entry.Record, k.mod, clientv3.OpPut(k.entry.Part(k.token, n), string(part), clientv3.WithLease(l.id)))
		if errors.Is(err, rpctypes.ErrLeaseNotFound) {
			p.forget(l)
		}
		if err != nil || !stands {
			return l, false, err
		}
	}
	res, err := commit.Amend(ctx, s.client, commit.Amendment{
		Key: k.entry.Record, Mod: k.mod, Then: []clientv3.Op{clientv3.OpPut(k.entry.Record, k.text, clientv3.WithLease(l.id))},
		Mine: func(kv *mvccpb.KeyValue) bool {
			return kv != nil && string(kv.Value) == k.text && kv.Lease == int64(l.id)
		},
	})
	switch {
	case err != nil:
		return l, false, err
	case res.Outcome == commit.LeaseGone:
		p.forget(l)
		return l, false, rpctypes.ErrLeaseNotFound
	}
	k.mod = res.Mod
	return l, res.Outcome == commit.Amended, nil
}
