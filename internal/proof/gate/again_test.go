package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// module writes a module of one package, which sees the test's folder, and makes it the
// working directory.
func module(t *testing.T, source string) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module example.org/m\n\ngo 1.26\n"), 0o600))
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "a"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a", "a_test.go"), []byte("package a\n\nimport (\n\t\"os\"\n\t\"testing\"\n)\n\nvar _ = os.Exit\n"+source), 0o600))
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "b"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "b", "b_test.go"), []byte("package b\n\nimport \"testing\"\n\nfunc TestGood(t *testing.T) { t.Log(\"chatter\") }\n"), 0o600))
	t.Chdir(dir)
}

// once is a test that fails the first time that it runs.
const once = `
func TestOnce(t *testing.T) {
	t.Run("sub", func(t *testing.T) {
		if _, err := os.Stat("ran"); err != nil {
			os.WriteFile("ran", nil, 0o600)
			t.Error("the first time")
		}
	})
}
`

func TestRerun(t *testing.T) {
	for name, tt := range map[string]struct {
		source string
		flaky  string // what its line begins with
		red    bool
		shows  []string
		hides  []string
	}{
		"green": {source: "func TestGood(t *testing.T) {}\n", shows: []string{"ok  \texample.org/m/a"}, hides: []string{"gate:", "=== RUN", "PASS\n"}},
		"flaky": {source: once, flaky: "FLAKY a.TestOnce/sub: ", shows: []string{"the first time", "FAIL\texample.org/m/a", "ok  \texample.org/m/a", "run once more"}},
		"red":   {source: "func TestBad(t *testing.T) { t.Error(\"each time\") }\n", red: true, shows: []string{"each time", "run once more"}},
		"flaky package": {
			source: "func TestMain(m *testing.M) {\n\tm.Run()\n\tif _, err := os.Stat(\"ran\"); err != nil {\n\t\tos.WriteFile(\"ran\", nil, 0o600)\n\t\tos.Exit(1)\n\t}\n}\nfunc TestGood(t *testing.T) {}\n",
			flaky:  "FLAKY example.org/m/a: ",
		},
		"flaky crash": {
			source: "func TestCrash(t *testing.T) {\n\tif _, err := os.Stat(\"ran\"); err != nil {\n\t\tos.WriteFile(\"ran\", nil, 0o600)\n\t\tpanic(\"the first time\")\n\t}\n}\n",
			flaky:  "FLAKY a.TestCrash: ", shows: []string{"panic: the first time"},
		},
		"flaky hang": {
			source: "func TestGood(t *testing.T) { println(\"chatter\") }\nfunc TestHangs(t *testing.T) {\n\tif _, err := os.Stat(\"ran\"); err != nil {\n\t\tos.WriteFile(\"ran\", nil, 0o600)\n\t\tprintln(\"goroutine 7 waits\")\n\t\tos.Exit(2)\n\t}\n}\n",
			flaky:  "FLAKY a.TestHangs: ", shows: []string{"goroutine 7 waits"},
		},
		"does not build": {source: "func TestBad(t *testing.T) { nothing() }\n", red: true, shows: []string{"undefined: nothing", "is not run again: it does not build"}},
		"veto":           {source: "func TestRule(t *testing.T) { t.Error(\"broken rule: not a matter of time\") }\n", red: true, shows: []string{"is not run again: what it has found is not a matter of time"}},
		"does not load":  {source: "import \"example.org/nothing\"\n", red: true, shows: []string{"is not run again: it does not build"}},
		"data race":      {source: "func TestRace(t *testing.T) { t.Error(\"WARNING: DATA RACE\") }\n", red: true, shows: []string{"is not run again: it has a data race"}},
	} {
		t.Run(name, func(t *testing.T) {
			module(t, tt.source)
			var out bytes.Buffer
			flaky, red, err := options{again: true}.run(t.Context(), &out, []string{"go", "test", "-vet=off", "-count=1", "./..."})
			require.NoError(t, err)
			if tt.red {
				require.Equal(t, []string{"example.org/m/a"}, red)
			} else {
				require.Empty(t, red)
			}
			if tt.flaky == "" {
				require.Empty(t, flaky)
			} else {
				require.Len(t, flaky, 1)
				require.True(t, strings.HasPrefix(flaky[0], tt.flaky), flaky[0])
				require.True(t, strings.HasSuffix(out.String(), flaky[0]+"\n"), "it is the last line")
			}
			for _, s := range append(tt.shows, "ok  \texample.org/m/b") {
				require.Contains(t, out.String(), s)
			}
			for _, s := range append(tt.hides, "chatter") {
				require.NotContains(t, out.String(), s)
			}
		})
	}
}

func TestNoTests(t *testing.T) {
	for name, command := range map[string][]string{
		"no package":  {"go", "test"},
		"not go test": {"go", "vet", "./..."},
	} {
		t.Run(name, func(t *testing.T) {
			module(t, "")
			var out bytes.Buffer
			_, _, err := options{again: true}.run(t.Context(), &out, command)
			require.Error(t, err)
		})
	}
}

// A go test that dies is no run of its packages, whatever has failed before.
func TestGoTestDies(t *testing.T) {
	dir := t.TempDir()
	event := func(action, pkg string) string { return fmt.Sprintf(`{"Action":%q,"Package":%q}`, action, pkg) + "\n" }
	for name, tt := range map[string]struct{ prints, says string }{
		"a package did not end":    {event("start", "m/a") + event("fail", "m/a") + event("start", "m/b"), "ended before m/b"},
		"a package did not begin":  {event("start", "m/a") + event("fail", "m/a"), "reported 1 packages, of 2 or more"},
		"nothing has begun":        {"", "reported 0 packages"},
		"both, and it fails alone": {event("start", "m/a") + event("pass", "m/a") + event("start", "m/b") + event("pass", "m/b"), "but no package did"},
	} {
		t.Run(name, func(t *testing.T) {
			tool := filepath.Join(dir, strings.ReplaceAll(name, " ", "-"))
			require.NoError(t, os.WriteFile(tool, []byte("#!/bin/sh\ncat <<'X'\n"+tt.prints+"X\nexit 1\n"), 0o700))
			_, _, err := options{again: true}.run(t.Context(), io.Discard, []string{tool, "test", "./a", "./b"})
			require.ErrorContains(t, err, tt.says)
		})
	}
}

// With a flag by which go test prints its output itself, a run is as green or red as without, and says why
// it shows no progress.
func TestPlainly(t *testing.T) {
	for name, tt := range map[string]struct {
		source string
		flags  []string
		red    bool
		wrong  bool // the command
		shows  string
	}{
		"green":          {source: "func TestGood(t *testing.T) {}\n", flags: []string{"-v"}, shows: "--- PASS: TestGood"},
		"red":            {source: "func TestBad(t *testing.T) { t.Error(\"each time\") }\n", flags: []string{"-v"}, red: true, shows: "each time"},
		"red, json":      {source: "func TestBad(t *testing.T) { t.Error(\"each time\") }\n", flags: []string{"-json"}, red: true, shows: `"Action":"fail"`},
		"red benchmark":  {source: "func BenchmarkBad(b *testing.B) { b.Error(\"each time\") }\n", flags: []string{"-bench=."}, red: true, shows: "each time"},
		"does not build": {source: "func TestBad(t *testing.T) { nothing() }\n", flags: []string{"-v"}, red: true},
		"wrong flag":     {flags: []string{"-v", "-p=x"}, wrong: true},
	} {
		t.Run(name, func(t *testing.T) {
			module(t, tt.source)
			var out, progress bytes.Buffer
			flaky, red, err := options{again: true, progress: &progress}.run(t.Context(), &out, append(append([]string{"go", "test", "-vet=off", "-count=1"}, tt.flags...), "./a"))
			require.Equal(t, tt.wrong, err != nil, err)
			require.Empty(t, flaky)
			require.Equal(t, tt.red, len(red) > 0)
			require.Contains(t, out.String(), tt.shows)
			require.Equal(t, "gate: with "+tt.flags[0]+" the output is that of go test: no progress is shown, and no package runs again\n", progress.String())
		})
	}
}

// A package that has failed in random order runs again in the same one.
func TestAgainInTheSameOrder(t *testing.T) {
	const note = "\tf, _ := os.OpenFile(\"order\", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)\n\tf.WriteString(t.Name())\n\tf.Close()\n}\n"
	source := "func TestBad(t *testing.T) {\n\tt.Error(\"each time\")\n" + note
	for c := range 12 {
		source += fmt.Sprintf("func Test%c(t *testing.T) {\n", 'C'+c) + note
	}
	module(t, source)
	flaky, red, err := options{again: true}.run(t.Context(), io.Discard, []string{"go", "test", "-vet=off", "-shuffle=on", "./a"})
	require.NoError(t, err)
	require.Empty(t, flaky)
	require.Len(t, red, 1)
	order, err := os.ReadFile("a/order")
	require.NoError(t, err)
	first, second := order[:len(order)/2], order[len(order)/2:]
	require.Equal(t, string(first), string(second))
}
