package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The figures of one run reach the page, and the arithmetic is that of the figures.
func TestScalingPage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, page := filepath.Join(dir, "scaling.jsonl"), filepath.Join(dir, "page.md")
	lines := `{"machine":{"date":"2026-11-29","cpu":"a processor","cores":2,"etcd":"3.6.16","fsync_ms":0.2,"rounds":1,"each":"1s","note":"a test"}}
{"cell":"one member: idle sessions, 300 with a connection each","round":1,"sample":{"requests_per_s":90,"server_us_per_op":40}}
{"cell":"three members: idle sessions, 300 with a connection each","round":1,"sample":{"requests_per_s":90,"server_us_per_op":60}}
{"cell":"one member: new requests, 512 in flight","round":1,"sample":{"per_s":9000,"wait_p99_ms":120,"server_us_per_op":120}}
{"cell":"one more: a session with a connection of its own","round":1,"sample":{"server_kb_each":50,"client_kb_each":100,"watches_each":1}}
`
	for name, text := range map[string]string{file: lines, page: "above\n" + string(begin) + "former figures\n" + string(finish) + "below\n"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := run(t.Context(), []string{"scaling-page", file, page}, io.Discard, io.Discard); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"above\n", "\nbelow\n", "2 cores for etcd and clients", "; a test.",
		"| new requests, 512 in flight | 9000 | 120 | 120 | – | – | – |",
		"| a session with a connection of its own | 50 | 100 | 1 |",
		"| idle, TTL 15 s: requests | 3000 | 0.12 | 0.18 |", // 90 / 300 × 10,000; × 40 µs
		"| idle, TTL 60 s: requests | 750 | 0.03 | 0.045 |",
		"| a new request for each process and minute, by 512 at a time | 167 | 0.02 | – |",
		"10,000 sessions, if all were connected to it: 500 MB.",
	} {
		if !bytes.Contains(text, []byte(want)) {
			t.Errorf("the page has no %q:\n%s", want, text)
		}
	}
	if strings.Contains(string(text), "former figures") {
		t.Error("the former figures are there")
	}
}

// The rows that the page takes are those that are measured.
func TestScalingIsMeasured(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, page := filepath.Join(dir, "scaling.jsonl"), filepath.Join(dir, "page.md")
	var stderr bytes.Buffer
	if err := run(t.Context(), []string{"-rounds", "1", "-benchtime", "20ms", "-dir", dir, "-out", file, "-only", "^one member$", "scaling"}, io.Discard, &stderr); err != nil {
		t.Fatalf("%v\n%s", err, &stderr)
	}
	if err := os.WriteFile(page, append(append([]byte{}, begin...), finish...), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := run(t.Context(), []string{"scaling-page", file, page}, io.Discard, io.Discard); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	// On a busy machine no session may have been opened in so short a time: then there is a rate, 0, and no cost of each.
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(line, " | ")
		if strings.Contains(line, " sessions opened and closed") && cells[1] != "–" && strings.HasSuffix(line, "| – | – | – |\n") {
			return
		}
	}
	t.Errorf("the page has no sessions of one member alone:\n%s", text)
}
