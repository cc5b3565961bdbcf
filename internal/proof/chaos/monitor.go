package chaos

import (
	"context"
	"time"

	"github.com/etcdkit/etcdkit/concurrency"
)

// monitorLease has a process hold a mutex of its own until ctx ends, and acquire it again
// when it is lost. So the history shows at any time until when the process trusted its lease,
// and how soon it learned of its end.
func (p *Process) monitorLease(ctx context.Context) {
	name := "own-" + p.Name
	for ctx.Err() == nil {
		s, err := p.Kit()
		if err != nil {
			_ = Sleep(ctx, 20*time.Millisecond)
			continue
		}
		mu, err := concurrency.NewMutex(s, name)
		if err != nil {
			return
		}
		a := plain("mutex/"+name, 1, nil)
		a.do, a.bound, a.hold = true, time.Hour, time.Hour // or until ctx ends
		_ = a.run(ctx, p, asker{acquire: mu.Lock, try: mu.TryLock, do: mu.Do})
	}
}
