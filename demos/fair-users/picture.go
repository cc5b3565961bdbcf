package main

import (
	"fmt"

	"github.com/etcdkit/etcdkit/internal/examples/svg"
)

// The measures of the picture, in pixels.
const (
	width    = 1000.0
	panelTop = 116.0
	rowStep  = 18.0
	nameLeft = 96.0
	panel    = 430.0
	longest  = 330.0
)

// svg draws the waits of each user in the two ways.
func (o *outcome) svg() []byte {
	var d svg.Drawing
	rows := float64(o.Users + 1)
	subtitle := fmt.Sprintf("95th percentile of the waits for a permit; the greedy user sends %d requests at a time, the total is %d", o.AtOnce, o.Total)
	d.Begin(width, panelTop+rows*rowStep+30, fmt.Sprintf("%d users and a greedy one", o.Users), subtitle, !o.OK)
	most := 0.001
	for _, w := range o.ways() {
		for _, u := range w.all() {
			most = max(most, u.P95)
		}
	}
	for i, w := range o.ways() {
		left := nameLeft + float64(i)*panel
		d.Printf(`<text x="%s" y="%s" font-size="14" font-weight="600">%s</text>`, svg.Px(left), svg.Px(panelTop-12), svg.Escape(w.name))
		for n, u := range w.all() {
			y := panelTop + float64(n)*rowStep
			colour := svg.Level
			if u.User == greedy {
				colour = svg.Late
			}
			if i == 0 {
				d.Printf(`<text x="%s" y="%s" text-anchor="end" font-size="12" fill="%s">%s</text>`, svg.Px(nameLeft-10), svg.Px(y+11), svg.Faint, svg.Escape(u.User))
			}
			long := max(1, u.P95/most*longest)
			d.Printf(`<rect x="%s" y="%s" width="%s" height="%s" rx="2" fill="%s"/>`, svg.Px(left), svg.Px(y), svg.Px(long), svg.Px(rowStep-5), colour)
			d.Printf(`<text x="%s" y="%s" font-size="11.5" fill="%s">%.3f s</text>`, svg.Px(left+long+6), svg.Px(y+11), svg.Faint, u.P95)
		}
	}
	return d.End()
}
