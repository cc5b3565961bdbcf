package clitest

import (
	"bytes"
	"strings"
	"syscall"
)

// Writer keeps what is written.
type Writer []byte

func (w *Writer) Write(p []byte) (int, error) { *w = append(*w, p...); return len(p), nil }

// Signalled calls do once a text was written.
type Signalled struct {
	bytes.Buffer
	At string
	Do func()
}

func (s *Signalled) Write(p []byte) (int, error) {
	n, err := s.Buffer.Write(p)
	if strings.Contains(s.String(), s.At) {
		s.Do()
	}
	return n, err
}

// Full is an output that cannot be written, as a file on a full disk: a write of nothing succeeds.
type Full struct{}

func (Full) Write(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	return 0, syscall.ENOSPC
}

// Stage is a writer that calls a function for each text in turn, when it is first written after the text
// before.
type Stage struct {
	bytes.Buffer
	seen int
	Acts []Act
}

// Act is a text and the function that is called for it.
type Act struct {
	At string
	Do func()
}

// On returns an Act.
func On(text string, do func()) Act { return Act{text, do} }

func (s *Stage) Write(p []byte) (int, error) {
	n, err := s.Buffer.Write(p)
	for len(s.Acts) > 0 {
		at := strings.Index(s.String()[s.seen:], s.Acts[0].At)
		if at < 0 {
			break
		}
		s.seen += at + len(s.Acts[0].At)
		s.Acts[0].Do()
		s.Acts = s.Acts[1:]
	}
	return n, err
}
