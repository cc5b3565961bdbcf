package check

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/etcdkit/etcdkit/internal/proof/history"
)

// illustrator is a checker that can draw what it has found.
type illustrator interface {
	Picture(h *history.History, create func(name string) (io.WriteCloser, error)) error
}

// The files that Save writes, besides pictures.
const (
	HistoryFile = "history.jsonl" // everything, the tap included
	TapFile     = "tap.jsonl"     // only what the tap saw, in the order of revisions
	VerdictFile = "verdict.txt"
)

// Save writes the history, the tap, the verdict and the pictures of all checkers
// that draw some to a new folder below dir, and returns how to judge it again. It
// returns an error of the file system's.
func (r *Report) Save(dir string, h *history.History, checkers ...Checker) (replay string, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	if dir, err = os.MkdirTemp(dir, string(r.Verdict)+"-"); err != nil {
		return "", err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return "", err
	}
	file := filepath.Join(dir, HistoryFile)
	if err := h.WriteFile(file); err != nil {
		return "", err
	}
	tap := &history.History{}
	for _, c := range h.Commits() {
		tap.Events = append(tap.Events, c.Events...)
	}
	if err := tap.WriteFile(filepath.Join(dir, TapFile)); err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(dir, VerdictFile), []byte(r.String()), 0o600); err != nil {
		return "", err
	}
	for _, c := range checkers {
		if i, ok := c.(illustrator); ok {
			err := i.Picture(h, func(name string) (io.WriteCloser, error) { return os.Create(filepath.Join(dir, name)) })
			if err != nil {
				return "", fmt.Errorf("picture of %s: %w", c.Name(), err)
			}
		}
	}
	return "make chaos-replay FILE=" + file, nil
}
