package output

import (
	"fmt"
	"io"
	"time"
)

// Progress shows on a terminal how far long work has come, in one line that is erased at its end. On
// anything else it shows nothing.
type Progress struct {
	out   io.Writer // nil without a terminal
	shown time.Time // or since when it could be
	drawn bool
}

// NewProgress returns progress on a stream. What is quick shows nothing.
func NewProgress(on io.Writer) *Progress {
	if !Terminal(on) {
		return &Progress{}
	}
	terminal, _ := File(on)
	return &Progress{out: terminal, shown: time.Now()}
}

// Show is Set without a bound of its frequency.
func (p *Progress) Show(format string, args ...any) {
	p.shown = time.Time{}
	p.Set(format, args...)
}

// Set replaces the line, at most ten times a second.
func (p *Progress) Set(format string, args ...any) {
	if p.out == nil || time.Since(p.shown) < 100*time.Millisecond {
		return
	}
	p.shown, p.drawn = time.Now(), true
	fmt.Fprint(p.out, "\r\x1b[K"+Printable(fmt.Sprintf(format, args...)))
}

// End erases the line.
func (p *Progress) End() {
	if p.drawn {
		fmt.Fprint(p.out, "\r\x1b[K")
		p.drawn = false
	}
}
