package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/etcdkit/etcdkit/concurrency"
)

// lead is an instance of the service: it leads, again and again, until ctx ends.
func lead(ctx context.Context, sess *concurrency.Session) {
	el, err := concurrency.NewElection(sess, "ingest")
	if err != nil {
		log.Print(err)
		return
	}
	err = el.Lead(ctx, func(ctx context.Context, _ *concurrency.Permit) error {
		<-ctx.Done() // the leader works until then
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
