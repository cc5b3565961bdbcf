package limithttp_test

import (
	"context"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/concurrency/limithttp"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// open is a RoundTripper whose responses have a body that does not end. It passes on the context of its requests.
type open chan context.Context

func (o open) RoundTrip(r *http.Request) (*http.Response, error) {
	o <- r.Context()
	body, _ := io.Pipe()
	return &http.Response{StatusCode: http.StatusOK, Body: body, ContentLength: -1, Request: r}, nil
}

// TestReportPanicsInTheBackground: the permit of an outgoing request is lost, and its context ends: a panic of ReportError,
// in a goroutine of the Transport, is logged, and ended the process (A299 in internal/proof/tested-failures.md).
func TestReportPanicsInTheBackground(t *testing.T) {
	t.Parallel()
	core, lines := observer.New(zapcore.WarnLevel)
	in := on(testkit.Shared(t), &concurrency.SessionOptions{TTL: 300 * time.Second, Logger: zap.New(core)}, 1)
	sent := make(open, 1)
	c := in.calling(options(func(o *limithttp.Options) {
		o.ReportError = func(*http.Request, error) { panic("planned") }
	}), sent)
	ctx, cancel := context.WithCancel(ctxT(t))
	defer cancel()
	resp, err := c.Do(call(t, ctx, http.MethodGet, "http://localhost", "acme", nil))
	require.NoError(t, err)
	st, err := in.Key("acme").Status(ctx)
	require.NoError(t, err)
	require.NoError(t, in.Key("acme").EvictToken(ctx, st.Holders[0].Token, "test"))
	testkit.Closed(t, (<-sent).Done(), "its session learns of it")
	cancel()
	require.Eventually(t, func() bool { return lines.FilterMessageSnippet("a hook has panicked").Len() == 1 }, soon, 10*time.Millisecond)
	require.NoError(t, resp.Body.Close())
}
