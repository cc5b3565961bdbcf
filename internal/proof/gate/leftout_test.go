package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestShortened(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a_test.go"), []byte(`package a

import "testing"

func TestLong(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes an hour")
	}
}

func TestPart(t *testing.T) {
	seeds := 16
	if testing.Short() {
		seeds = 2
	}
	_ = seeds
}

func TestSub(t *testing.T) {
	t.Run("long", func(t *testing.T) {
		if testing.Short() {
			t.Skip("it takes an hour")
		}
	})
}

func TestQuick(t *testing.T) { t.Skip("always") }

func TestHelped(t *testing.T) { started(t) }

func started(t *testing.T) { f{}.processes(t) }

type f struct{}

func (f) processes(t *testing.T) {
	if testing.Short() {
		t.Skip("processes")
	}
}
`), 0o600))
	all, err := shortenedIn(dir)
	require.NoError(t, err)
	require.Equal(t, []shortened{{dir, "TestHelped", "processes"}, {dir, "TestLong", "it takes an hour"}, {dir, "TestPart", ""}, {dir, "TestSub", ""}}, all)
}

// The list names each kind of what the gate leaves out.
func TestPrintLeftOut(t *testing.T) {
	t.Chdir("../../..")
	var out bytes.Buffer
	require.NoError(t, printLeftOut(&out))
	for _, want := range []string{
		"test     ./concurrency: race runs it", "race     ./examples/fleet: ", "etcd37   ./console: ", "etcd37   ./internal/queue: it links neither",
		"race     concurrency.TestBlackHoledMember: it takes longer than a TTL", "bench    ", "browser  all tests (make browser), if neither console, ",
	} {
		require.Contains(t, out.String(), want)
	}
}
