package plots

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/etcdkit/etcdkit/bench/measure"
	"github.com/etcdkit/etcdkit/bench/work"
)

func results() *measure.Results {
	r := measure.NewResults()
	add := func(plot, series string, x float64, s measure.Sample) {
		id := plot + ": " + series + label(x)
		r.Order = append(r.Order, id)
		r.Samples[id] = []measure.Sample{s}
		r.Points[id] = measure.Point{Plot: plot, Series: series, X: x}
	}
	for _, n := range []float64{8, 64, 512} {
		for i, series := range []string{"ours", "etcd Mutex"} {
			add(work.PlotWaiting, series, n, measure.Sample{measure.Rate: 1000 / n * float64(i+1), measure.PassMedian: n / 8, measure.Pass99: n})
		}
	}
	for _, hold := range []float64{0.2, 1, 100} {
		add(work.PlotHold, "ours", hold, measure.Sample{measure.Capacity: 0.5})
	}
	return r
}

// Each picture is well-formed, has its axes' titles and one legend for each series that was measured;
// what was not measured has no picture.
func TestDraw(t *testing.T) {
	t.Parallel()
	files, err := Draw(t.TempDir(), measure.Machine{Date: "2026-01-02", CPU: "some processor"}, results())
	if err != nil || len(files) != 3 {
		t.Fatalf("files %v, error %v", files, err)
	}
	for i, want := range [][]string{
		{"locks per second", "waiting processes", "etcdkit", "Mutex", "512"},
		{"milliseconds", "etcdkit, median", "99 %"},
		{"part of the time in use, %", "work under the lock", "etcdkit", "0.2"},
	} {
		raw, err := os.ReadFile(files[i].Path)
		if err != nil {
			t.Fatal(err)
		}
		for dec := xml.NewDecoder(strings.NewReader(string(raw))); ; {
			if _, err := dec.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", files[i].Path, err)
			}
		}
		if len(raw) > 60_000 {
			t.Errorf("%s has %d bytes", files[i].Path, len(raw))
		}
		for _, text := range append(want, "2026-01-02", "some processor") {
			if !strings.Contains(string(raw), text) {
				t.Errorf("%s has no %q", files[i].Path, text)
			}
		}
		if strings.Contains(string(raw), "3 members") || strings.Contains(string(raw), "redislock") {
			t.Errorf("%s has a legend for a series that was not measured", files[i].Path)
		}
	}
}

func TestAround(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		least, most float64
		want        []float64
	}{
		{24, 1300, []float64{20, 50, 100, 200, 500, 1000, 2000}},
		{100, 100, []float64{100, 200}},
		{0.3, 0.9, []float64{0.2, 0.5, 1}},
		{2, 90_000, []float64{2, 10, 100, 1000, 10_000, 100_000}},
	} {
		got := around(c.least, c.most)
		close := slices.EqualFunc(got, c.want, func(a, b float64) bool { return a/b > 0.999 && a/b < 1.001 })
		if !close || got[0] > c.least || got[len(got)-1] < c.most {
			t.Errorf("around %v to %v: %v", c.least, c.most, got)
		}
	}
}
