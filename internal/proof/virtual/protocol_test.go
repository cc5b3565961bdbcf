package virtual

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/etcdkit/etcdkit/internal/proof/check"
	"github.com/etcdkit/etcdkit/internal/proof/history"
)

// TestProtocol has rapid make up scripts, and the checkers judge what came of them.
func TestProtocol(t *testing.T) {
	t.Parallel()
	plays(t, drawScript)
}

// The same of crowds: most steps are light requests that come soon after each other, and sleep until they are near.
func TestProtocolOfCrowds(t *testing.T) {
	t.Parallel()
	plays(t, drawCrowd)
}

// plays judges scripts.
func plays(t *testing.T, draw func(*rapid.T) script) {
	// Inside a bubble goroutines still run in any order, and jitter is drawn. So when
	// one case has failed, each is played a few times, that it may shrink.
	plays := 1
	rapid.Check(t, func(rt *rapid.T) {
		s := draw(rt)
		for range plays {
			if bad := judge(run(t, s)); bad != "" {
				plays = 5
				rt.Fatalf("%s%sa broken rule is not a matter of time", s, bad)
			}
		}
	})
}

// run plays a script in a bubble.
func run(t *testing.T, s script) *history.History {
	var h *history.History
	stuck := time.AfterFunc(2*time.Minute, func() { panic("virtual time does not end: a goroutine waits for a mutex, or for ever\n" + s.String()) })
	defer stuck.Stop()
	synctest.Test(t, func(t *testing.T) { h = play(t, s) })
	return h
}

// judge returns what the checkers find.
func judge(h *history.History) string {
	checkers, err := check.Suite(h)
	if err != nil {
		return err.Error()
	}
	r := check.Judge(h, checkers...)
	if r.Verdict == check.Green {
		return ""
	}
	var b strings.Builder
	for _, f := range r.Findings {
		if f.Level == check.Excused {
			continue
		}
		fmt.Fprintf(&b, "%v %s/%s %s: %s\n", f.Level, f.Checker, f.Rule, f.Gate, f.Text)
	}
	return b.String()
}
