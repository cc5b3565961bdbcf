package history

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
)

// History is what was recorded, in the order of time.
type History struct {
	Events []Event
}

// Merge returns one history of several: of the processes of one host, or of a
// recorder and its tap.
func Merge(all ...*History) *History {
	var events []Event
	for _, h := range all {
		events = append(events, h.Events...)
	}
	return &History{Events: slices.SortedStableFunc(slices.Values(events), byTime)}
}

// Write writes one event per line. It returns an error of w's.
func (h *History) Write(w io.Writer) error {
	buffered := bufio.NewWriter(w)
	enc := json.NewEncoder(buffered)
	enc.SetEscapeHTML(false)
	for _, e := range h.Events {
		if err := enc.Encode(e); err != nil {
			return err
		}
	}
	return buffered.Flush()
}

// Read reads what Write or Recorder.Stream has written. A last line that was cut
// off, by the death of its process, is left out. It returns an error of r's, and
// one that names the line if another line cannot be read.
func Read(r io.Reader) (*History, error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	var events []Event
	for n := 1; len(data) > 0; n++ {
		line, rest, whole := bytes.Cut(data, []byte("\n"))
		data = rest
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		var e Event
		if err := json.Unmarshal(line, &e); err != nil {
			if !whole {
				break
			}
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		events = append(events, e)
	}
	return &History{Events: slices.SortedStableFunc(slices.Values(events), byTime)}, nil
}

// WriteFile writes the history to a file. It returns an error of the file
// system's.
func (h *History) WriteFile(name string) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	if err := h.Write(f); err != nil {
		_ = f.Close()
		return err
	}
	return f.Close()
}

// ReadFiles reads and merges files. It returns an error that names the file.
func ReadFiles(names ...string) (*History, error) {
	var all []*History
	for _, name := range names {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		h, err := Read(f)
		_ = f.Close()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, h)
	}
	return Merge(all...), nil
}

// Tag names a call in the whole run, see Call.Tag.
func Tag(client string, op int64) string { return client + "#" + strconv.FormatInt(op, 10) }

// ParseTag returns the client and the op of a Call's Tag.
func ParseTag(s string) (client string, op int64, ok bool) {
	at := strings.LastIndexByte(s, '#')
	if at < 0 {
		return "", 0, false
	}
	op, err := strconv.ParseInt(s[at+1:], 10, 64)
	return s[:at], op, err == nil
}
