package main

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The parts of a test, which are packages of their own for the go command, count as one package.
func TestTimesOf(t *testing.T) {
	t.Parallel()
	at := func(second int) time.Time { return time.Date(2026, 11, 27, 0, 0, second, 0, time.UTC) }
	const module = "example.org/m"
	got := timesOf("race", []action{
		{"build", "example.org/m/a", at(0), at(1)},
		{"build", "example.org/m/a [example.org/m/a.test]", at(1), at(3)},
		{"build", "example.org/m/a_test [example.org/m/a.test]", at(3), at(6)},
		{"link", "example.org/m/a.test", at(6), at(10)},
		{"test run", "example.org/m/a", at(10), at(20)},
		{"test print", "example.org/m/a", at(20), at(30)},
		{"build", "example.org/other", at(0), at(9)},
		{"build", "example.org/m/cached", time.Time{}, time.Time{}},
		{"vet", "example.org/m/b", at(0), at(2)},
	}, module)
	require.Equal(t, []times{{"race", "a", 6, 4, 10}, {"race", "b", 2, 0, 0}}, got)
}

// What a run of go test took is read from the go command's own graph.
func TestTimesOfARun(t *testing.T) {
	module(t, "func TestGood(t *testing.T) {}\n")
	file := filepath.Join(t.TempDir(), "times")
	_, red, err := options{times: file, target: "test", module: "example.org/m"}.run(t.Context(), t.Output(), []string{"go", "test", "-vet=off", "-count=1", "./..."})
	require.NoError(t, err)
	require.Empty(t, red)
	all, err := readTimes(file)
	require.NoError(t, err)
	require.Len(t, all, 2)
	for _, of := range all {
		require.Equal(t, "test", of.Target)
		require.Positive(t, of.Link, of.Package)
		require.Positive(t, of.Run, of.Package)
	}
}
