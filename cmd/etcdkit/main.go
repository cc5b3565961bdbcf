// Command etcdkit shows and changes what etcdkit's services keep in etcd. docs/cli.md describes it.
package main

import (
	"os"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/verb"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/guard"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == guard.Argument {
		os.Exit(guard.Main(os.Args[2:]))
	}
	if len(os.Args) > 1 && os.Args[1] == guard.FrontArgument {
		os.Exit(guard.Front(os.Args[2:]))
	}
	os.Exit(cli.Main(os.Args[1:], verb.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}))
}
