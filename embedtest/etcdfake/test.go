package etcdfake

import (
	"testing"
	"testing/synctest"
)

// Test runs f in a bubble of testing/synctest, with a new Server: time passes only while
// every goroutine of f waits, and then at once. As in any bubble, f must not call t.Run,
// t.Parallel or t.Deadline, and must not wait for anything outside of it, such as a
// socket or a mutex that another test holds. With [Endpoints], f runs in a subtest, in
// real time.
func Test(t *testing.T, f func(t *testing.T, etcd *Server), opts ...Option) {
	t.Helper()
	var s Server
	for _, set := range opts {
		set(&s)
	}
	if s.real != nil {
		t.Run("on a real etcd", func(t *testing.T) { f(t, New(t, opts...)) })
		return
	}
	synctest.Test(t, func(t *testing.T) { f(t, New(t, opts...)) })
}
