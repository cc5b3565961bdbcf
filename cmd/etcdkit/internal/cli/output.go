package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"
)

// schema is the name and version of a form of JSON, which every result has as its first member. A
// version keeps its members and their meaning; it may get more.
type schema struct {
	Schema string `json:"schema"`
}

func schemaOf(thing string) schema { return schema{"etcdkit." + thing + "/v1"} }

// number is an integer of etcd's as text, since JSON's readers lose digits above 2^53.
type number int64

func (n number) MarshalJSON() ([]byte, error) {
	return strconv.AppendQuote(nil, strconv.FormatInt(int64(n), 10)), nil
}

// seconds is a duration.
type seconds time.Duration

func (s seconds) MarshalJSON() ([]byte, error) {
	return json.Marshal(time.Duration(s).Seconds())
}

// print writes a result: as JSON in one line, or as what table writes.
func (a *app) print(value any, table func(t *table)) error {
	if a.output == "json" {
		to := json.NewEncoder(a.std.Out)
		to.SetEscapeHTML(false) // it is read by people and jq
		return to.Encode(value)
	}
	t := newTable(a.std.Out)
	table(t)
	return t.flush()
}

// printChange is print after something was changed: an error says so.
func (a *app) printChange(value any, table func(t *table)) error {
	if err := a.print(value, table); err != nil {
		return fmt.Errorf("the change was made, but its result cannot be written: %w", err)
	}
	return nil
}

// table writes columns that are aligned.
type table struct{ w *tabwriter.Writer }

func newTable(out io.Writer) *table { return &table{tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)} }

// row writes one row. Texts are shown with control characters escaped.
func (t *table) row(cells ...any) {
	for i, cell := range cells {
		if i > 0 {
			fmt.Fprint(t.w, "\t")
		}
		fmt.Fprint(t.w, printable(fmt.Sprint(cell)))
	}
	fmt.Fprintln(t.w)
}

// line writes a text that is not aligned.
func (t *table) line(text string) {
	_ = t.w.Flush()
	fmt.Fprintln(t.w, printable(text))
	_ = t.w.Flush()
}

func (t *table) flush() error { return t.w.Flush() }

// printable returns a text without what steers a terminal or breaks a table.
func printable(s string) string {
	if strings.IndexFunc(s, func(r rune) bool { return !unicode.IsGraphic(r) || r == unicode.ReplacementChar }) < 0 {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if unicode.IsGraphic(r) {
			b.WriteRune(r)
		} else {
			q := strconv.QuoteRuneToASCII(r)
			b.WriteString(q[1 : len(q)-1])
		}
	}
	return b.String()
}

// columns returns how wide a terminal is; 0 if a stream is none.
func columns(stream any) int {
	f, ok := stream.(*os.File)
	if !ok {
		return 0
	}
	width, _, _ := term.GetSize(int(f.Fd()))
	return width
}

// wrapped breaks a text between words into lines of so many columns, as far as its words permit; below 20, a text is
// one line. An empty text has none.
func wrapped(text string, room int) (lines []string) {
	text = printable(text)
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

// count returns a number with what it counts: "1 job", "2 jobs".
func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}

// ago returns the time since t as text, to a second; "-" if t is zero.
func ago(now, t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return brief(now.Sub(t))
}

// brief returns a duration to a second, "0s" if it is negative.
func brief(d time.Duration) string { return max(0, d).Truncate(time.Second).String() }

// word returns a text as a shell takes it for one word, if it has no character that a terminal does not show.
func word(s string) string {
	plain := func(r rune) bool {
		return unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("_-./:@%+,", r)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(printable(s), "'", `'\''`) + "'"
}

// or returns a text, or "-" if it is empty.
func or(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
