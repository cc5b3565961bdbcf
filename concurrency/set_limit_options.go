package concurrency

import (
	"math"

	"github.com/etcdkit/etcdkit/internal/engine"
)

// SetLimitOption changes one call of SetLimit.
type SetLimitOption func(*limitChange)

// limitChange is what one call of SetLimit asks for.
type limitChange struct{ create bool }

func newLimitChange(n int, opts []SetLimitOption) (c limitChange, err error) {
	if n < 0 || n > math.MaxInt32 {
		return c, invalid("limit %d is not between 0 and %d", n, math.MaxInt32)
	}
	return c, engine.Apply(opts, &c)
}

// CreateLimit lets SetLimit store a limit for a name that is not in use yet.
func CreateLimit() SetLimitOption { return func(c *limitChange) { c.create = true } }
