package verb

import (
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/exit"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/output"
	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/engine"
)

// errNoReader is the end of a verb whose output is read by no process any more: the code is that of a process that has
// written to such a pipe.
var errNoReader = exit.With(exit.NoReader, nil)

// Following is Attending for a verb whose purpose is its output. It ends when no process reads that any more, as in
// 'show --watch | head -1', whether there is a change to print or not. It returns an error of follow, and of the output.
func (c *Call) Following(ctx context.Context, sess *concurrency.Session, follow func(context.Context) error) error {
	ctx, left := context.WithCancelCause(ctx)
	defer left(nil)
	if out, ok := output.File(c.Std.Out); ok {
		go func() {
			if readerGone(ctx, out) {
				left(errNoReader)
			}
		}()
	}
	err := c.Attending(ctx, sess, follow)
	if errors.Is(context.Cause(ctx), errNoReader) {
		return errNoReader
	}
	return err
}

// Attending runs what waits for etcd, and writes to standard error when etcd does not answer, and when it answers again:
// without that, an outage looks like a state that does not change. It needs no reader. It returns an error of wait.
func (c *Call) Attending(ctx context.Context, sess *concurrency.Session, wait func(context.Context) error) error {
	watching, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.vigil(watching, sess)
	}()
	err := wait(ctx)
	stop()
	<-done
	return err
}

// vigil reads a key once in --command-timeout until ctx ends.
func (c *Call) vigil(ctx context.Context, sess *concurrency.Session) {
	client, away := engine.Of(sess).Etcd().Client, time.Time{}
	for {
		select {
		case <-time.After(c.Etcd.Timeout):
		case <-ctx.Done():
			return
		}
		asked := time.Now()
		call, cancel := context.WithTimeout(ctx, c.Etcd.Timeout)
		_, err := client.Get(call, sess.NamespacePrefix(), clientv3.WithKeysOnly())
		cancel()
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && away.IsZero():
			away = asked
			fmt.Fprintf(c.Std.Err, "%s UTC: etcd does not answer, and what is shown may be out of date: %s\n",
				asked.UTC().Format(time.TimeOnly), output.Printable(WithReason(client, err).Error()))
		case err == nil && !away.IsZero():
			fmt.Fprintf(c.Std.Err, "%s UTC: etcd answers again, after %s\n", asked.UTC().Format(time.TimeOnly), output.Brief(time.Since(away)))
			away = time.Time{}
		}
	}
}
