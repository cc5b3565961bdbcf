package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

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

// shown prints the tables of a file.
func shown(file string, stdout io.Writer) error {
	m, results, err := read(file)
	if err != nil {
		return err
	}
	var ratios []measure.Verdict // of what the file has
	for _, v := range judged(work.Table(work.Setup{}), results) {
		if len(v.Ratios) > 0 {
			ratios = append(ratios, v)
		}
	}
	return measure.Table(stdout, m, results, ratios)
}

// paired compares two builds by files that were measured in turn: former, latter, former, latter.
func paired(files []string, stdout io.Writer) error {
	var pairs []measure.Pair
	for two := range slices.Chunk(files, 2) {
		_, former, err := read(two[0])
		if err != nil {
			return err
		}
		_, latter, err := read(two[1])
		if err != nil {
			return err
		}
		pairs = append(pairs, measure.Pair{Former: former, Latter: latter})
	}
	return measure.Pairs(stdout, pairs)
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

// The part of a page that rewrite writes is between these lines.
var begin, finish = []byte("<!-- measured: begin -->\n"), []byte("<!-- measured: end -->\n")

// documented draws the plots of dir/scale.jsonl into dir, writes them and the tables of dir/table.jsonl
// into the page, and the tables for users into the page for those, if there is one.
func documented(dir, page, users string) error {
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
	lines, err := filepath.Rel(filepath.Dir(page), dir)
	if err != nil {
		return err
	}
	err = rewrite(page, func(b *bytes.Buffer) error {
		for _, f := range files {
			fmt.Fprintf(b, "![%s](%s)\n\n", f.Title, filepath.ToSlash(filepath.Join(lines, filepath.Base(f.Path))))
		}
		fmt.Fprintf(b, "The lines that this was made from: [table.jsonl](%[1]s), [scale.jsonl](%[2]s).\n\n",
			filepath.ToSlash(filepath.Join(lines, "table.jsonl")), filepath.ToSlash(filepath.Join(lines, "scale.jsonl")))
		err := measure.Markdown(b, m, results, judged(work.Table(work.Setup{}), results))
		fmt.Fprint(b, "\n<details><summary>Sweeps of `make bench-scale` that no plot shows</summary>\n\n")
		err = errors.Join(err, measure.Markdown(b, swept, sweeps.Only(work.Undrawn...), nil))
		fmt.Fprint(b, "\n</details>\n")
		return err
	})
	if err != nil || users == "" {
		return err
	}
	return rewrite(users, func(b *bytes.Buffer) error { summarize(b, m, results); return nil })
}

// rewrite writes what is between begin and finish on a page anew.
func rewrite(page string, measured func(*bytes.Buffer) error) error {
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	before, rest, found := bytes.Cut(text, begin)
	_, after, ends := bytes.Cut(rest, finish)
	if !found || !ends {
		return fmt.Errorf("%s has no lines %q and %q", page, begin, finish)
	}
	var b bytes.Buffer
	b.Write(before)
	b.Write(begin)
	if err := measured(&b); err != nil {
		return err
	}
	b.Write(finish)
	b.Write(after)
	return os.WriteFile(page, b.Bytes(), 0o644)
}
