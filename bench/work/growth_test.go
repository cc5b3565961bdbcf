package work

import (
	"testing"
	"time"

	"github.com/etcdkit/etcdkit/bench/measure"
)

// Each thing that takes memory can be made, and a session has one watch. Its figures are for thousands of them.
func TestGrows(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	for _, m := range things {
		samples, err := e.Grows(m.name, 40, m.grow).Run(t.Context())
		if err != nil {
			t.Fatalf("%s: %v", m.name, err)
		}
		s := samples[0]
		if _, known := s[measure.ClientHeap]; !known {
			t.Errorf("%s: %v", m.name, s)
		}
		if m.name == Connected && (s[measure.Watches] != 1 || s[measure.ServerHeap] < 10 || s[measure.ClientHeap] < 10) {
			t.Errorf("a session with its connection: %v", s)
		}
	}
}

// Idle sessions send what is counted, and an idle etcd without them receives nothing else.
func TestIdle(t *testing.T) {
	t.Parallel()
	for sessions, busy := range map[int]bool{0: false, 30: true} {
		e := newEnv(t)
		if busy {
			e.For = 400 * time.Millisecond // six seconds: sessions that were opened together renew together, every 5 s
		}
		samples, err := e.Idle("idle", sessions).Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got := samples[0][measure.Received]; got > 0 != busy {
			t.Errorf("%d sessions: %v", sessions, samples[0])
		}
	}
}
