package output

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/etcdkit/etcdkit/internal/jsonlist"
	"github.com/etcdkit/etcdkit/internal/visible"
)

// Form is the name and version of a form of JSON, which every result has as its first member. A
// version keeps its members and their meaning; it may get more.
type Form struct {
	Schema string `json:"schema"`
}

// FormOf returns the present form of a thing.
func FormOf(thing string) Form { return Form{"etcdkit." + thing + "/v1"} }

// Number is an integer of etcd's as text, since JSON's readers lose digits above 2^53.
type Number int64

// MarshalJSON returns the number as a string. The error is always nil.
func (n Number) MarshalJSON() ([]byte, error) {
	return strconv.AppendQuote(nil, strconv.FormatInt(int64(n), 10)), nil
}

// Seconds is a duration.
type Seconds time.Duration

// MarshalJSON returns the duration in seconds. The error is always nil.
func (s Seconds) MarshalJSON() ([]byte, error) {
	return json.Marshal(time.Duration(s).Seconds())
}

// JSON writes a value in one line, with [] and {} for lists and maps that are nil, and with what is not visible escaped. It
// returns an error of the writer, and for a value that JSON does not have.
func JSON(to io.Writer, value any) error {
	var line bytes.Buffer
	e := json.NewEncoder(&line)
	e.SetEscapeHTML(false) // it is read by people and jq
	if err := e.Encode(jsonlist.Of(value)); err != nil {
		return err
	}
	shown := make([]byte, 0, line.Len())
	for _, r := range line.String() {
		if r == '\n' || !visible.Hidden(r) { // the line end is the encoder's: one of a string is escaped already
			shown = utf8.AppendRune(shown, r)
			continue
		}
		for _, unit := range utf16.Encode([]rune{r}) {
			shown = fmt.Appendf(shown, `\u%04x`, unit)
		}
	}
	_, err := to.Write(shown)
	return err
}

// Table writes columns that are aligned.
type Table struct {
	w      *tabwriter.Writer
	failed error // the first one of a write
}

// NewTable returns a table that is written to out.
func NewTable(out io.Writer) *Table { return &Table{w: tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)} }

// Row writes one row. A text that is in it has no other row or cell, whatever it is.
func (t *Table) Row(cells ...any) {
	for i, cell := range cells {
		if i > 0 {
			t.print("\t")
		}
		t.print(visible.Text(fmt.Sprint(cell)))
	}
	t.print("\n")
}

// Line writes a text that is not aligned.
func (t *Table) Line(text string) {
	_ = t.Flush()
	t.print(Printable(text) + "\n")
	_ = t.Flush()
}

func (t *Table) print(text string) {
	_, err := io.WriteString(t.w, text)
	t.failed = cmp.Or(t.failed, err)
}

// Flush writes what is left, and returns an error, the first of all writes of the table: a tabwriter forgets it
// when its lines are flushed one by one.
func (t *Table) Flush() error {
	t.failed = cmp.Or(t.failed, t.w.Flush())
	return t.failed
}
