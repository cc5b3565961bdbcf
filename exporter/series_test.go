package exporter_test

import (
	"maps"
	"regexp"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
)

// All series of a name share their labels: those that a Registerer adds are in each of them, and change no other.
func TestLabelsOfARegisterer(t *testing.T) {
	t.Parallel()
	f := shared(t)
	s, _ := f.Session(idle())
	fill(t, f, s)
	e := f.export(s, nil)
	e.reaches(f)
	reg := prometheus.NewPedanticRegistry()
	prometheus.WrapRegistererWith(prometheus.Labels{"etcdkit_cluster": "a", "zone": "b"}, reg).MustRegister(e.Exporter)
	added := regexp.MustCompile(`cluster="a",?|,?zone="b"`)
	var names []string
	for name := range (&running{t: t, reg: reg}).series() {
		require.Len(t, added.FindAllString(name, -1), 2, name)
		names = append(names, added.ReplaceAllString(name, ""))
	}
	slices.Sort(names)
	require.Equal(t, slices.Sorted(maps.Keys(e.series())), names)
}
