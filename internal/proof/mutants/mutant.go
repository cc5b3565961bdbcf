package mutants

import (
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

//go:embed edits/*.txt
var texts embed.FS

// Mutant is the product with one rule less.
type Mutant struct {
	Name      string
	ID        string
	Rule      string
	Killer    string        // the checker that must notice, in the chaos suite
	Nemeses   string        // those that cause it, or "" for all
	Workloads string        // those that show it, or "" for all
	Seeds     int           // within so many runs
	For       time.Duration // of this length
	Package   string        // of the test that must notice instead
	Test      string
	Gate      [2]string // package and test that notice in the gate what the suite's short form does not

	edits []edit
}

// All returns all mutants, in the order of their names.
func All() ([]Mutant, error) {
	names, err := fs.Glob(texts, "edits/*.txt")
	if err != nil {
		return nil, err
	}
	var all []Mutant
	for _, name := range names {
		b, err := texts.ReadFile(name)
		if err != nil {
			return nil, err
		}
		m, err := parse(strings.TrimSuffix(path.Base(name), ".txt"), string(b))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, m)
	}
	return all, nil
}

// field is one field of a file of edits.
type field struct{ name, value string }

// fields splits a file: a field is a name, a colon and a value, which may continue, or begin,
// on further lines that are indented.
func fields(text string) ([]field, error) {
	var all []field
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, " \t\r\n")
		name, value, named := strings.Cut(line, ":")
		switch {
		case line == "":
		case strings.HasPrefix(line, "\t") && len(all) > 0:
			f := &all[len(all)-1]
			f.value = strings.TrimPrefix(f.value+"\n"+line[1:], "\n")
		case named && !strings.ContainsAny(name, " \t"):
			all = append(all, field{name, strings.TrimSpace(value)})
		default:
			return nil, fmt.Errorf("neither a field nor indented: %q", line)
		}
	}
	return all, nil
}

func parse(name, text string) (Mutant, error) {
	m := Mutant{Name: name}
	all, err := fields(text)
	if err != nil {
		return m, err
	}
	seen := map[string]bool{}
	var in edit      // the declaration that the next Find is for
	var put, ok bool // whether the latest Find has its Put
	for _, f := range all {
		inEdit := f.name == "In" || f.name == "Find" || f.name == "Put"
		if seen[f.name] && !inEdit {
			return m, fmt.Errorf("two fields %q", f.name)
		}
		seen[f.name] = true
		if inEdit && (f.name == "Put") != (len(m.edits) > 0 && !put) {
			return m, fmt.Errorf("%s: %s: each Find has one Put after it", f.name, f.value)
		}
		switch f.name {
		case "Rule":
			m.Rule = f.value
		case "Id":
			m.ID = f.value
		case "Killer":
			m.Killer = f.value
		case "Nemeses":
			m.Nemeses = f.value
		case "Workloads":
			m.Workloads = f.value
		case "Chaos":
			seeds, seconds, _ := strings.Cut(f.value, " ")
			m.Seeds, _ = strconv.Atoi(seeds)
			n, _ := strconv.Atoi(seconds)
			m.For = time.Duration(n) * time.Second
		case "Test":
			m.Package, m.Test, _ = strings.Cut(f.value, " ")
		case "Gate":
			m.Gate[0], m.Gate[1], _ = strings.Cut(f.value, " ")
		case "In":
			if in.pkg, in.decl, ok = strings.Cut(f.value, ", "); !ok {
				return m, fmt.Errorf("value of In: %s: it is no package and declaration, separated by a comma", f.value)
			}
		case "Find":
			if in.decl == "" || f.value == "" {
				return m, fmt.Errorf("value of Find: %q: it is empty, or has no In before it", f.value)
			}
			in.find, put = f.value, false
			m.edits = append(m.edits, in)
		case "Put":
			m.edits[len(m.edits)-1].put, put = f.value, true
		default:
			return m, fmt.Errorf("unknown field %q", f.name)
		}
	}
	chaos := m.Seeds > 0 && m.For > 0 && m.Killer != ""
	if m.Rule == "" || m.ID == "" || !put || chaos == (m.Package != "" && m.Test != "") || seen["Gate"] && (!chaos || m.Gate[1] == "") {
		return m, fmt.Errorf("the file is not complete: %+v", m)
	}
	return m, nil
}

// Overlay writes the mutated files of the tree at root below dir, and a file for
// go's -overlay, whose path it returns.
func (m Mutant) Overlay(root, dir string) (string, error) {
	mutated, err := m.apply(root)
	if err != nil {
		return "", fmt.Errorf("%s: %w", m.Name, err)
	}
	replace := map[string]string{}
	for path, src := range mutated {
		to := filepath.Join(dir, fmt.Sprintf("%s-%d.go", m.Name, len(replace)))
		if err := os.WriteFile(to, src, 0o600); err != nil {
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
