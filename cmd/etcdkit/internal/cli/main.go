package cli

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/exit"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/output"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/verb"
)

// Main executes the command with its arguments and returns its exit code. A signal that ends it withdraws what
// it waits for; its code is 128 and the number of the signal.
func Main(args []string, std verb.Streams) int {
	ctx, uncatch, stop := catch(context.Background())
	defer stop()
	return (&execution{call: verb.Call{Std: std, Uncatch: uncatch}}).main(ctx, args)
}

// Execute is Main without signals: ctx ends the command.
func Execute(ctx context.Context, args []string, std verb.Streams) int {
	return (&execution{call: verb.Call{Std: std, Uncatch: func() {}}}).main(ctx, args)
}

// catch returns a ctx that is canceled by the first signal that ends a command, until uncatch or stop is called.
func catch(ctx context.Context) (_ context.Context, uncatch, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	signals := make(chan os.Signal, 1)
	for _, s := range exit.Signals {
		if !signal.Ignored(s) { // as a shell's background job ignores SIGINT, and nohup's program SIGHUP
			signal.Notify(signals, s)
		}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if s, ok := <-signals; ok {
			cancel(exit.Interrupted{Signal: s.(syscall.Signal)})
		}
	}()
	uncatch = sync.OnceFunc(func() {
		signal.Stop(signals)
		close(signals) // after a signal that it has already
		<-done
	})
	return ctx, uncatch, func() { uncatch(); cancel(nil) }
}

// execution is one execution of the command.
type execution struct {
	call   verb.Call
	parsed bool // flags and arguments are valid
}

func (e *execution) main(ctx context.Context, args []string) int {
	out := &output.Noted{Writer: e.call.Std.Out} // cobra, for one, drops failures
	e.call.Std.Out = out
	e.call.Std.Err = output.Lines{Writer: e.call.Std.Err} // texts of other processes may be in them
	root := e.root()
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	defer e.call.Close()
	if err != nil && !e.parsed {
		err = usage(cmd, err)
	}
	if err == nil && out.Failed != nil {
		err = fmt.Errorf("print: %w", out.Failed)
	}
	code, text := exit.Explain(exit.OrInterrupted(ctx, err))
	if text != "" {
		text += elsewhere(ctx, &e.call, cmd, err)
		fmt.Fprintf(e.call.Std.Err, "%s: %s\n", cmd.CommandPath(), strings.ReplaceAll(text, "\t", "  "))
	}
	return code
}

// root returns the command with all of its verbs.
func (e *execution) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "etcdkit",
		Short: "Show and change what services keep in etcd with etcdkit, and run commands under its locks",
		Long: `Show and change what services keep in etcd with etcdkit, and run commands under its locks.

Flags that are given on each command line can be variables: those that etcdctl has too are ETCDCTL_ENDPOINTS,
ETCDCTL_CACERT, ETCDCTL_USER and so on; ETCDKIT_NAMESPACE, ETCDKIT_PREFIX and ETCDKIT_OUTPUT are the others. A
flag counts more than its variable.

Exit codes: 0 done, 1 not found, in another state, or the result cannot be printed, 64 wrong flag or argument,
69 etcd does not answer, 75 no permit was granted, 76 the permit was lost, 77 etcd denies permission, 128+n ended by
a signal: console, export and cron, which have no other end, exit with 0 then.`,
		SilenceErrors:     true,
		SilenceUsage:      true,
		PersistentPreRunE: e.parse,
	}
	root.SetHelpCommand(helpOf(root))
	root.SetIn(e.call.Std.In)
	root.SetOut(e.call.Std.Out) // before complete: the verb completion keeps it
	root.SetErr(e.call.Std.Err)
	flags := root.PersistentFlags()
	e.call.Etcd.Define(flags)
	flags.StringVarP(&e.call.Output, "output", "o", "table", "format of the result: table or json")
	flags.BoolVarP(&e.call.Yes, "yes", "y", false, "do not ask before something is ended or deleted")
	for _, v := range verbs {
		root.AddCommand(v(&e.call))
	}
	complete(&e.call, root)
	return root
}

// parse checks the flags of all verbs, with their variables, before the verb runs.
func (e *execution) parse(cmd *cobra.Command, _ []string) error {
	if cmd.Name() == cobra.ShellCompRequestCmd {
		return nil // it parses the flags of its verb itself, and names reads their variables after that
	}
	if err := cmp.Or(verb.CheckConnection(cmd.Flags()), verb.FromEnvironment(cmd.Flags())); err != nil {
		return err
	}
	e.call.Etcd.TrimEndpoints()
	if e.call.Output != "table" && e.call.Output != "json" {
		return fmt.Errorf("--output %q: it is table or json", e.call.Output)
	}
	e.parsed = true
	return nil
}

// tree returns the command with all of its verbs, as it is executed.
func tree() *cobra.Command {
	root := (&execution{}).root()
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	return root
}
