package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// module writes a module of one package, which sees the test's folder, and of one that is green, and makes it the
// working directory.
func module(t *testing.T, source string) {
	packages(t, map[string]string{"a": source, "b": "func TestGood(t *testing.T) { t.Log(\"chatter\") }\n"})
}

// packages writes a module with tests, and makes it the working directory.
func packages(t *testing.T, sources map[string]string) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module example.org/m\n\ngo 1.26\n"), 0o600))
	for name, source := range sources {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, name), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name, "a_test.go"), []byte("package a\n\nimport (\n\t\"os\"\n\t\"testing\"\n)\n\nvar _ = os.Exit\n"+source), 0o600))
	}
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

// first begins a test that is another one in its second run.
const first = "\tif _, err := os.Stat(\"ran\"); err != nil {\n\t\tos.WriteFile(\"ran\", nil, 0o600)\n"

// The cases are packages of one run: each go test of its own would link them all.
func TestRerun(t *testing.T) {
	const good = "func TestGood(t *testing.T) { println(\"chatter\") }\n"
	cases := map[string]struct {
		source string
		flaky  string // the test that is
		red    string // what its line says
		shows  []string
	}{
		"green":        {source: "func TestGood(t *testing.T) { t.Log(\"chatter\") }\n", shows: []string{"ok  \texample.org/m/green"}},
		"flaky":        {source: once, flaky: "flaky.TestOnce/sub", shows: []string{"the first time", "FAIL\texample.org/m/flaky", "ok  \texample.org/m/flaky", "gate: example.org/m/flaky has failed and is run once more, for 2m0s at most"}},
		"red":          {source: "func TestBad(t *testing.T) { t.Error(\"each time\") }\n", red: "red.TestBad: failed in its second run", shows: []string{"each time", "m/red has failed and is run once more"}},
		"flakypackage": {source: "func TestMain(m *testing.M) {\n\tm.Run()\n" + first + "\t\tos.Exit(1)\n\t}\n}\nfunc TestGood(t *testing.T) {}\n", flaky: "example.org/m/flakypackage"},
		"crash":        {source: "func TestCrash(t *testing.T) {\n" + first + "\t\tpanic(\"by chance\")\n\t}\n}\n", flaky: "crash.TestCrash", shows: []string{"panic: by chance"}},
		"exits":        {source: good + "func TestExits(t *testing.T) {\n" + first + "\t\tprintln(\"goroutine 7 waits\")\n\t\tos.Exit(2)\n\t}\n}\n", flaky: "exits.TestExits", shows: []string{"goroutine 7 waits"}},
		"build":        {source: "func TestBad(t *testing.T) { nothing() }\n", red: "example.org/m/build: failed", shows: []string{"undefined: nothing", "m/build is not run again: it does not build"}},
		"other":        {source: "func TestFirst(t *testing.T) {\n" + first + "\t\tt.Error(\"once\")\n\t}\n}\nfunc TestSecond(t *testing.T) {\n\tif _, err := os.Stat(\"two\"); err == nil {\n\t\tt.Error(\"then\")\n\t}\n\tos.WriteFile(\"two\", nil, 0o600)\n}\n", red: "other.TestFirst: failed in its first run\nRED other.TestSecond: failed in its second run"},
		"veto":         {source: "func TestRule(t *testing.T) { t.Error(\"broken rule: not a matter of time\") }\n", red: "veto.TestRule: failed", shows: []string{"m/veto is not run again: what it has found is not a matter of time"}},
		"load":         {source: "import \"example.org/nothing\"\n", red: "example.org/m/load: failed", shows: []string{"m/load is not run again: it does not build"}},
		"race":         {source: "func TestRace(t *testing.T) { t.Error(\"WARNING: DATA RACE\") }\n", red: "race.TestRace: failed", shows: []string{"m/race is not run again: it has a data race"}},
	}
	sources, wantRed, wantLines := map[string]string{}, []string{}, []string{}
	for name, tt := range cases {
		sources[name] = tt.source
		if tt.flaky != "" {
			wantLines = append(wantLines, "FLAKY "+tt.flaky+": failed once, passed when its package ran again")
		}
		if tt.red != "" {
			wantRed, wantLines = append(wantRed, "example.org/m/"+name), append(wantLines, strings.Split("RED "+tt.red, "\n")...)
		}
	}
	packages(t, sources)
	var out bytes.Buffer
	lines, red, err := options{again: true}.run(t.Context(), &out, []string{"go", "test", "-vet=off", "-count=1", "./..."})
	require.NoError(t, err)
	require.ElementsMatch(t, wantRed, red)
	require.ElementsMatch(t, wantLines, lines)
	require.True(t, strings.HasSuffix(out.String(), strings.Join(lines, "\n")+"\n"), "they are the last lines")
	for _, tt := range cases {
		for _, s := range tt.shows {
			require.Contains(t, out.String(), s)
		}
	}
	for _, s := range []string{"chatter", "=== RUN", "PASS\n"} {
		require.NotContains(t, out.String(), s)
	}
}

// What is said of a test that hangs is its name, and not those of the tests that waited for their turn. The second run
// is not as long as a target may take.
func TestHangs(t *testing.T) {
	const after = "\tt.Parallel()\n}\n"
	module(t, "func TestWaits(t *testing.T) {\n"+after+"func TestHangs(t *testing.T) {\n\tt.Run(\"sub\", func(t *testing.T) { select {} })\n}\nfunc TestBad(t *testing.T) { t.Error(\"each time\") }\n")
	var out bytes.Buffer
	command := []string{"go", "test", "-vet=off", "-count=1", "-timeout=1s", "./a"}
	lines, red, err := options{again: true}.run(t.Context(), &out, command)
	require.NoError(t, err)
	require.Equal(t, []string{"example.org/m/a"}, red)
	require.Equal(t, []string{"RED a.TestHangs/sub: had not ended when its package's time was over, after 1s in its second run"}, lines)
	require.Contains(t, out.String(), "goroutine ", "where it hangs")
}

func TestBounded(t *testing.T) {
	t.Parallel()
	for took, want := range map[time.Duration]time.Duration{0: 2 * time.Minute, 30 * time.Second: 2 * time.Minute, 100 * time.Second: 5 * time.Minute} {
		require.Equal(t, want, (&result{took: took}).secondLimit(0), took)
	}
	for own, want := range map[string]string{"-timeout=10m": "-timeout=2m0s", "-timeout=0": "-timeout=2m0s", "-timeout=1m": "-timeout=1m", "-timeout=x": "-timeout=x"} {
		require.Equal(t, []string{"go", "test", want, "./a"}, bounded(2*time.Minute, []string{"go", "test", own, "./a"}))
	}
	require.Equal(t, []string{"go", "test", "-timeout=2m0s", "./a"}, bounded(2*time.Minute, []string{"go", "test", "./a"}))

	// The time in which a test hung is not counted.
	events := `{"Time":"2026-11-27T15:04:00Z","Action":"start","Package":"m/a"}
{"Time":"2026-11-27T15:04:00Z","Action":"run","Package":"m/a","Test":"TestGood"}
{"Time":"2026-11-27T15:05:30Z","Action":"pass","Package":"m/a","Test":"TestGood"}
{"Time":"2026-11-27T15:05:30Z","Action":"run","Package":"m/a","Test":"TestHangs"}
{"Time":"2026-11-27T15:14:00Z","Action":"fail","Package":"m/a"}
`
	results, err := read(io.Discard, strings.NewReader(events), nil)
	require.NoError(t, err)
	require.Equal(t, 270*time.Second, results[0].secondLimit(0))
}

// A first run that crashes, or hangs at its beginning, does not show for how long its package runs. The last gate does.
func TestBoundOfACrash(t *testing.T) {
	module(t, "func TestCrash(t *testing.T) {\n"+first+"\t\tpanic(\"by chance\")\n\t}\n}\n")
	require.NoError(t, os.MkdirAll(filepath.Dir(pageFile), 0o700))
	rows := "| `example.org/m/a` | `etcd37` | 0.0 | 0.0 | 900.0 |\n| `example.org/m/a` | `race` | 9.0 | 9.0 | 204.7 |\n| `example.org/m/b` | `race` | 0.0 | 0.0 | 800.0 |\n"
	require.NoError(t, os.WriteFile(pageFile, []byte(rows), 0o600))
	var out bytes.Buffer
	_, red, err := options{again: true, target: "race"}.run(t.Context(), &out, []string{"go", "test", "-vet=off", "-count=1", "./a"})
	require.NoError(t, err)
	require.Empty(t, red)
	require.Contains(t, out.String(), "gate: example.org/m/a has failed and is run once more, for 6m49s at most\n")
	require.Equal(t, 204700*time.Millisecond, ranFor("| `concurrency` | `race` | 0.0 | 2.9 | 204.7 |\n", "race", "concurrency"))
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
	require.Equal(t, []string{"RED a.TestBad: failed in its second run"}, flaky)
	require.Len(t, red, 1)
	order, err := os.ReadFile("a/order")
	require.NoError(t, err)
	first, second := order[:len(order)/2], order[len(order)/2:]
	require.Equal(t, string(first), string(second))
}
