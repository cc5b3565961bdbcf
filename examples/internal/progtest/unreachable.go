package progtest

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/etcdkit/etcdkit/examples/internal/program"
)

// WithoutEtcd runs a program where there is no etcd. It has to end by itself, with an
// error that names what cannot be reached.
func WithoutEtcd(t *testing.T, run program.Func) {
	t.Helper()
	err := program.Run(t.Context(), "127.0.0.1:1", run)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Errorf("%v, want an error that names what cannot be reached", err)
	}
}
