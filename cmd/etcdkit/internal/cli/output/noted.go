package output

import (
	"cmp"
	"io"
	"os"

	"golang.org/x/term"
)

// Noted is a writer that keeps its first failure, for callers that drop it.
type Noted struct {
	io.Writer
	Failed error
}

// Write writes to the writer below. It returns an error of that, and keeps it.
func (n *Noted) Write(p []byte) (int, error) {
	written, err := n.Writer.Write(p)
	n.Failed = cmp.Or(n.Failed, err)
	return written, err
}

// File returns the file that a stream is, also below a Noted or Lines.
func File(stream any) (*os.File, bool) {
	switch s := stream.(type) {
	case *Noted:
		stream = s.Writer
	case Lines:
		stream = s.Writer
	}
	f, ok := stream.(*os.File)
	return f, ok
}

// Terminal reports whether a stream is a terminal.
func Terminal(stream any) bool {
	f, ok := File(stream)
	return ok && term.IsTerminal(int(f.Fd()))
}

// Size returns the columns and lines of a terminal; 0 if a stream is none.
func Size(stream any) (width, height int) {
	if f, ok := File(stream); ok {
		width, height, _ = term.GetSize(int(f.Fd()))
	}
	return width, height
}
