package child

import (
	"bytes"
	"os"
	"testing"
)

type called struct{ n *int }

func (c called) MarshalJSON() ([]byte, error) { *c.n++; return []byte(`{"ok":true}`), nil }

// The line for programs goes to a file or a pipe, and not to a terminal, for which the null
// device stands here: it is a device that takes characters, too.
func TestWriteJSON(t *testing.T) {
	var out bytes.Buffer
	n := 0
	WriteJSON(&out, called{&n})
	if out.String() != "{\"ok\":true}\n" {
		t.Errorf("%q", &out)
	}
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	if !IsTerminal(null) {
		t.Skip("no such device here")
	}
	if WriteJSON(null, called{&n}); n != 1 {
		t.Error("a terminal gets the line")
	}
}
