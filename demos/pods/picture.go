package main

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/etcdkit/etcdkit/demos/internal/downstream"
	"github.com/etcdkit/etcdkit/internal/examples/svg"
)

// picture has what the timeline shows. Times are those of hostclock.
type picture struct {
	limit    int
	from, to int64
	levels   []downstream.Level
	rows     []*row
	marks    []mark
}

// The measures of the picture, in pixels.
const (
	width      = 1200.0
	left       = 64.0
	right      = width - 28
	levelTop   = 190.0
	levelFoot  = 390.0
	answerTop  = 470.0
	answerFoot = 590.0
	height     = 640.0
)

// bin is the width of a bar of answers.
const bin = int64(500e6)

// svg draws how many calls ran at the same time, by the downstream service's own count, the bound of
// each row, and below them the answers of each half second.
func (p picture) svg() []byte {
	d := drawing{picture: p, top: p.limit + 2}
	for _, l := range p.levels {
		d.top = max(d.top, l.N+2)
	}
	bad := false
	for _, r := range p.rows {
		bad = bad || !r.Held
	}
	subtitle := "calls of the downstream service at the same time, by its own count; never more than the bound"
	if bad {
		subtitle = "A PROMISE WAS BROKEN"
	}
	d.Begin(width, height, fmt.Sprintf("Three instances, limit %d", p.limit), subtitle, bad)
	d.phases()
	d.axis()
	d.level()
	d.answers()
	return d.End()
}

// drawing is the state of svg.
type drawing struct {
	picture
	svg.Drawing
	top int // of the scale of levels
}

func (d *drawing) x(at int64) float64 {
	return left + float64(max(0, at-d.from))/float64(max(1, d.to-d.from))*(right-left)
}

func (d *drawing) y(n int) float64 { return levelFoot - float64(n)/float64(d.top)*(levelFoot-levelTop) }

// phases draws a band and a name for each phase, and a line for each mark.
func (d *drawing) phases() {
	for i, last := 0, ""; i < len(d.rows); i++ {
		r := d.rows[i]
		if r.phase == last {
			continue
		}
		last = r.phase
		x := svg.Px(d.x(r.from))
		d.Printf(`<path d="M%s %sV%s" stroke="%s" stroke-width="1.5"/>`, x, svg.Px(levelTop-8), svg.Px(answerFoot), svg.Grid)
		d.Printf(`<text transform="translate(%s %s) rotate(-24)" font-size="12.5">%s</text>`, x, svg.Px(levelTop-14), svg.Escape(r.phase))
	}
	for _, m := range d.marks {
		x := d.x(m.At)
		d.Printf(`<path d="M%s %sV%s" stroke="%s" stroke-dasharray="2 3"/>`, svg.Px(x), svg.Px(levelTop), svg.Px(levelFoot+6), svg.Faint)
		d.Printf(`<text transform="translate(%s %s) rotate(90)" font-size="11" fill="%s">%s</text>`, svg.Px(x+3), svg.Px(levelTop+2), svg.Faint, svg.Escape(m.What))
	}
}

// axis draws the time scale.
func (d *drawing) axis() {
	for s := int64(0); s*1e9 <= d.to-d.from; s += 10 {
		d.Printf(`<text x="%s" y="%s" text-anchor="middle" font-size="12" fill="%s">%d s</text>`, svg.Px(d.x(d.from+s*1e9)), svg.Px(answerFoot+20), svg.Faint, s)
	}
	for n := 0; n <= d.top; n += 10 {
		d.Printf(`<text x="%s" y="%s" text-anchor="end" font-size="12" fill="%s">%d</text>`, svg.Px(left-10), svg.Px(d.y(n)+4), svg.Faint, n)
	}
	d.Printf(`<path d="M%s %sH%sM%s %sH%s" stroke="%s"/>`, svg.Px(left), svg.Px(levelFoot), svg.Px(right), svg.Px(left), svg.Px(answerFoot), svg.Px(right), svg.Faint)
}

// level draws the calls at the same time, and the bounds.
func (d *drawing) level() {
	path := strings.Builder{}
	fmt.Fprintf(&path, "M%s %s", svg.Px(left), svg.Px(levelFoot))
	for _, l := range d.levels {
		fmt.Fprintf(&path, "H%sV%s", svg.Px(d.x(l.At)), svg.Px(d.y(l.N)))
	}
	fmt.Fprintf(&path, "H%s", svg.Px(right))
	d.Printf(`<path d="%sV%sH%sZ" fill="%s" opacity=".25"/>`, path.String(), svg.Px(levelFoot), svg.Px(left), svg.Level)
	d.Printf(`<path d="%s" fill="none" stroke="%s" stroke-width="1.25"/>`, path.String(), svg.Level)
	for i, r := range d.rows {
		if r.Bound == 0 {
			continue
		}
		to := d.to
		if i+1 < len(d.rows) {
			to = d.rows[i+1].from
		}
		d.Printf(`<path d="M%s %sH%s" stroke="%s" stroke-width="1.75" stroke-dasharray="6 4"/>`, svg.Px(d.x(r.from)), svg.Px(d.y(r.Bound)-1), svg.Px(d.x(to)), svg.Bound)
	}
}

// kinds of answers, from the bottom of a bar to its top.
var kinds = []struct {
	name   string
	colour string
	is     func(status int, without bool) bool
}{
	{"200", svg.Good, func(status int, without bool) bool { return status == http.StatusOK && !without }},
	{"200 without a permit", svg.Late, func(status int, without bool) bool { return status == http.StatusOK && without }},
	{"429", "#4f63c4", func(status int, _ bool) bool { return status == http.StatusTooManyRequests }},
	{"503", svg.Bad, func(status int, _ bool) bool { return status == http.StatusServiceUnavailable }},
}

// mostAnswers is where bars are cut: clients repeat a refused request soon.
const mostAnswers = 60

// answers draws the answers of each half second.
func (d *drawing) answers() {
	x := left
	d.Printf(`<text x="24" y="%s" font-size="14" font-weight="600">Answers in half a second, cut at %d</text>`, svg.Px(answerTop-34), mostAnswers)
	for _, k := range kinds {
		d.Printf(`<rect x="%s" y="%s" width="14" height="11" rx="2" fill="%s"/><text x="%s" y="%s" font-size="12.5">%s</text>`, svg.Px(x), svg.Px(answerTop-24), k.colour, svg.Px(x+20), svg.Px(answerTop-14), k.name)
		x += 44 + 7*float64(len(k.name))
	}
	bins := make([][]int, (d.to-d.from)/bin+1)
	for _, r := range d.rows {
		for _, a := range r.answers {
			i := (a.At - d.from) / bin
			if i < 0 || i >= int64(len(bins)) {
				continue
			}
			if bins[i] == nil {
				bins[i] = make([]int, len(kinds))
			}
			for n, k := range kinds {
				if k.is(a.Status, a.Without) {
					bins[i][n]++
				}
			}
		}
	}
	for n, k := range kinds {
		d.Printf(`<g fill="%s">`, k.colour)
		for i, counts := range bins {
			if counts == nil || counts[n] == 0 {
				continue
			}
			below := 0
			for _, c := range counts[:n] {
				below += c
			}
			scale := (answerFoot - answerTop) / mostAnswers
			low, high := min(below, mostAnswers), min(below+counts[n], mostAnswers)
			from, to := d.x(d.from+int64(i)*bin), d.x(d.from+int64(i+1)*bin)
			if high > low {
				d.Printf(`<rect x="%s" y="%s" width="%s" height="%s"/>`, svg.Px(from), svg.Px(answerFoot-float64(high)*scale), svg.Px(max(0.5, to-from-0.8)), svg.Px(float64(high-low)*scale))
			}
		}
		d.Printf(`</g>`)
	}
}
