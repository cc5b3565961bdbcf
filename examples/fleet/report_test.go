package main

import (
	"bytes"
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"
)

// The README shows what the program prints.
func TestReadmeTranscript(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`(?m)^\{"ok":.*\}$`).Find(readme)
	var r report
	if err := json.Unmarshal(line, &r); err != nil {
		t.Fatalf("the README has no line of JSON: %v", err)
	}
	var printed bytes.Buffer
	r.Write(&printed)
	if !strings.Contains(string(readme), "\n"+printed.String()+"```\n") {
		t.Errorf("the README does not show what is printed:\n%s", &printed)
	}
	c := config{seed: r.Seed, executions: r.Executions, limit: r.Limit, workers: r.Workers}
	if again := newReport(c, newPlan(c), newHistory(c), verdict{}, 0, 0); again.Ideal != r.Ideal {
		t.Errorf("the ideal of that run is %v s", again.Ideal)
	}
}
