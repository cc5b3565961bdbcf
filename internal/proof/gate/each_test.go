package main

import (
	"bytes"
	"context"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Each test runs alone, in the folder of its package; one that fails is named, and the others go on.
func TestEach(t *testing.T) {
	module(t, "func TestSlow(t *testing.T) {\n\tif _, err := os.Stat(\"a_test.go\"); err != nil {\n\t\tt.Error(err)\n\t}\n}\nfunc TestBad(t *testing.T) { t.Error(\"bad\") }\n")
	var out bytes.Buffer
	passed, err := each(t.Context(), &out, []string{"./a", "./b"})
	require.NoError(t, err)
	require.False(t, passed)
	require.Contains(t, out.String(), "a.TestSlow\n")
	require.Contains(t, out.String(), "a.TestBad FAILED\n")
	require.Contains(t, out.String(), "b.TestGood\n")
	out.Reset()
	passed, err = each(t.Context(), &out, []string{"-short", "-n", "1", "./b"})
	require.NoError(t, err)
	require.True(t, passed)
	out.Reset()
	_, err = each(t.Context(), &out, []string{"./..."})
	require.NoError(t, err)
	require.Contains(t, out.String(), "a.TestSlow\n")
	require.Contains(t, out.String(), "b.TestGood\n")
	_, err = each(t.Context(), &out, []string{"./nothing"})
	require.Error(t, err)
}

// A run that is interrupted lists the tests that it has run.
func TestEachInterrupted(t *testing.T) {
	module(t, "func TestFirst(t *testing.T) {}\nfunc TestWaits(t *testing.T) {\n\t_ = os.WriteFile(\"waits\", nil, 0o600)\n\tselect {}\n}\n")
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	go func() {
		for ctx.Err() == nil {
			if _, err := os.Stat("a/waits"); err == nil {
				interrupt()
			}
			time.Sleep(5 * time.Millisecond)
		}
	}()
	var out bytes.Buffer
	_, err := each(ctx, &out, []string{"./a", "./b"})
	require.ErrorIs(t, err, context.Canceled)
	require.Contains(t, out.String(), "a.TestFirst\n")
	require.NotContains(t, out.String(), "b.TestGood")
}
