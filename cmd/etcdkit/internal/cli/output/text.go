package output

import (
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/etcdkit/etcdkit/internal/visible"
)

// Instant returns a time as text, in UTC; "-" if it is zero.
func Instant(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format("2006-01-02T15:04:05.999Z07:00")
}

// Printable returns a line, of which parts may be of others, without what steers a terminal.
func Printable(s string) string { return visible.Line(s) }

// Wrapped breaks a text between words into lines of so many columns, as far as its words permit; below 20, a text is
// one line. An empty text has none.
func Wrapped(text string, room int) (lines []string) {
	text = Printable(text)
	if room < 20 && text != "" {
		return []string{text}
	}
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > room {
			lines, line = append(lines, line), ""
		}
		line = strings.TrimPrefix(line+" "+word, " ")
	}
	if line != "" {
		lines = append(lines, line)
	}
	return lines
}

// Count returns a number with what it counts: "1 job", "2 jobs".
func Count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}

// Ago returns the time since t as text, to a second; "-" if t is zero.
func Ago(now, t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return Brief(now.Sub(t))
}

// Brief returns a duration to a second, "0s" if it is negative.
func Brief(d time.Duration) string { return max(0, d).Truncate(time.Second).String() }

// ShellWord returns a text as a shell takes it for one word, if it has no character that a terminal does not show.
func ShellWord(s string) string {
	plain := func(r rune) bool {
		return (unicode.IsLetter(r) || unicode.IsDigit(r)) && !visible.Hidden(r) || strings.ContainsRune("_-./:@%+,", r)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(Printable(s), "'", `'\''`) + "'"
}

// OrDash returns a text, or "-" if it is empty.
func OrDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// Ordinal returns 1st, 2nd, 3rd, 4th.
func Ordinal(n int) string {
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
