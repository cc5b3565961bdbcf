package engine

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A605: the error of a call whose ctx has ended matches the ctx's own error, whatever else has ended at that moment.
func TestEndedBy(t *testing.T) {
	t.Parallel()
	canceled, late := context.Canceled, context.DeadlineExceeded
	unconfirmed := fmt.Errorf("etcd has not confirmed the request: %w", late)
	for _, c := range []struct{ own, err, want error }{
		{late, late, late},
		{late, unconfirmed, unconfirmed},
		{late, canceled, late},
		{late, fmt.Errorf("etcd has not confirmed the request: %w", canceled), late},
		{canceled, canceled, canceled},
		{canceled, unconfirmed, canceled},
		{canceled, errors.Join(canceled, late), errors.Join(canceled, late)},
	} {
		require.Equal(t, c.want, EndedBy(c.own, c.err), "%v, %v", c.own, c.err)
	}
}

// A605: likewise for a call that Close ends, just before its ctx ends. An error of another kind stays.
func TestDoEndsWithItsOwnCtx(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fails func(ctx context.Context) error
		late  time.Duration // after which the call returns
		want  error
	}{
		"closed":         {context.Context.Err, 0, ErrClosed},
		"closed, late":   {context.Context.Err, time.Second, context.DeadlineExceeded},
		"refused":        {func(context.Context) error { return ErrTooMany }, 0, ErrClosed},
		"refused, late":  {func(context.Context) error { return ErrTooMany }, time.Second, ErrTooMany},
		"done all right": {func(context.Context) error { return nil }, time.Second, nil},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &Session{work: newWork(t.Context(), t.Context())}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			err := s.Do(ctx, func(open context.Context) error {
				s.work.close()
				<-open.Done()
				err := c.fails(open)
				time.Sleep(c.late)
				synctest.Wait()
				return err
			})
			require.Equal(t, c.want, err, name)
		})
	}
}
