package etcdfake_test

import (
	"context"
	"errors"
	"testing"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest/etcdfake"
)

// A deployment asks the leader to step down. It ends its work, and only then another
// process leads.
func askedToLeave(t *testing.T, etcd *etcdfake.Server) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var elections []*concurrency.Election
	led, ended := make(chan int, 10), make(chan error, 2)
	leading := 0 // at most one at a time writes it
	for process := range 2 {
		el, err := concurrency.NewElection(session(t, etcd.NewClient()), "indexer")
		ok(t, err)
		elections = append(elections, el)
		go func() {
			ended <- el.Lead(ctx, func(ctx context.Context, _ *concurrency.Permit) error { // the code under test
				leading++
				if leading != 1 {
					t.Errorf("%d processes lead", leading)
				}
				led <- process
				<-ctx.Done()
				leading--
				return context.Cause(ctx)
			})
		}()
	}
	before := <-led
	_, err := elections[0].StepDown(ctx, "deploy")
	ok(t, err)
	if after := <-led; after == before {
		t.Errorf("process %d was asked to step down and leads again", before)
	}
	stop()
	for range elections {
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Lead returned %v", err)
		}
	}
}

// A leader that is asked to step down.
func Example_stepDown() {
	example(func(t *testing.T) { // here: func TestStepDown(t *testing.T)
		etcdfake.Test(t, askedToLeave)
	})
	// Output: PASS
}
