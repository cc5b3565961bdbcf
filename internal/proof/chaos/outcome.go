package chaos

import (
	"context"
	"strings"

	"github.com/etcdkit/etcdkit/internal/hostclock"
	"github.com/etcdkit/etcdkit/internal/proof/history"
	"github.com/etcdkit/etcdkit/internal/proof/outcome"
)

// deadline returns when ctx ends, as a time of a history.
func deadline(ctx context.Context) int64 {
	d, _ := ctx.Deadline()
	return hostclock.At(d)
}

// call records one operation that only returns an error.
func (p *Process) call(ctx context.Context, e history.Event, do func() error) error {
	e.Until = deadline(ctx)
	c := p.rec.Call(e)
	err := do()
	outcome.Return(c, err)
	return err
}

// tally counts an operation by its outcome.
func (env *Env) tally(name string, err error) {
	kind, _, _ := strings.Cut(name, " ")
	switch {
	case err == nil:
		env.Stats.Add(kind+": ok", 1)
	case outcome.Definite(err):
		env.Stats.Add(kind+": refused", 1)
	default:
		env.Stats.Add("unknown", 1)
		env.Stats.Add(kind+": unknown", 1)
	}
}
