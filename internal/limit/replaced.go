package limit

import (
	"context"

	"github.com/etcdkit/etcdkit/internal/record"
)

type noteKey struct{}

// Noting derives a ctx with which a change calls note with the limit in force that it has replaced: the one of the revision at
// which the change was applied. note is not called if none was stored, or if nothing was changed.
func Noting(ctx context.Context, note func(record.Limit)) context.Context {
	return context.WithValue(ctx, noteKey{}, note)
}

// replaced reports what a change that was made with ctx has replaced.
func replaced(ctx context.Context, was record.Limit, stored bool) {
	if note, ok := ctx.Value(noteKey{}).(func(record.Limit)); ok && stored {
		note(was)
	}
}
