package console

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// chart is a small picture of the last hour.
type chart struct {
	Label       string
	Now, Most   string // the value that the page shows, "–" if it is not known, and the highest one
	Area, Line  string // paths of SVG, in a box of chartWidth and chartHeight
	Limit       string // path of a limit, or ""
	From        time.Time
	Over        string    // of which time Now is the mean, or ""
	Until       time.Time // as of when Now is, if etcd does not confirm it; zero: now
	Description string
}

// The box of a chart.
const (
	chartWidth  = 240.0
	chartHeight = 40.0
)

// chartsOf returns the charts of a queue. waiting is what its waiters are called.
func chartsOf(p past, st quality, every time.Duration, waiting string) []chart {
	p = p.cropped()
	plain := func(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }
	seconds := func(v float64) string { return lasted(time.Duration(v) * time.Second) }
	perSecond := func(v float64) string { return strconv.FormatFloat(v, 'g', 3, 64) + "/s" }
	all := []chart{
		chartOf("Used", p.used, p.limit, plain), chartOf(waiting, p.waiting, nil, plain),
		chartOf("Oldest wait", p.wait, nil, seconds), chartOf("Permits ended", p.ended, nil, perSecond),
	}
	all[len(all)-1].Over = "last " + lasted(every)
	for i := range all {
		all[i].From = st.asOf.Truncate(every).Add(every * time.Duration(1-len(p.used)))
		when := "now"
		if st.unconfirmed != "" {
			all[i].Until = st.asOf
			when = "at " + st.asOf.UTC().Format(time.TimeOnly) + " UTC"
		}
		all[i].Description = fmt.Sprintf("%s in the last hour: %s %s, %s the highest", all[i].Label, all[i].Now, when, all[i].Most)
	}
	return all
}

// fewest is how many moments a chart shows at least.
const fewest = 20

// cropped returns the values since the first one that is known.
func (p past) cropped() past {
	first := max(0, len(p.used)-fewest)
	for i, v := range p.used[:first] {
		if !math.IsNaN(v) {
			first = i
			break
		}
	}
	return past{p.used[first:], p.waiting[first:], p.limit[first:], p.wait[first:], p.ended[first:]}
}

// trendSteps is how many steps a trend has at most: a list has a hundred of them.
const trendSteps = 48

// trends returns rows with their trends, each of which ends with the row's own state. The rows are shared by all viewers, and
// stay as they are.
func (h *history) trends(rows []queueRow, asOf time.Time) []queueRow {
	out := slices.Clone(rows)
	for i, r := range out {
		if p, ok := h.of(r.Name, asOf); ok && !r.Election && !r.Rate {
			out[i].Trend = trendOf(p.with(float64(r.Used), float64(r.Waiting), math.NaN(), math.NaN()))
		}
	}
	return out
}

// trendOf returns the path of the permits and waiters of an hour, the highest ones of each step.
func trendOf(p past) string {
	of := len(p.used) / trendSteps
	steps, top := make([]float64, 0, trendSteps), 0.0
	for i := 0; i+of <= len(p.used); i += of {
		most := math.NaN()
		for j := i; j < i+of; j++ {
			if v := p.used[j] + p.waiting[j]; math.IsNaN(most) || v > most {
				most = v
			}
		}
		if !math.IsNaN(most) {
			top = max(top, most)
		}
		steps = append(steps, most)
	}
	_, area := drawn(steps, top)
	return area
}

// chartOf draws values, and a limit if there is one.
func chartOf(label string, values, limit []float64, show func(float64) string) chart {
	most, now := 0.0, values[len(values)-1]
	for _, v := range values {
		if !math.IsNaN(v) {
			most = max(most, v)
		}
	}
	top := most
	for _, v := range limit {
		if !math.IsNaN(v) && v <= 3*max(1, most) { // a limit that is far away would flatten the rest
			top = max(top, v)
		}
	}
	c := chart{Label: label, Now: "–", Most: show(most)}
	if !math.IsNaN(now) {
		c.Now = show(now)
	}
	c.Line, c.Area = drawn(values, top)
	for _, v := range limit {
		if v > 0 && v <= top {
			c.Limit, _ = drawn(limit, top)
			break
		}
	}
	return c
}

// drawn returns values as the path of a line with steps, and as that of the area below it. Where a value is not known
// there is a gap.
func drawn(values []float64, top float64) (line, area string) {
	var l, a strings.Builder
	step := chartWidth / float64(len(values))
	at := func(v float64) string { return coordinate(chartHeight - 1 - v/max(top, 1e-9)*(chartHeight-3)) }
	open := false
	for i, v := range values {
		x, next := coordinate(float64(i)*step), coordinate(float64(i+1)*step)
		switch {
		case math.IsNaN(v):
			if open {
				a.WriteString("V40Z")
			}
			open = false
			continue
		case !open:
			open = true
			fmt.Fprintf(&l, "M%s %s", x, at(v))
			fmt.Fprintf(&a, "M%s 40V%s", x, at(v))
		case v != values[i-1]:
			fmt.Fprintf(&l, "V%s", at(v))
			fmt.Fprintf(&a, "V%s", at(v))
		}
		if last := i+1 == len(values); last || math.IsNaN(values[i+1]) || values[i+1] != v {
			l.WriteString("H" + next)
			a.WriteString("H" + next)
		}
	}
	if open {
		a.WriteString("V40Z")
	}
	return l.String(), a.String()
}

// coordinate returns a number with one digit behind the point at most.
func coordinate(v float64) string {
	return strconv.FormatFloat(math.Round(v*10)/10, 'f', -1, 64)
}
