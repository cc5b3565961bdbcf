package console

import (
	"fmt"
	"html/template"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// functions are those of the templates.
var functions = template.FuncMap{
	"text": text, "rfc": rfc, "now": time.Now, "clock": func(t time.Time) string { return t.UTC().Format(time.TimeOnly) },
	"age": age, "moment": moment,
}

// text returns a text from etcd with what is not visible escaped: control characters, and those that
// change the direction of the text around them.
func text(s string) string {
	if strings.IndexFunc(s, hidden) < 0 {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if hidden(r) {
			q := strconv.QuoteRuneToASCII(r)
			b.WriteString(q[1 : len(q)-1])
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

func hidden(r rune) bool { return !unicode.IsGraphic(r) || r == unicode.ReplacementChar }

func rfc(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// age shows the time since t, which the script moves on.
func age(t time.Time) template.HTML {
	if t.IsZero() {
		return "–"
	}
	return template.HTML(fmt.Sprintf(`<time data-age datetime="%s">%s</time>`, rfc(t), lasted(time.Since(t)))) //nolint:gosec // there is no text of others in it
}

// lasted returns a duration to a second, as 4 m 10 s.
func lasted(d time.Duration) string {
	s := int(max(0, d) / time.Second)
	switch h, m := s/3600, s%3600/60; {
	case h > 0:
		return fmt.Sprintf("%d h %d m", h, m)
	case m > 0:
		return fmt.Sprintf("%d m %d s", m, s%60)
	}
	return fmt.Sprintf("%d s", s)
}

// moment shows a time of day, and the date if it is not today.
func moment(t time.Time) template.HTML {
	if t.IsZero() {
		return "–"
	}
	layout := time.TimeOnly
	if now := time.Now().UTC(); t.UTC().Format(time.DateOnly) != now.Format(time.DateOnly) {
		layout = time.DateTime
	}
	return template.HTML(fmt.Sprintf(`<time datetime="%s">%s UTC</time>`, rfc(t), t.UTC().Format(layout))) //nolint:gosec // there is no text of others in it
}

// ordinal returns 1st, 2nd, 3rd, 4th.
func ordinal(n int) string {
	suffix := "th"
	if n%100 < 11 || n%100 > 13 {
		switch n % 10 {
		case 1:
			suffix = "st"
		case 2:
			suffix = "nd"
		case 3:
			suffix = "rd"
		}
	}
	return strconv.Itoa(n) + suffix
}
