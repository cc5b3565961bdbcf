package permits

import (
	"context"
	"time"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/verb"
	"github.com/etcdkit/etcdkit/concurrency"
)

// RunOwner is how the owner of a session of run begins.
const RunOwner = runOwner

// Keep is `hold` of a mutex.
func Keep(ctx context.Context, c *verb.Call, name, id string, lasts time.Duration) error {
	k := keeping{call: c, ask: asking{id: id}, kind: concurrency.KindMutex, name: name, lasts: lasts}
	return k.keep(ctx)
}
