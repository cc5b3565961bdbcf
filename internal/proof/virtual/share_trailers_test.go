package virtual

import (
	"context"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency/limithttp"
)

// trailing is the body of a response of HTTP/2 without one, whose trailers come when end is closed.
type trailing struct {
	ctx context.Context
	end <-chan struct{}
}

func (l trailing) Read([]byte) (int, error) {
	select {
	case <-l.end:
		return 0, io.EOF
	case <-l.ctx.Done():
		return 0, context.Cause(l.ctx)
	}
}

func (trailing) Close() error { return nil }

// lateReplies is a RoundTripper that answers with such a response once begin is closed.
type lateReplies struct{ begin, end <-chan struct{} }

func (l lateReplies) RoundTrip(r *http.Request) (*http.Response, error) {
	<-l.begin
	return &http.Response{StatusCode: http.StatusOK, ProtoMajor: 2, Body: trailing{r.Context(), l.end}, Request: r}, nil
}

// TestShareOfACallWithTrailers: an outgoing call that began under a share, and whose response has no body, does not count
// any more, whether it has a permit by then or not. What is left of it is read nevertheless (A470 in
// internal/proof/tested-failures.md).
func TestShareOfACallWithTrailers(t *testing.T) {
	t.Parallel()
	for name, healed := range map[string]bool{"without a permit": false, "with one": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, 1, func(t *testing.T, on []*desk) {
				s, o := sharing(on[0], 1)
				begin, end := make(chan struct{}), make(chan struct{})
				rt, err := limithttp.Transport(s.lim, o, lateReplies{begin, end})
				require.NoError(t, err)
				require.NoError(t, on[0].hold1(s.lim.Key("acme")).Release(t.Context()))
				time.Sleep(time.Minute)
				s.client.Refuse()
				time.Sleep(time.Minute)
				answered := make(chan *http.Response, 1)
				go func() {
					r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://downstream/", nil)
					r.Header.Set("Tenant", "acme")
					resp, _ := rt.RoundTrip(r)
					answered <- resp
				}()
				time.Sleep(5 * time.Second) // longer than Wait
				s.running(1)
				if healed {
					s.healed()
					s.running(0)
					s.holders(1)
				}
				close(begin)
				resp := came(t, answered, "the response")
				require.NotNil(t, resp)
				s.running(0)
				if !healed {
					s.healed()
				}
				s.holders(0)
				read := make(chan error, 1)
				go func() {
					_, err := io.ReadAll(resp.Body)
					read <- err
				}()
				synctest.Wait()
				require.Empty(t, read, "its trailers are to come")
				close(end)
				require.NoError(t, came(t, read, "the end of the body"))
				require.NoError(t, resp.Body.Close())
			})
		})
	}
}
