package idemhttp_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/idempotency/idemhttp"
)

// During a rolling deploy a fleet has releases that compare the host and releases that do not, and
// each replays what the other one has recorded.
func TestHostDuringADeploy(t *testing.T) {
	t.Parallel()
	f := shared(t)
	before := f.instance(nil, nil).serve(&idemhttp.Options{Host: func(*http.Request) string { return "" }}, paid)
	after := f.instance(nil, nil).serve(nil, paid)
	for _, two := range [][2]server{{before, after}, {after, before}} {
		key := two[0].URL[len("http://127.0.0.1:"):]
		require.False(t, two[0].post("/pay", key, "body", host("shop-a.example")).replayed())
		require.True(t, two[1].post("/pay", key, "body", host("shop-a.example")).replayed())
	}
	require.EqualValues(t, 1, before.calls.Load())
	require.EqualValues(t, 1, after.calls.Load())
}
