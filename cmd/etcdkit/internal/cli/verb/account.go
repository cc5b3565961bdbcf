package verb

import (
	"context"
	"fmt"

	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/audit"
	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/record"
)

// Account is Record for a change that has a reason, and does nothing for one without: a script that gives none does not push
// out what operators have done.
func Account(ctx context.Context, c *Call, sess *concurrency.Session, change record.Change) {
	if change.Reason != "" {
		Record(ctx, c, sess, change)
	}
}

// Record records a change that was made, or asked for and not made yet, in the list of changes that a console shows. One that
// could not be recorded is no error.
func Record(ctx context.Context, c *Call, sess *concurrency.Session, change record.Change) {
	if err := audit.New(engine.Of(sess), zap.NewNop()).Add(ctx, change, sess.Owner()); err != nil {
		made := "The change was made. "
		if change.Failed != "" { // the error of the verb says what was done
			made = ""
		}
		fmt.Fprintf(c.Std.Err, "%sThe list of changes does not have it: %v\n", made, err)
	}
}
