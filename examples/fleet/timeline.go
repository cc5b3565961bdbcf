package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/etcdkit/etcdkit/internal/examples/svg"
)

// The measures of the timeline, in pixels.
const (
	pictureWidth = 1200
	plotLeft     = 84
	plotRight    = pictureWidth - 28
	rowsTop      = 122
	chartGap     = 62
	chartHeight  = 132
)

// The colours of the timeline. Colour-blind readers can distinguish them too.
const (
	waiting = "#d3dae1"
	inEtcd  = "#dbe7f3"
)

var endColours = map[ending]string{
	succeeded: "#57a889",
	failed:    "#f0a63a",
	panicked:  "#c978b4",
	stuck:     "#4f63c4",
	killed:    "#d8545f",
	paused:    "#3fa7d6",
	lost:      "#8d99a6",
	stopped:   "#8d99a6",
}

// svg draws the timeline: a row for each worker, and below the rows the number of workers that
// are working. The result depends on the picture alone.
func (p picture) svg() []byte {
	d := drawing{picture: p}
	d.rowHeight = min(24, max(6, 560/float64(max(1, p.rows))))
	d.rowsBottom = rowsTop + d.rowHeight*float64(p.rows)
	d.chartTop = d.rowsBottom + chartGap
	d.chartBottom = d.chartTop + chartHeight
	d.height = d.chartBottom + 44
	d.top = max(p.limit, maxN(p.working), maxN(p.taken)) + 1

	d.Begin(pictureWidth, d.height, p.title, p.subtitle, p.bad)
	d.Printf(`<defs><pattern id="paused" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><path d="M0 0V6" stroke="%s" stroke-width="4"/></pattern></defs>`, endColours[paused])
	d.legend()
	d.axis()
	d.workers()
	d.chart()
	return d.End()
}

// drawing is the state of svg.
type drawing struct {
	picture
	svg.Drawing
	rowHeight, rowsBottom, chartTop, chartBottom, height float64
	top                                                  int // of the chart's scale
}

// legend draws a sample and a name for each colour that occurs in the picture.
func (d *drawing) legend() {
	x, y := 24.0, 92.0
	entry := func(mark, text string) {
		d.Printf(`<g transform="translate(%s %s)">%s<text x="26" font-size="12.5">%s</text></g>`, svg.Px(x), svg.Px(y), mark, svg.Escape(text))
		x += 26 + 6.8*float64(len(text)) + 18
	}
	box := func(fill string) string {
		return fmt.Sprintf(`<rect y="-10" width="18" height="11" rx="2" fill="%s"/>`, fill)
	}
	entry(fmt.Sprintf(`<rect y="-7" width="18" height="5" fill="%s"/>`, waiting), "waiting")
	occurs := map[ending]bool{succeeded: true}
	for _, b := range d.holds {
		occurs[b.end] = true
	}
	for _, e := range endings {
		switch {
		case e == paused && len(d.pauses) > 0:
			entry(box(endColours[e]), "working, later paused")
			entry(box("url(#paused)"), "stopped")
		case e == succeeded:
			entry(box(endColours[e]), "working, succeeds")
		case occurs[e] && e != killed:
			entry(box(endColours[e]), labels[e])
		case occurs[e] || e == killed && len(d.kills) > 0:
			entry(box(endColours[e])+cross(16, -4.5), "killed")
		}
	}
}

// axis draws the time scale through the rows and the chart.
func (d *drawing) axis() {
	span := time.Duration(d.length)
	every := time.Second
	for _, e := range []time.Duration{1, 2, 5, 10, 20, 30, 60, 120, 300, 600} {
		if every = e * time.Second; span/every <= 14 { //nolint:durationcheck // e is a count
			break
		}
	}
	var path strings.Builder
	for t := time.Duration(0); t <= span; t += every {
		x := svg.Px(d.x(int64(t)))
		fmt.Fprintf(&path, "M%s %s", x, svg.Px(rowsTop-4))
		fmt.Fprintf(&path, "V%sM%s %sV%s", svg.Px(d.rowsBottom+2), x, svg.Px(d.chartTop), svg.Px(d.chartBottom))
		d.Printf(`<text x="%s" y="%s" text-anchor="middle" font-size="12" fill="%s">%d s</text>`, x, svg.Px(d.chartBottom+20), svg.Faint, t/time.Second)
	}
	d.Printf(`<path d="%s" stroke="%s" fill="none"/>`, path.String(), svg.Grid)
}

func (d *drawing) workers() {
	gap := min(4, d.rowHeight/4)
	if d.rowHeight >= 11 {
		for row := range d.rows {
			d.Printf(`<text x="%d" y="%s" text-anchor="end" font-size="%s" fill="%s">worker %d</text>`,
				plotLeft-10, svg.Px(d.y(row)+d.rowHeight/2+4), svg.Px(min(12, d.rowHeight-1)), svg.Faint, row+1)
		}
	}
	thin := max(2, d.rowHeight/5)
	var path strings.Builder
	for _, b := range d.waits {
		d.rect(&path, b, thin)
	}
	d.Printf(`<path d="%s" fill="%s"/>`, path.String(), waiting)
	for _, e := range endings {
		bars := 0
		for _, b := range d.holds {
			if b.end == e {
				if bars++; bars == 1 {
					d.Printf(`<g fill="%s">`, endColours[e])
				}
				d.Printf(`<rect x="%s" y="%s" width="%s" height="%s" rx="2"><title>%s</title></rect>`, svg.Px(d.x(b.from)), svg.Px(d.y(b.row)+gap/2),
					svg.Px(max(1, d.x(b.to)-d.x(b.from)-0.5)), svg.Px(d.rowHeight-gap), svg.Escape(b.hint))
			}
		}
		if bars > 0 {
			d.Printf(`</g>`)
		}
	}
	for _, b := range d.beyond {
		path.Reset()
		d.rect(&path, b, thin)
		d.Printf(`<path d="%s" fill="%s" opacity=".45"/>`, path.String(), endColours[b.end])
	}
	for _, b := range d.pauses {
		path.Reset()
		d.rect(&path, b, d.rowHeight-gap-4)
		d.Printf(`<path d="%s" fill="url(#paused)" opacity=".7"/>`, path.String())
		if w := d.x(b.to) - d.x(b.from); w > 70 && d.rowHeight > 14 {
			x, y := d.x(b.from)+w/2, d.y(b.row)+d.rowHeight/2
			d.Printf(`<rect x="%s" y="%s" width="58" height="15" rx="7.5" fill="%s"/>`, svg.Px(x-29), svg.Px(y-7.5), svg.Paper)
			d.Printf(`<text x="%s" y="%s" text-anchor="middle" font-size="11.5">stopped</text>`, svg.Px(x), svg.Px(y+4))
		}
	}
	for _, b := range d.kills {
		d.Printf(`%s`, cross(d.x(b.from), d.y(b.row)+d.rowHeight/2))
	}
}

// chart draws how many workers are working, how many permits are held in etcd, and the limit.
func (d *drawing) chart() {
	head := d.chartTop - 16
	d.Printf(`<text x="24" y="%s" font-size="14" font-weight="600">At the same time</text>`, svg.Px(head))
	d.Printf(`<path d="M176 %sh22" stroke="%s" stroke-width="2.5"/><text x="206" y="%s" font-size="12.5">working, by the workers' timestamps</text>`, svg.Px(head-4.5), svg.Level, svg.Px(head))
	if len(d.taken) > 0 {
		d.Printf(`<rect x="458" y="%s" width="18" height="11" rx="2" fill="%s"/><text x="484" y="%s" font-size="12.5">permits held in etcd; a killed process holds its permit until its TTL has passed</text>`, svg.Px(head-10), inEtcd, svg.Px(head))
		d.Printf(`<path d="%sV%sH%sZ" fill="%s"/>`, d.steps(d.taken), svg.Px(d.level(0)), svg.Px(d.x(d.taken[0].At)), inEtcd)
	}
	for n := 0; n <= d.top; n++ {
		if n == 0 || n == d.limit || d.top <= 10 {
			d.Printf(`<text x="%d" y="%s" text-anchor="end" font-size="12" fill="%s">%d</text>`, plotLeft-10, svg.Px(d.level(n)+4), svg.Faint, n)
		}
	}
	d.Printf(`<path d="M%d %sH%d" stroke="%s"/>`, plotLeft, svg.Px(d.level(0)), plotRight, svg.Faint)
	d.Printf(`<path d="M%d %sH%d" stroke="%s" stroke-width="1.5" stroke-dasharray="6 4"/>`, plotLeft, svg.Px(d.level(d.limit)), plotRight, svg.Bound)
	d.Printf(`<text x="%d" y="%s" text-anchor="end" font-size="12.5" fill="%s">limit</text>`, plotRight, svg.Px(d.level(d.limit)-6), svg.Bound)
	if len(d.working) > 0 {
		d.Printf(`<path d="M%d %sH%s%s" fill="none" stroke="%s" stroke-width="1.75" stroke-linejoin="round"/>`, plotLeft, svg.Px(d.level(0)),
			svg.Px(d.x(d.working[0].At)), strings.Replace(d.steps(d.working), "M", "L", 1), svg.Level)
	}
}

// steps returns the path of a step chart.
func (d *drawing) steps(changes []change) string {
	var path strings.Builder
	for i, c := range changes {
		x, y := svg.Px(d.x(min(c.At, d.length))), svg.Px(d.level(c.N))
		if i == 0 {
			fmt.Fprintf(&path, "M%s %s", x, y)
		} else {
			fmt.Fprintf(&path, "H%sV%s", x, y)
		}
	}
	return path.String()
}

func (d *drawing) x(t int64) float64 {
	return plotLeft + float64(t)/float64(max(1, d.length))*(plotRight-plotLeft)
}

func (d *drawing) y(row int) float64 { return rowsTop + float64(row)*d.rowHeight }

func (d *drawing) level(n int) float64 {
	return d.chartBottom - float64(n)/float64(d.top)*chartHeight
}

// rect adds a bar to a path, in the middle of its row.
func (d *drawing) rect(path *strings.Builder, b bar, thick float64) {
	x := d.x(b.from)
	w := svg.Px(max(0.5, d.x(b.to)-x))
	fmt.Fprintf(path, "M%s %sh%sv%sh-%sz", svg.Px(x), svg.Px(d.y(b.row)+(d.rowHeight-thick)/2), w, svg.Px(thick), w)
}

// cross returns the mark of a killed process.
func cross(x, y float64) string {
	const arms = "l4.5 4.5m0 -4.5l-4.5 4.5"
	at := fmt.Sprintf("M%s %s%s", svg.Px(x-2.25), svg.Px(y-2.25), arms)
	return fmt.Sprintf(`<circle cx="%s" cy="%s" r="6" fill="#8c1420" stroke="%s" stroke-width="1.5"/><path d="%s" stroke="%s" stroke-width="1.8" fill="none"/>`, svg.Px(x), svg.Px(y), svg.Paper, at, svg.Paper)
}

func maxN(changes []change) (n int) {
	for _, c := range changes {
		n = max(n, c.N)
	}
	return n
}
