package chaos

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/etcdkit/etcdkit/internal/proof/history"
)

// planReopen draws the end of a process's session in the middle of everything, and
// the start of another.
func planReopen(r *rand.Rand) Operation {
	wait := time.Duration(r.IntN(500)) * time.Millisecond
	return Operation{Name: history.Close, Do: func(ctx context.Context, p *Process) error {
		return p.reopen(ctx, wait)
	}}
}
