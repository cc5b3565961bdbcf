package child

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
)

// WriteJSON writes v as one line of JSON for other programs. To a terminal it writes nothing.
// It panics if v cannot be encoded.
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
