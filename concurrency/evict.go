package concurrency

import (
	"context"
	"fmt"

	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/queue"
	"github.com/etcdkit/etcdkit/internal/record"
)

// owners are the live requests of any session in one queue, as operators name and end them.
type owners struct{ queue *sessionQueue }

// found returns them as the queue finds them.
func (s owners) found() queue.Owners { return queue.Owners{Queue: s.queue.Queue} }

// end ends a request by a notice. which names it in an error.
func (s owners) end(ctx context.Context, which string, n record.Notice, end func(context.Context, record.Notice) error) error {
	q, err := s.queue, engine.CheckReason(n.Reason)
	if err == nil {
		n.By = engine.Author(ctx, q.sess)
		err = q.do(ctx, func(ctx context.Context) error { return end(ctx, n) })
	}
	if err != nil {
		return q.failed(fmt.Sprintf("%s %s of", verb(n), which), err)
	}
	return nil
}

// verb names what a notice does.
func verb(n record.Notice) string {
	if n.Cause == record.CauseReleased {
		return "release"
	}
	return "evict"
}

// endID ends the request with an ID, and only the one with this token, if that is not nil.
func (s owners) endID(ctx context.Context, id string, only *int64, n record.Notice) error {
	if err := keyspace.CheckID(id); err != nil {
		return s.queue.failed(verb(n), invalid("the ID %w", err))
	}
	which := fmt.Sprintf("ID %q", id)
	if only != nil {
		which += fmt.Sprintf(" with token %d", *only)
	}
	return s.end(ctx, which, n, func(ctx context.Context, n record.Notice) error { return s.found().EndID(ctx, id, only, n) })
}

// releaseID ends a request by its ID as released.
func (s owners) releaseID(ctx context.Context, id string, opts []ReleaseOption) error {
	var r releaseOptions
	if err := engine.Apply(opts, &r); err != nil {
		return s.queue.failed("release", err)
	}
	return s.endID(ctx, id, r.only, record.Notice{Cause: record.CauseReleased})
}

// endToken ends the request with a token.
func (s owners) endToken(ctx context.Context, token int64, n record.Notice) error {
	return s.end(ctx, fmt.Sprintf("token %d", token), n, func(ctx context.Context, n record.Notice) error { return s.found().EndToken(ctx, token, n) })
}

// requestStop is RequestStop of every kind of queue.
func (s owners) requestStop(ctx context.Context, token int64, reason string) error {
	q, err := s.queue, engine.CheckReason(reason)
	if err == nil {
		err = q.do(ctx, func(ctx context.Context) error { return s.found().RequestStop(ctx, token, reason) })
	}
	if err != nil {
		return q.failed(fmt.Sprintf("request a stop of token %d in", token), err)
	}
	return nil
}

// ReleaseOption configures a call of ReleaseID.
type ReleaseOption func(*releaseOptions)

type releaseOptions struct{ only *int64 }

// OnlyToken lets ReleaseID release only the request with this token, the one whose work has ended
// (Permit.Token, Request.Token). If another one has the ID by then, ReleaseID returns ErrNotHeld and
// changes nothing.
func OnlyToken(token int64) ReleaseOption { return func(r *releaseOptions) { r.only = &token } }
