package cli

import (
	"os"
	"os/signal"
	"syscall"
	"testing"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/guard"
	"github.com/etcdkit/etcdkit/embedtest"
)

// asCommand has the test binary be the command.
const asCommand = "ETCDKIT_TEST_COMMAND"

func TestMain(m *testing.M) {
	switch {
	case len(os.Args) == 2 && os.Args[1] == guard.Argument:
		os.Exit(guard.Main())
	case os.Getenv(asCommand) != "":
		_ = os.Unsetenv(asCommand)
		os.Exit(Main(os.Args[1:], Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}))
	}
	// What this process ignores, as nohup and a script's background job have it, its children ignore too.
	// They do not ignore what it catches.
	for _, s := range []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT} {
		if signal.Ignored(s) {
			signal.Notify(make(chan os.Signal, 1), s)
		}
	}
	embedtest.Main(m)
}
