package cli

import (
	"os"
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
	embedtest.Main(m)
}
