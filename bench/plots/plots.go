// Package plots draws what the benchmark has measured, as SVG.
package plots

import (
	"bytes"
	"cmp"
	"fmt"
	"image/color"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/etcdkit/etcdkit/bench/measure"
	"github.com/etcdkit/etcdkit/bench/work"
)

// picture is one file.
type picture struct {
	file        string
	title, x, y string
	linear      bool    // the y axis
	scale       float64 // of y; 0 is 1
	curves      []curve
}

// curve is a metric of the points of one series.
type curve struct {
	plot, series string
	metric       measure.Metric
	legend       string
	stroke       []vg.Length // the lengths of dashes and gaps; nil is a solid line
}

var solid, dashed, dotted = []vg.Length(nil), []vg.Length{5, 3}, []vg.Length{1.5, 2.5}

var pictures = []picture{
	{
		file: "waiting.svg", title: "Locks per second while processes wait (limit 1, no work)",
		x: "waiting processes, each with a connection of its own", y: "locks per second",
		curves: []curve{
			{work.PlotWaiting, "ours", measure.Rate, "etcdkit", solid},
			{work.PlotWaiting, "etcd Mutex", measure.Rate, "etcd's Mutex", solid},
			{work.PlotProcesses, "ours", measure.Rate, "etcdkit, OS processes", dotted},
			{work.PlotProcesses, "etcd Mutex", measure.Rate, "etcd's Mutex, OS processes", dotted},
			{work.PlotWaiting3, "ours", measure.Rate, "etcdkit, 3 members", dashed},
			{work.PlotWaiting3, "etcd Mutex", measure.Rate, "etcd's Mutex, 3 members", dashed},
		},
	},
	{
		file: "grant.svg", title: "From the release of a lock to the next grant (limit 1, no work)",
		x: "waiting processes, each with a connection of its own", y: "milliseconds",
		curves: []curve{
			{work.PlotWaiting, "ours", measure.PassMedian, "etcdkit, median", solid},
			{work.PlotWaiting, "ours", measure.Pass99, "etcdkit, 99 %", dashed},
			{work.PlotWaiting, "etcd Mutex", measure.PassMedian, "etcd's Mutex, median", solid},
			{work.PlotWaiting, "etcd Mutex", measure.Pass99, "etcd's Mutex, 99 %", dashed},
		},
	},
	{
		file: "capacity.svg", title: "Use of a lock by 32 callers in 8 processes",
		x: "work under the lock, milliseconds", y: "part of the time in use, %", linear: true, scale: 100,
		curves: []curve{
			{work.PlotHold, "ours", measure.Capacity, "etcdkit", solid},
			{work.PlotHold, "ours, Handover", measure.Capacity, "etcdkit, Handover 20 ms", dashed},
			{work.PlotHold, "redislock everysec", measure.Capacity, "redislock, fsync everysec", solid},
			{work.PlotHold, "redislock always", measure.Capacity, "redislock, fsync always", dashed},
			{work.PlotHold, "x/sync", measure.Capacity, "x/sync, one process", solid},
		},
	},
	{
		file: "requests.svg", title: "New idempotent requests (claim and outcome)",
		x: "requests in flight", y: "requests per second",
		curves: []curve{
			{work.PlotRequests, "ours", measure.Rate, "etcdkit", solid},
			{work.PlotRequests, "ours, LikelyNew", measure.Rate, "etcdkit, LikelyNew", dashed},
			{work.PlotRequests, "claim + complete", measure.Rate, "two bare Txns on etcd", solid},
			{work.PlotRequests, "floor", measure.Rate, "floor: etcd's client alone", solid},
			{work.PlotRequests, "Redis everysec", measure.Rate, "Redis, fsync everysec", solid},
			{work.PlotRequests, "Redis always", measure.Rate, "Redis, fsync always", dashed},
		},
	},
}

// look is the colour and the mark of a series: told apart also by those who see colours differently.
func look(series string) (color.Color, draw.GlyphDrawer) {
	rgb := func(r, g, b uint8) color.Color { return color.RGBA{r, g, b, 255} }
	switch series {
	case "ours":
		return rgb(0x00, 0x5a, 0xa0), draw.CircleGlyph{}
	case "ours, Handover", "ours, LikelyNew":
		return rgb(0x2a, 0x9f, 0xd8), draw.CircleGlyph{}
	case "etcd Mutex", "claim + complete":
		return rgb(0xc8, 0x50, 0x00), draw.SquareGlyph{}
	case "redislock everysec", "Redis everysec":
		return rgb(0x00, 0x85, 0x60), draw.TriangleGlyph{}
	case "redislock always", "Redis always":
		return rgb(0x00, 0x85, 0x60), draw.PyramidGlyph{}
	default:
		return rgb(0x60, 0x60, 0x60), draw.CrossGlyph{}
	}
}

// File is a picture that was drawn.
type File struct{ Path, Title string }

// Draw writes the pictures to dir, with the machine below each. A picture without any data is left out.
func Draw(dir string, m measure.Machine, r *measure.Results) (files []File, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	for _, p := range pictures {
		svg, err := p.draw(r, m.Caption())
		if err != nil {
			return files, fmt.Errorf("%s: %w", p.file, err)
		}
		if svg == nil {
			continue
		}
		file := filepath.Join(dir, p.file)
		if err := os.WriteFile(file, svg, 0o644); err != nil {
			return files, err
		}
		files = append(files, File{file, p.title})
	}
	return files, nil
}

// points returns a curve's points in the order of x.
func (c curve) points(r *measure.Results, scale float64) plotter.XYs {
	var all plotter.XYs
	for id, at := range r.Points {
		if at.Plot != c.plot || at.Series != c.series {
			continue
		}
		if y, ok := r.Of(id, c.metric); ok && y > 0 {
			all = append(all, plotter.XY{X: at.X, Y: y * scale})
		}
	}
	slices.SortFunc(all, func(a, b plotter.XY) int { return cmp.Compare(a.X, b.X) })
	return all
}

const sans = "Sans" // a variant of the Liberation fonts, whose sizes are those of Arial

func (p picture) draw(r *measure.Results, caption string) ([]byte, error) {
	pl := plot.New()
	pl.Title.Text, pl.X.Label.Text, pl.Y.Label.Text = p.title, p.x, p.y
	style := func(f *font.Font, size vg.Length) { f.Variant, f.Size = sans, size }
	style(&pl.Title.TextStyle.Font, 13)
	for _, axis := range []*plot.Axis{&pl.X, &pl.Y} {
		style(&axis.Label.TextStyle.Font, 11)
		style(&axis.Tick.Label.Font, 10)
		axis.Padding = 6
	}
	style(&pl.Legend.TextStyle.Font, 10)
	pl.Title.Padding = 8
	grid := plotter.NewGrid()
	grid.Horizontal.Color, grid.Vertical.Color = color.Gray{0xdd}, color.Gray{0xee}
	pl.Add(grid)
	var xs, ys []float64
	for _, c := range p.curves {
		points := c.points(r, cmp.Or(p.scale, 1))
		if len(points) == 0 {
			continue
		}
		for _, at := range points {
			xs, ys = append(xs, at.X), append(ys, at.Y)
		}
		line, marks, err := plotter.NewLinePoints(p.scaled(points))
		if err != nil {
			return nil, err
		}
		line.Width, marks.Radius = 1.8, 3.2
		line.Color, marks.Shape = look(c.series)
		marks.Color = line.Color
		line.Dashes = c.stroke
		pl.Add(line, marks)
		pl.Legend.Add(c.legend, line, marks)
	}
	if len(xs) == 0 {
		return nil, nil
	}
	pl.X.Tick.Marker = ticks(xs, math.Log10)
	pl.X.Min, pl.X.Max = math.Log10(slices.Min(xs)), math.Log10(slices.Max(xs))
	steps, scale := []float64{0, 20, 40, 60, 80, 100}, linear
	if !p.linear {
		steps, scale = around(slices.Min(ys), slices.Max(ys)), math.Log10
	}
	pl.Y.Tick.Marker = ticks(steps, scale)
	pl.Y.Min, pl.Y.Max = scale(steps[0]), scale(steps[len(steps)-1])
	return p.render(pl, caption)
}

// render draws the plot with its legend beside it, so that neither hides the other, and the caption below.
func (p picture) render(pl *plot.Plot, caption string) ([]byte, error) {
	const width, height, legend, foot = 640, 375, 190, 20
	legendOf := pl.Legend
	pl.Legend = plot.NewLegend()
	legendOf.Top, legendOf.Left, legendOf.YOffs, legendOf.Padding = true, true, -34, 3
	canvas := vgsvg.New(width, height)
	all := draw.New(canvas)
	all.SetColor(color.White)
	all.Fill(all.Rectangle.Path())
	pl.Draw(draw.Crop(all, 6, -legend, foot, -6))
	legendOf.Draw(draw.Crop(all, width-legend+10, -4, foot, 0))
	small := pl.Legend.TextStyle
	small.Font.Variant, small.Font.Size, small.Color = sans, 8, color.Gray{0x60}
	all.FillText(small, vg.Point{X: 8, Y: 7}, caption)
	var out bytes.Buffer
	if _, err := canvas.WriteTo(&out); err != nil {
		return nil, err
	}
	return families.ReplaceAll(out.Bytes(), []byte("font-family:'Liberation Sans',Arial,Helvetica,sans-serif;font-variant:normal")), nil
}

// families are the fonts that the library names; a browser has one of those that replace them.
var families = regexp.MustCompile(`font-family:[^;]*;font-variant:[^;]*`)

// scaled returns the points as they are on the paper. The axes are linear in the logarithm, because the
// library takes the room for an axis's title from its middle by the values.
func (p picture) scaled(points plotter.XYs) plotter.XYs {
	scale := math.Log10
	if p.linear {
		scale = linear
	}
	on := slices.Clone(points)
	for i, at := range on {
		on[i] = plotter.XY{X: math.Log10(at.X), Y: scale(at.Y)}
	}
	return on
}

func linear(v float64) float64 { return v }

// ticks are labelled ticks at these values, on a scale.
func ticks(values []float64, scale func(float64) float64) plot.ConstantTicks {
	var all plot.ConstantTicks
	for _, v := range slices.Compact(slices.Sorted(slices.Values(values))) {
		all = append(all, plot.Tick{Value: scale(v), Label: label(v)})
	}
	return all
}

// label writes thousands as engineers do: 1k, 2.5k.
func label(v float64) string {
	if v >= 1000 {
		return strconv.FormatFloat(v/1000, 'g', 4, 64) + "k"
	}
	return strconv.FormatFloat(v, 'g', 4, 64)
}

// around are the steps 1, 2, 5, 10, … from below the least to above the most; only the powers of ten
// where there would be more than ten.
func around(least, most float64) []float64 {
	var steps []float64
	for e := math.Floor(math.Log10(least)); ; e++ {
		for _, m := range []float64{1, 2, 5} {
			v := m * math.Pow(10, e)
			for len(steps) == 1 && v <= least {
				steps = steps[:0]
			}
			steps = append(steps, v)
			if v >= most && len(steps) > 1 {
				return thin(steps)
			}
		}
	}
}

func thin(steps []float64) []float64 {
	if len(steps) <= 10 {
		return steps
	}
	var some []float64
	for i, v := range steps {
		if e := math.Log10(v); i == 0 || i == len(steps)-1 || math.Abs(e-math.Round(e)) < 1e-9 {
			some = append(some, v)
		}
	}
	return some
}
