package cli_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/serve"
)

// A probe of health fails while the exporter says that its state is old, or says nothing.
func TestExportHealth(t *testing.T) {
	for name, c := range map[string]struct {
		up   []float64
		want int
	}{"up": {[]float64{1}, 200}, "not up": {[]float64{0}, 503}, "nothing": {nil, 503}} {
		reg := prometheus.NewRegistry()
		for _, v := range c.up {
			g := prometheus.NewGauge(prometheus.GaugeOpts{Name: "etcdkit_exporter_up"})
			g.Set(v)
			reg.MustRegister(g)
		}
		w := httptest.NewRecorder()
		serve.Pages(reg).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/healthz", nil))
		require.Equal(t, c.want, w.Code, name)
	}
}
