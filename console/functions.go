package console

import (
	"fmt"
	"html/template"
	"strconv"
	"time"

	"github.com/etcdkit/etcdkit/internal/forms"
	"github.com/etcdkit/etcdkit/internal/visible"
)

// functions are those of the templates.
var functions = template.FuncMap{
	"text": text, "rfc": rfc, "now": time.Now, "clock": func(t time.Time) string { return t.UTC().Format(time.TimeOnly) },
	"age": age, "moment": moment, "rpc": isRPC, "count": count, "level": func(class string, used, most any, waits bool) template.HTML {
		return level(class, number(used), number(most), waits)
	}, "page": pageOf, "heat": heat,
}

// level shows how much of a limit is in use, as a bar beside its figures. most is 0 if there is nothing to compare with.
func level(class string, used, most int64, waits bool) template.HTML {
	if most <= 0 {
		return ""
	}
	class += map[bool]string{true: " full"}[used >= most || waits] + map[bool]string{true: " over"}[used > most]
	return template.HTML(fmt.Sprintf(`<svg class="level %s" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true"><rect width="%d" height="8"/></svg>`, class, min(100, used*100/most))) //nolint:gosec // there is no text of others in it
}

// heat shows what of a key's limit is in use, and behind it what waits: in a bar of three times the limit.
func heat(r keyRow) template.HTML {
	if r.Most <= 0 {
		return ""
	}
	part := func(n int64) int64 { return min(300, n*100/r.Most) }
	used := part(r.Used)
	return template.HTML(fmt.Sprintf(`<svg class="level" viewBox="0 0 300 8" preserveAspectRatio="none" aria-hidden="true"><rect width="%d" height="8"/><rect class="waits" x="%d" width="%d" height="8"/><rect class="limit" x="99" width="2" height="8"/></svg>`, used, used, part(r.Used+r.Weight)-used)) //nolint:gosec // there is no text of others in it
}

// number returns an integer of a template.
func number(n any) int64 {
	switch n := n.(type) {
	case int:
		return int64(n)
	case int64:
		return n
	}
	return 0
}

// isRPC reports whether an entry replays messages of RPC.
func isRPC(via string) bool {
	_, rpc := forms.RPCOf(via)
	return rpc || via == forms.GRPC
}

// text returns a text from etcd with what is not visible escaped.
func text(s string) string { return visible.Text(s) }

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
