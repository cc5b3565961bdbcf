package child

import (
	"bytes"
	"os"
	"testing"
)

type called struct{ n *int }

func (c called) MarshalJSON() ([]byte, error) { *c.n++; return []byte(`{"ok":true}`), nil }

// WriteJSON writes to a file or a pipe, but not to a terminal. The test uses the null device,
// which is a character device too.
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
		t.Skip("the null device is no character device here")
	}
	if WriteJSON(null, called{&n}); n != 1 {
		t.Error("the line was written to a terminal")
	}
}
