package cli_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/clitest"
	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// A command that reads its terminal in the background is stopped, and continues when a shell brings it to the
// foreground. ^C ends it.
func TestRunOnATerminal(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	s := f.Terminal()
	s.Types("$RUN x -- sh -c 'echo pid=$$; exec cat' &\n")
	pid := s.Shows(`pid=(\d+)`)
	s.Stopped(pid, true)
	require.Len(t, f.Status("x").Holders, 1, "its permit is kept")
	s.Types("fg\n")
	s.Stopped(pid, false)
	s.Types("hel\"\"lo\n")
	s.Shows(`hel""lo\r\nhel""lo`)
	s.Types("\x03")
	require.Eventually(t, func() bool { return len(f.Status("x").Holders) == 0 }, testkit.Soon, 10*time.Millisecond, "%s", s.Shown)
	s.Types("echo code=$?\n")
	require.Equal(t, "130", s.Shows(`code=(\d+)`))
}

// ^Z stops the command, and says so; ^C then ends it.
func TestRunIsStoppedByItsTerminal(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	s := f.Terminal()
	s.Types("$RUN x -- sh -c 'echo pid=$$; exec sleep 600'\n")
	pid := s.Shows(`pid=(\d+)`)
	s.Types("\x1a")
	s.Stopped(pid, true)
	s.Shows("the command is stopped, and the permit is kept")
	s.Types("\x03")
	s.Shows(`\$ $`)
	s.Types("echo code=$?\n")
	require.Equal(t, "130", s.Shows(`code=(\d+)`))
}

// Under `stty tostop` the messages of a job in the background stop nothing, and --max-hold ends the command.
func TestRunInTheBackgroundOfATerminal(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	s := f.Terminal()
	s.Types("stty tostop; $RUN --max-hold 500ms x -- sleep 600 & \n")
	s.Shows(`held for 500ms \(--max-hold\); ending the command`)
	s.Types("wait $!; echo code=$?\n")
	require.Equal(t, "143", s.Shows(`code=(\d+)`))
}

// A command that is killed leaves the modes of the terminal as they were.
func TestRunRestoresTheTerminal(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	s := f.Terminal()
	s.Types("$RUN --grace 100ms --max-hold 500ms x -- sh -c 'trap : TERM; stty raw -echo; while :; do sleep 0.02; done'; stty -a\n")
	s.Shows(`(?s)ending the command.*[; ]icanon`)
}

// ^C ends a question, and the terminal shows again what is typed.
func TestQuestionsEndWithASignal(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	s := f.Terminal()
	for n, c := range [][2]string{{"semaphore/x 0", `pauses semaphore/x in all processes\? \[y/N\] `}, {"semaphore/x --user reader", `password of reader: `}} {
		s.Types("$LIMIT " + c[0] + "\n")
		s.Shows(c[1])
		s.Types("\x03")
		s.Shows(fmt.Sprintf(`(?s)(ended by a signal: interrupt.*?\$ .*?){%d}$`, n+1)) // it is the shell that reads now
		s.Types(fmt.Sprintf("echo code%d=$?\n", n))
		require.Equal(t, "130", s.Shows(fmt.Sprintf(`code%d=(\d+)`, n)), "%s", s.Shown)
	}
}

// The question that an operator answers has its own text alone, whatever the owner is that it names.
func TestQuestionsAreEscaped(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	el, err := concurrency.NewElection(f.Session("web-7"), "shard")
	require.NoError(t, err)
	f.Permit(el.Campaign(testkit.Context(t)))
	f.Forge("web-7", `web-7\r\u001b[2KAsk web-8\n\u202e`)
	s := f.Terminal()
	s.Types("$ELECTIONS step-down shard\n")
	s.Shows(`Ask web-7\\r\\x1b\[2KAsk web-8\\n\\u202e, which leads .* to step down\? \[y/N\] `)
	s.Types("n\n")
	s.Shows("not confirmed; nothing was changed")
	require.NotContains(t, s.Shown.String(), "\u202e")
}
