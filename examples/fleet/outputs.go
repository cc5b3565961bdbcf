package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
)

// outputs are the paths of the files to write, or empty.
type outputs struct{ timeline, history string }

// check returns an error if a file cannot be written. It is called before the run, so that a
// wrong path does not waste a run.
func (o outputs) check() error {
	for _, path := range []string{o.timeline, o.history} {
		if path == "" {
			continue
		}
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o644)
		if err != nil {
			return err
		}
		_ = f.Close()
	}
	return nil
}

func (o outputs) write(p picture, h *history) error {
	var drawn, written error
	if o.timeline != "" {
		drawn = os.WriteFile(o.timeline, p.svg(), 0o644)
	}
	if o.history != "" {
		var b bytes.Buffer
		enc := json.NewEncoder(&b)
		for _, e := range h.events {
			if err := enc.Encode(e); err != nil {
				return err
			}
		}
		written = os.WriteFile(o.history, b.Bytes(), 0o644)
	}
	return errors.Join(drawn, written)
}
