package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/examples/program"
)

// lead is an instance of the service: it leads, again and again, until ctx ends.
func lead(ctx context.Context, sess *concurrency.Session) {
	el, err := concurrency.NewElection(sess, "ingest")
	if err != nil {
		log.Print(err)
		return
	}
	err = el.Lead(ctx, func(ctx context.Context, term *concurrency.Permit) error {
		for ctx.Err() == nil && term.Err() == nil { // after a pause of the process, term.Err notices it before ctx does
			if err := program.Work(ctx, "a pass of the leader", 50*time.Millisecond); err != nil {
				break
			}
		}
		if errors.Is(context.Cause(ctx), concurrency.ErrStepDown) {
			fmt.Println(sess.Owner(), "was asked to step down, and stops")
		}
		return nil
	}, concurrency.Note("address of "+sess.Owner()))
	if !errors.Is(err, context.Canceled) {
		log.Print(err)
	}
}

// candidate waits until another instance waits to lead.
func candidate(ctx context.Context, el *concurrency.Election) error {
	for {
		st, err := el.Status(ctx)
		if err != nil || len(st.Waiters) > 0 {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
}
