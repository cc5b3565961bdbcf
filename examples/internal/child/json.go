package child

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
)

// WriteJSON writes v as one line of JSON for programs. It writes nothing to a terminal,
// where the line would push the tables out of sight. v has only what JSON can have.
func WriteJSON(out io.Writer, v any) {
	if f, ok := out.(*os.File); ok && IsTerminal(f) {
		return
	}
	line, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	fmt.Fprintf(out, "%s\n", line)
}
