package chaos

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/etcdkit/etcdkit/internal/proof/history"
)

// harm has one strike of the schedule follow the other until ctx ends. When it
// returns, all is mended.
func (env *Env) harm(ctx context.Context, s *schedule) {
	for n := 0; ; n++ {
		st := s.next()
		if Sleep(ctx, st.Pause) != nil {
			return
		}
		env.note("%s for %v", st, st.For)
		env.strike(ctx, st, n)
	}
}

// String names the nemeses.
func (s strike) String() string {
	var names []string
	for _, n := range s.Nemeses {
		names = append(names, n.Name)
	}
	return strings.Join(names, " + ")
}

// strike lets the nemeses of one strike do their harm at the same time.
func (env *Env) strike(ctx context.Context, st strike, number int) {
	ctx, cancel := context.WithTimeout(ctx, st.For)
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, n := range st.Nemeses {
		r := env.Seed.Stream(fmt.Sprintf("strike %d %s", number, n.Name))
		wg.Go(func() {
			if n.Elects {
				defer env.elections()()
			}
			finish := env.Recorder.Begin(history.Event{Name: n.Name})
			begun := time.Now()
			effects := n.Strike(ctx, env, r)
			finish()
			env.Stats.Add("strikes: "+n.Name, 1)
			env.Stats.Add("effects: "+n.Name, effects)
			if over := time.Since(begun) - st.For; over > 5*time.Second {
				env.note("%s took %v to mend", n.Name, over.Round(time.Millisecond))
			}
		})
	}
}
