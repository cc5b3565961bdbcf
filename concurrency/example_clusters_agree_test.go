package concurrency_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/embedtest/etcdfake"
)

// Processes that share a cluster agree on the identity of all of them. A process with another cluster under a label of the
// others had passed, if that cluster was empty: the names of the label had two queues (A451 in
// internal/proof/tested-failures.md).
func TestClustersAgree(t *testing.T) {
	t.Parallel()
	x, y, z := etcdfake.New(t).Client(), etcdfake.New(t).Client(), etcdfake.New(t).Client()
	type clusters = map[string]*clientv3.Client
	require.NoError(t, agree(t.Context(), clusters{"a": x, "b": y}))
	require.NoError(t, agree(t.Context(), clusters{"b": y, "a": x}))
	for name, others := range map[string]clusters{
		"an empty cluster as b": {"a": x, "b": z},
		"an empty cluster as a": {"a": z, "b": y},
		"exchanged":             {"a": y, "b": x},
		"one more":              {"a": x, "b": y, "c": z},
		"one less":              {"a": x},
		"another label":         {"a": x, "c": y},
	} {
		require.ErrorContains(t, agree(t.Context(), others), "after a restore delete this key", name)
	}
	require.NoError(t, agree(t.Context(), clusters{"a": x, "b": y}))
}
