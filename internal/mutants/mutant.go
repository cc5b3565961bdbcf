package mutants

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/bluekeyes/go-gitdiff/gitdiff"
)

//go:embed patches/*.patch
var patches embed.FS

// Mutant is the product with one rule less.
type Mutant struct {
	Name     string
	ID       string
	Rule     string
	Killer   string        // the checker that must notice, in the chaos suite
	Nemeses  string        // those that bring it about, or "" for all
	Subjects string        // those that show it, or "" for all
	Seeds    int           // within so many runs
	For      time.Duration // of this length
	Package  string        // of the test that must notice instead
	Test     string

	files []*gitdiff.File
}

// All returns all mutants, in the order of their names.
func All() ([]Mutant, error) {
	names, err := fs.Glob(patches, "patches/*.patch")
	if err != nil {
		return nil, err
	}
	var all []Mutant
	for _, name := range names {
		b, err := patches.ReadFile(name)
		if err != nil {
			return nil, err
		}
		m, err := parse(strings.TrimSuffix(filepath.Base(name), ".patch"), b)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, m)
	}
	return all, nil
}

func parse(name string, b []byte) (Mutant, error) {
	m := Mutant{Name: name}
	files, preamble, err := gitdiff.Parse(bytes.NewReader(b))
	if err != nil {
		return m, err
	}
	m.files = files
	for line := range strings.Lines(preamble) {
		field, value, ok := strings.Cut(strings.TrimSpace(line), ": ")
		if !ok {
			continue
		}
		switch field {
		case "Rule":
			m.Rule = value
		case "Id":
			m.ID = value
		case "Killer":
			m.Killer = value
		case "Nemeses":
			m.Nemeses = value
		case "Subjects":
			m.Subjects = value
		case "Chaos":
			seeds, seconds, _ := strings.Cut(value, " ")
			m.Seeds, _ = strconv.Atoi(seeds)
			n, _ := strconv.Atoi(seconds)
			m.For = time.Duration(n) * time.Second
		case "Test":
			m.Package, m.Test, _ = strings.Cut(value, " ")
		default:
			return m, fmt.Errorf("unknown field %q", field)
		}
	}
	chaos := m.Seeds > 0 && m.For > 0 && m.Killer != ""
	if m.Rule == "" || m.ID == "" || len(m.files) == 0 || chaos == (m.Package != "" && m.Test != "") {
		return m, fmt.Errorf("the header is not complete: %+v", m)
	}
	return m, nil
}

// Overlay writes the mutated files of the tree at root below dir, and a file for
// go's -overlay, whose path it returns.
func (m Mutant) Overlay(root, dir string) (string, error) {
	replace := map[string]string{}
	for i, f := range m.files {
		path := filepath.Join(root, filepath.FromSlash(f.NewName))
		src, err := os.ReadFile(path)
		if err != nil {
			return "", err
		}
		var out bytes.Buffer
		if err := gitdiff.Apply(&out, bytes.NewReader(src), f); err != nil {
			return "", fmt.Errorf("%s: the patch no longer fits %s: %w", m.Name, f.NewName, err)
		}
		to := filepath.Join(dir, fmt.Sprintf("%s-%d.go", m.Name, i))
		if err := os.WriteFile(to, out.Bytes(), 0o600); err != nil {
			return "", err
		}
		if path, err = filepath.Abs(path); err != nil {
			return "", err
		}
		replace[path] = to
	}
	b, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(dir, m.Name+".json")
	return overlay, os.WriteFile(overlay, b, 0o600)
}
