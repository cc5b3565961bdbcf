package idempotency_test

import (
	"context"
	"encoding/base64"
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/idempotency"
)

var base64Text = regexp.MustCompile(`[A-Za-z0-9+/]{8,}=*`)

// V30: what is in the clear in etcd although the store has a Codec is what "What is kept of a request" in
// docs/operations.md says, and no more.
func TestKeptInTheClear(t *testing.T) {
	t.Parallel()
	f := shared(t)
	in := f.instance(&concurrency.SessionOptions{Owner: "the-owner"}, &idempotency.Options{Codec: reverse("the-codec"), OnLost: idempotency.Refuse})
	operator := f.instance(&concurrency.SessionOptions{Owner: "the-operator"}, &idempotency.Options{Codec: reverse("the-codec")})
	do := func(id string, fn func(a *idempotency.Attempt) (string, error)) {
		_, _ = idempotency.Do(ctxT(t), in.Store, idempotency.Key{Scope: "the-scope", Op: "the-op", ID: "the-id-" + id}, "the-payload", func(_ context.Context, a *idempotency.Attempt) (string, error) { return fn(a) }, idempotency.Note("the-note"), idempotency.AlsoCompare("the-host"))
	}
	failed := errors.New("the-error")
	do("result", func(*idempotency.Attempt) (string, error) { return "the-result", nil })
	do("permanent", func(*idempotency.Attempt) (string, error) {
		return "", idempotency.Permanent(errors.New("the-permanent"))
	})
	do("fail", func(a *idempotency.Attempt) (string, error) {
		return "", a.Fail(ctxT(t), "the-failure", []byte("the-details"))
	})
	do("step", func(a *idempotency.Attempt) (string, error) {
		_, err := idempotency.Step(a, "the-step", func(context.Context) (string, error) { return "the-value", nil })
		return a.ChildKey("the-purpose"), errors.Join(err, failed)
	})
	for _, resolution := range []idempotency.Resolution{idempotency.WasDone([]byte(`"the-done"`)), idempotency.HasFailed("the-word")} {
		do("resolved", func(*idempotency.Attempt) (string, error) { return "", failed })
		for r, err := range operator.List(ctxT(t), idempotency.Filter{State: idempotency.Unknown}) {
			require.NoError(t, err)
			if len(r.Steps) == 0 {
				require.NoError(t, operator.Resolve(ctxT(t), r.Ref, resolution))
			}
		}
		do("resolved2", func(*idempotency.Attempt) (string, error) { return "", failed })
	}
	clear := []string{"the-scope", "the-op", "the-owner", "the-operator", "the-codec", "the-note", "the-step", "the-permanent", "the-failure", "the-word"}
	hidden := []string{"the-id", "the-payload", "the-host", "the-result", "the-details", "the-value", "the-purpose", "the-done", "the-error"}
	var found []string
	for name, value := range f.Values("/idempotency/") {
		for _, text := range base64Text.FindAllString(value, -1) { // results, within JSON
			b, _ := base64.StdEncoding.DecodeString(text)
			value += "\n" + string(b)
		}
		for _, text := range slices.Concat(clear, hidden) {
			if strings.Contains(name+"\n"+value, text) && !slices.Contains(found, text) {
				found = append(found, text)
			}
		}
	}
	require.ElementsMatch(t, clear, found)
}
