package cli_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/serve"
)

// gathering counts how often metrics are gathered.
type gathering int

func (g *gathering) Gather() ([]*dto.MetricFamily, error) {
	*g++
	return nil, errors.New("two series with the same labels")
}

// A probe of health fails while the exporter says that its state is old. It gathers no metrics: with 2,000 names that took
// longer than a probe waits (A320 in internal/proof/tested-failures.md).
func TestExportHealth(t *testing.T) {
	for up, want := range map[bool]int{true: http.StatusOK, false: http.StatusServiceUnavailable} {
		var g gathering
		w := httptest.NewRecorder()
		serve.Pages(&g, func() bool { return up }).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/healthz", nil))
		require.Equal(t, want, w.Code)
		require.Zero(t, g)
	}
}
