package requests

import (
	"context"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/verb"
	"github.com/etcdkit/etcdkit/idempotency"
)

// Resolved is what 'requests resolve' of many prints.
type Resolved = resolved

// FailAll is 'requests resolve' of all unknown requests of a store, with --failed.
func FailAll(ctx context.Context, c *verb.Call, store string) error {
	v := &resolving{
		call: c, which: examined{store: store}, many: bulk{state: "unknown"},
		found: account{what: idempotency.HasFailed("x"), text: "has failed"},
	}
	return v.all(ctx)
}
