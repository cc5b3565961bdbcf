package progtest

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/etcdkit/etcdkit/internal/examples/cluster"
	"github.com/etcdkit/etcdkit/internal/examples/program"
)

// WithoutEtcd runs a program with an endpoint at which there is no etcd. It fails t unless the
// program returns an error that names the endpoint.
func WithoutEtcd(t *testing.T, run program.Func) {
	t.Helper()
	err := program.Run(t.Context(), cluster.At("127.0.0.1:1"), run)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Errorf("%v, want context.DeadlineExceeded with the endpoint", err)
	}
}
