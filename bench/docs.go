package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/etcdkit/etcdkit/bench/measure"
	"github.com/etcdkit/etcdkit/bench/plots"
	"github.com/etcdkit/etcdkit/bench/work"
)

// read reads a file of JSON lines.
func read(file string) (measure.Machine, *measure.Results, error) {
	f, err := os.Open(file)
	if err != nil {
		return measure.Machine{}, nil, err
	}
	defer func() { _ = f.Close() }()
	m, results, _, err := measure.Read(f)
	if err != nil {
		return m, nil, fmt.Errorf("%s: %w", file, err)
	}
	return m, results, nil
}

// drawn draws what a file has.
func drawn(file, dir string, stdout io.Writer) error {
	m, results, err := read(file)
	if err != nil {
		return err
	}
	files, err := plots.Draw(dir, m, results)
	for _, f := range files {
		fmt.Fprintln(stdout, f.Path)
	}
	return err
}

// The part of a page that documented writes is between these lines.
var begin, finish = []byte("<!-- measured: begin -->\n"), []byte("<!-- measured: end -->\n")

// documented draws the plots of dir/scale.jsonl into dir, and writes them and the tables of
// dir/table.jsonl into the page.
func documented(dir, page string) error {
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	before, rest, found := bytes.Cut(text, begin)
	_, after, ends := bytes.Cut(rest, finish)
	if !found || !ends {
		return fmt.Errorf("%s has no lines %q and %q", page, begin, finish)
	}
	swept, sweeps, err := read(filepath.Join(dir, "scale.jsonl"))
	if err != nil {
		return err
	}
	m, results, err := read(filepath.Join(dir, "table.jsonl"))
	if err != nil {
		return err
	}
	files, err := plots.Draw(dir, swept, sweeps)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	b.Write(before)
	b.Write(begin)
	for _, f := range files {
		path, err := filepath.Rel(filepath.Dir(page), f.Path)
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "![%s](%s)\n\n", f.Title, filepath.ToSlash(path))
	}
	lines, err := filepath.Rel(filepath.Dir(page), dir)
	if err != nil {
		return err
	}
	fmt.Fprintf(&b, "The lines that this was made from: [table.jsonl](%[1]s), [scale.jsonl](%[2]s).\n\n",
		filepath.ToSlash(filepath.Join(lines, "table.jsonl")), filepath.ToSlash(filepath.Join(lines, "scale.jsonl")))
	err = measure.Markdown(&b, m, results, judged(work.Table(work.Setup{}), results))
	fmt.Fprint(&b, "\n<details><summary>The sweeps of `make bench-scale`</summary>\n\n")
	err = errors.Join(err, measure.Markdown(&b, swept, sweeps, nil))
	fmt.Fprint(&b, "\n</details>\n")
	b.Write(finish)
	b.Write(after)
	return errors.Join(err, os.WriteFile(page, b.Bytes(), 0o644))
}
