package schedlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/members"
)

// etcd is what the calls of this package to etcd are made with, and how they end.
type etcd struct {
	sess   *engine.Session
	client *members.Etcd
	kv     clientv3.KV // of the session
	space  keyspace.Space
}

// untilClose derives a ctx that also ends when the session takes no further call with ctx: when Close begins, or later if ctx
// runs under work in progress. If that is so already, ctx has ended when untilClose returns.
func (e *etcd) untilClose(ctx context.Context) (context.Context, context.CancelFunc) {
	return endedWith(ctx, engine.Accepts(ctx, e.sess), ErrClosed)
}

// own derives a ctx of a call that this process makes itself, in place of a caller's: of the session's it has the
// values, and it ends when the session does, by ErrClosed. That one would end it by context.Canceled, before it could
// end by anything else.
func (e *etcd) own() (context.Context, context.CancelFunc) {
	return endedWith(context.WithoutCancel(e.sess.Context()), e.sess.Context(), ErrClosed)
}

// endedWith derives a ctx that also ends, by an error, with another one.
func endedWith(ctx, other context.Context, by error) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	if other.Err() != nil {
		cancel(endedBy{by})
	}
	stop := context.AfterFunc(other, func() { cancel(endedBy{by}) })
	return ctx, func() { stop(); cancel(nil) }
}

// get returns what each of several reads has found, as of one revision. It repeats them until etcd
// answers. It calls reads each time: a bound that depends on the clock would be as old as an outage.
func (e *etcd) get(ctx context.Context, reads func() []clientv3.Op) ([][]*mvccpb.KeyValue, error) {
	resp, err := repeat(ctx, e, func(call context.Context) (*clientv3.TxnResponse, error) {
		return e.kv.Txn(call).Then(reads()...).Commit()
	})
	if err != nil {
		return nil, err
	}
	found := make([][]*mvccpb.KeyValue, len(resp.Responses))
	for i, r := range resp.Responses {
		found[i] = r.GetResponseRange().Kvs
	}
	return found, nil
}

// repeat repeats a call that may be sent twice, such as a read, until etcd answers. send computes
// what depends on the clock or on the state of this process.
func repeat[T any](ctx context.Context, e *etcd, send func(call context.Context) (T, error)) (found T, err error) {
	asked := time.Now()
	if err = ended(ctx); err == nil {
		found, err = commit.Read(ctx, send)
	}
	if err != nil && !commit.Transient(err) && !errors.Is(err, ctx.Err()) {
		return found, err // etcd has answered
	}
	return found, e.endError(ctx, asked, err)
}

// grant grants a lease that nothing keeps alive.
func (e *etcd) grant(ctx context.Context, ttl time.Duration) (clientv3.LeaseID, error) {
	g := engine.NewGrant(e.sess)
	_, err := repeat(ctx, e, func(call context.Context) (time.Duration, error) { return g.Ask(call, ttl) })
	if err != nil {
		g.Leave()
	}
	return g.ID, err
}

// revoke revokes a lease, or does nothing if id is 0. It takes one second at most; a lease that it
// cannot revoke expires. In the background ctx is that of Later, so that Close is not late.
func (e *etcd) revoke(ctx context.Context, id clientv3.LeaseID) {
	if id == 0 || ctx.Err() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_, _ = e.client.Revoke(ctx, id)
}

// about wraps the error of a call with what it attempted and the job.
func (e *etcd) about(attempted, name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s job %q: %w", attempted, name, e.sess.Explain(err))
}

// endError returns the error of a call that has asked etcd since a time without an answer. If ctx
// has ended meanwhile, the error includes that etcd does not answer, so that it does not read as
// the end of a wait for another run.
func (e *etcd) endError(ctx context.Context, asked time.Time, err error) error {
	if ended(ctx) == nil && errors.Is(err, context.Canceled) && e.sess.Context().Err() != nil {
		return ErrClosed // the session has ended the call before it could end ctx
	}
	err = joinEnd(ctx, err)
	if end := ended(ctx); err == nil || end == nil || final(end) || errors.Is(err, ErrUnavailable) {
		return err
	}
	if o, ok := e.sess.Unanswered(asked); ok {
		return fmt.Errorf("%w: %w", err, &concurrency.UnavailableError{Since: o.Since, LastAnswer: o.LastAnswer, Err: o.Err})
	}
	return err
}

// waitError is endError for a call that has waited for others of its process, and has asked etcd nothing: the error includes that
// etcd does not answer only if these, or others, have found that.
func (e *etcd) waitError(ctx context.Context, err error) error {
	return e.endError(ctx, time.Now(), err)
}
