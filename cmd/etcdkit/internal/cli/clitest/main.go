package clitest

import (
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/verb"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/guard"
	"github.com/etcdkit/etcdkit/embedtest"
)

// AsCommand has a test binary be the command.
const AsCommand = "ETCDKIT_TEST_COMMAND"

// Main is the TestMain of a package that uses the fixture.
func Main(m *testing.M) {
	switch {
	case len(os.Args) > 1 && os.Args[1] == guard.Argument:
		os.Exit(guard.Main(os.Args[2:]))
	case len(os.Args) > 1 && os.Args[1] == guard.FrontArgument:
		os.Exit(guard.Front(os.Args[2:]))
	case os.Getenv(AsCommand) != "":
		_ = os.Unsetenv(AsCommand)
		os.Exit(cli.Main(os.Args[1:], verb.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}))
	}
	for _, v := range os.Environ() { // the transcripts do not depend on the variables of a developer
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "ETCDCTL_") || strings.HasPrefix(name, "ETCDKIT_") {
			_ = os.Unsetenv(name)
		}
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
