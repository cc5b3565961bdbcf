package cli_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/clitest"
)

// On a narrow terminal doctor breaks its findings between words.
func TestDoctorOnANarrowTerminal(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	s := f.Terminal()
	require.NoError(t, unix.IoctlSetWinsize(int(s.Master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 50, Col: 60}))
	s.Types("$DOCTOR; echo code=$?\n")
	s.Shows(`code=(\d+)`)
	_, shown, ok := strings.Cut(s.Shown.String(), "OK  ")
	require.True(t, ok, s.Shown)
	for line := range strings.Lines("OK  " + shown) {
		require.LessOrEqual(t, len([]rune(strings.TrimRight(line, "\r\n"))), 60, line)
	}
}
