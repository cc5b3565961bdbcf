package mirror

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/internal/keyspace"
)

// One row for each order of joins, leaves and replacements: how many mirrors were started, and
// how many of them were stopped.
func TestShared(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		do               func(s *Shared)
		started, stopped int
	}{
		"not used":  {func(*Shared) {}, 0, 0},
		"one user":  {func(s *Shared) { s.Join() }, 1, 0},
		"two users": {func(s *Shared) { u := s.Join(); s.Join(); u.Leave(); time.Sleep(time.Hour) }, 1, 0},
		"just left": {func(s *Shared) { s.Join().Leave(); time.Sleep(lingers - 1) }, 1, 0},
		"left":      {func(s *Shared) { s.Join().Leave(); time.Sleep(lingers + 1) }, 1, 1},
		"used again": {func(s *Shared) {
			s.Join().Leave()
			time.Sleep(lingers - 1)
			s.Join()
			time.Sleep(time.Hour)
		}, 1, 0},
		"used for a moment: the time counts from its end": {func(s *Shared) {
			s.Join().Leave()
			time.Sleep(lingers - 1)
			s.Join().Leave()
			time.Sleep(lingers - 1)
		}, 1, 0},
		"used after it was stopped": {func(s *Shared) { s.Join().Leave(); time.Sleep(time.Hour); s.Join() }, 2, 1},
		"replaced":                  {func(s *Shared) { u := s.Join(); s.Replace(); u.Next(); u.Leave(); time.Sleep(time.Hour) }, 2, 2},
		"replaced for two": {func(s *Shared) {
			u, v := s.Join(), s.Join()
			s.Replace()
			u.Next()
			v.Next()
			u.Leave()
			time.Sleep(time.Hour)
		}, 2, 1},
		"replaced while it lingers":  {func(s *Shared) { s.Join().Leave(); s.Replace(); s.Join(); time.Sleep(time.Hour) }, 2, 1},
		"replaced when unused":       {func(s *Shared) { s.Replace() }, 0, 0},
		"replaced, and left instead": {func(s *Shared) { u := s.Join(); s.Replace(); u.Leave(); time.Sleep(time.Hour) }, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				started, stopped := 0, 0
				s := NewShared(keyspace.Queue{}, 1, func(*Mirror) context.CancelFunc {
					started++
					return func() { stopped++ }
				})
				c.do(s)
				synctest.Wait()
				s.mu.Lock()
				defer s.mu.Unlock()
				require.Equal(t, []int{c.started, c.stopped}, []int{started, stopped})
				require.Equal(t, started > stopped, s.mirror != nil)
			})
		})
	}
}

// A use and the word that it is replaced belong together.
func TestUseIsReplaced(t *testing.T) {
	t.Parallel()
	s := NewShared(keyspace.Queue{}, 1, func(*Mirror) context.CancelFunc { return func() {} })
	u, v := s.Join(), s.Join()
	require.Same(t, u.Mirror, v.Mirror)
	s.Replace()
	for _, use := range []*Use{u, v} {
		before := use.Mirror
		<-use.Replaced
		use.Next()
		require.NotSame(t, before, use.Mirror)
		require.NotNil(t, use.Mirror)
		select {
		case <-use.Replaced:
			t.Fatal("the next one is replaced, too")
		default:
		}
	}
	require.Same(t, u.Mirror, v.Mirror)
}
