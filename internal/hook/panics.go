package hook

import (
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"
)

// saidAgain is how often the panics of one hook are logged.
const saidAgain = time.Minute

// Panics has the panics of hooks logged: the first one of each hook, and then one a minute, with how many there were since. A
// hook that always panics would otherwise log a stack for each call. The zero value is ready. It is safe for concurrent use.
type Panics struct {
	mu sync.Mutex
	of map[string]*panicked
}

// panicked is one hook.
type panicked struct {
	logged time.Time
	since  int // panics that are not logged
}

// due counts a panic of a hook. If it is to be logged, ok is true, and since is how many there were since the last one that was.
func (p *Panics) due(hook string, now time.Time) (since int, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	known := p.of[hook]
	if known == nil {
		if known = new(panicked); p.of == nil {
			p.of = map[string]*panicked{}
		}
		p.of[hook] = known
	}
	known.since++
	if !known.logged.IsZero() && now.Sub(known.logged) < saidAgain {
		return 0, false
	}
	since, known.since, known.logged = known.since, 0, now
	return since, true
}

// Log counts a panic with value v of a hook, and logs it if it is due. field names it for a reader.
func (p *Panics) Log(log *zap.Logger, text, hook string, field zap.Field, v any) {
	if since, ok := p.due(hook, time.Now()); ok {
		log.Warn(text, field, zap.String("panic", fmt.Sprint(v)), zap.Int("panics", since), zap.Stack("stack"))
	}
}
