// Package svg has what the pictures of the demos share: a buffer, colours and formats. A picture
// depends on its data alone, so that the same run is drawn in the same way.
package svg

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"strconv"
	"strings"
)

// The colours of all pictures.
const (
	Paper = "#ffffff"
	Ink   = "#1b2733"
	Faint = "#66727f"
	Grid  = "#e6eaee"
	Bound = "#c62f3b" // a limit, and whatever breaks it
	Level = "#2f6f9f" // how many run at the same time
	Good  = "#57a889"
	Late  = "#f0a63a"
	Bad   = "#d8545f"
)

// Drawing is a picture in the making.
type Drawing struct{ out bytes.Buffer }

// Printf adds a line.
func (d *Drawing) Printf(format string, args ...any) {
	fmt.Fprintf(&d.out, format, args...)
	d.out.WriteByte('\n')
}

// Begin begins the picture, with a heading. The subtitle of a bad one is in the colour of Bound.
func (d *Drawing) Begin(width, height float64, title, subtitle string, bad bool) {
	d.Printf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %s %s" width="%s" height="%s" font-family="system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif" font-size="13" fill="%s">`,
		Px(width), Px(height), Px(width), Px(height), Ink)
	d.Printf(`<title>%s, %s</title>`, Escape(title), Escape(subtitle))
	d.Printf(`<rect width="%s" height="%s" rx="8" fill="%s"/>`, Px(width), Px(height), Paper)
	colour := Faint
	if bad {
		colour = Bound
	}
	d.Printf(`<text x="24" y="40" font-size="22" font-weight="600">%s</text>`, Escape(title))
	d.Printf(`<text x="24" y="64" font-size="14" fill="%s">%s</text>`, colour, Escape(subtitle))
}

// End ends the picture and returns it.
func (d *Drawing) End() []byte {
	d.Printf(`</svg>`)
	return d.out.Bytes()
}

// Px formats a coordinate with at most one decimal.
func Px(v float64) string {
	return strings.TrimSuffix(strconv.FormatFloat(v, 'f', 1, 64), ".0")
}

// Escape returns a text as XML has it.
func Escape(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a Builder never fails
	return b.String()
}
