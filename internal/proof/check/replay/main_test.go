package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/internal/proof/check"
	"github.com/etcdkit/etcdkit/internal/proof/history"
)

// TestReplay: a file gets the verdict that the run got, and the command that the
// run printed names it.
func TestReplay(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := history.NewRecorder()
	r.Set(check.RequirePrefix+"expiries", "1")
	r.Add(history.Event{Kind: history.KindMark, Name: history.MarkTap, Attr: map[string]string{"prefix": "/p/"}})
	r.Mark(history.MarkTapComplete)
	h, err := r.History()
	require.NoError(t, err)
	suite, err := check.Suite(h)
	require.NoError(t, err)
	report := check.Judge(h, suite...)
	require.Equal(t, check.Void, report.Verdict)

	command, err := report.Save(dir, h, suite...)
	require.NoError(t, err)
	file, ok := strings.CutPrefix(command, "make chaos-replay FILE=")
	require.True(t, ok, command)
	verdict, err := replay(filepath.Join(dir, "again"), file)
	require.NoError(t, err)
	require.Equal(t, check.Void, verdict)
	text, err := os.ReadFile(filepath.Join(filepath.Dir(file), check.VerdictFile))
	require.NoError(t, err)
	require.Equal(t, report.String(), string(text))

	_, err = replay("", filepath.Join(dir, "none"))
	require.Error(t, err)
	r.Set(check.SettingSuite, "nobody's")
	h, _ = r.History()
	require.NoError(t, h.WriteFile(file))
	_, err = replay("", file)
	require.ErrorContains(t, err, "nobody's")
}
