package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"

	"github.com/spf13/cobra"
)

// Streams are what a command reads and writes.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
}

// ending are the signals that end a command.
var ending = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT}

// Main executes the command with its arguments and returns its exit code. A signal that ends it withdraws what
// it waits for; its code is 128 and the number of the signal.
func Main(args []string, std Streams) int {
	a := &app{std: std}
	ctx, stop := a.catch(context.Background())
	defer stop()
	return a.main(ctx, args)
}

// catch returns a ctx that is canceled by the first signal that ends a command, until a.uncatch or stop is called.
func (a *app) catch(ctx context.Context) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	signals := make(chan os.Signal, 1)
	for _, s := range ending {
		if !signal.Ignored(s) { // as a shell's background job ignores SIGINT, and nohup's program SIGHUP
			signal.Notify(signals, s)
		}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if s, ok := <-signals; ok {
			cancel(interrupted{s.(syscall.Signal)})
		}
	}()
	a.uncatch = sync.OnceFunc(func() {
		signal.Stop(signals)
		close(signals) // after a signal that it has already
		<-done
	})
	return ctx, func() { a.uncatch(); cancel(nil) }
}

// execute is Main without signals.
func execute(ctx context.Context, args []string, std Streams) int {
	return (&app{std: std, uncatch: func() {}}).main(ctx, args)
}

func (a *app) main(ctx context.Context, args []string) int {
	root := a.root()
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	defer func() { a.messages.close() }()
	if err != nil && !a.parsed {
		err = usage(cmd, err)
	}
	if err == nil && a.help.failed != nil {
		err = fmt.Errorf("print: %w", a.help.failed)
	}
	code, text := explain(orInterrupted(ctx, err))
	if text != "" {
		lines := strings.Split(text, "\n")
		for i := range lines { // texts of other processes may be in it
			lines[i] = printable(strings.ReplaceAll(lines[i], "\t", "  "))
		}
		fmt.Fprintf(a.std.Err, "%s: %s\n", cmd.CommandPath(), strings.Join(lines, "\n"))
	}
	return code
}

// orInterrupted returns the signal that has canceled ctx, if err is of that, and otherwise err.
func orInterrupted(ctx context.Context, err error) error {
	var by interrupted
	if errors.Is(err, context.Canceled) && errors.As(context.Cause(ctx), &by) {
		return by
	}
	return err
}

// app is one execution of the command.
type app struct {
	std      Streams
	help     *noting   // where cobra prints, which drops failures
	messages *messages // what std.Err is after surviveReader; nil before
	running  string    // the verb that runs a command, if it is not run
	uncatch  func()    // no signal cancels the ctx of the verb any more; those that came before have
	etcd     connection
	output   string
	yes      bool
	parsed   bool // flags and arguments are valid
}

// noting keeps the first failure of a writer.
type noting struct {
	io.Writer
	failed error
}

func (n *noting) Write(p []byte) (int, error) {
	written, err := n.Writer.Write(p)
	n.failed = cmp.Or(n.failed, err)
	return written, err
}

// root returns the command with all of its verbs.
func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "etcdkit",
		Short: "Show and change what services keep in etcd with etcdkit, and run commands under its locks",
		Long: `Show and change what services keep in etcd with etcdkit, and run commands under its locks.

Flags that are given on each command line can be variables: those that etcdctl has too are ETCDCTL_ENDPOINTS,
ETCDCTL_CACERT, ETCDCTL_USER and so on; ETCDKIT_NAMESPACE, ETCDKIT_PREFIX and ETCDKIT_OUTPUT are the others. A
flag counts more than its variable.

Exit codes: 0 done, 1 not found, in another state, or the result cannot be printed, 64 wrong flag or argument,
69 etcd does not answer, 75 no permit was granted, 76 the permit was lost, 77 etcd refuses the user, 128+n ended by
a signal: console, export and cron, which have no other end, exit with 0 then.`,
		SilenceErrors: true,
		SilenceUsage:  true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Name() == cobra.ShellCompRequestCmd {
				return nil // it parses the flags of its verb itself, and a.names reads their variables after that
			}
			if err := cmp.Or(checkConnection(cmd.Flags()), fromEnvironment(cmd.Flags())); err != nil {
				return err
			}
			a.etcd.TrimEndpoints()
			if a.output != "table" && a.output != "json" {
				return fmt.Errorf("--output %q: it is table or json", a.output)
			}
			a.parsed = true
			return nil
		},
	}
	root.SetHelpCommand(helpOf(root))
	root.SetIn(a.std.In)
	a.help = &noting{Writer: a.std.Out}
	root.SetOut(a.help) // before complete: the verb completion keeps it
	root.SetErr(a.std.Err)
	flags := root.PersistentFlags()
	a.etcd.define(flags)
	flags.StringVarP(&a.output, "output", "o", "table", "format of the result: table or json")
	flags.BoolVarP(&a.yes, "yes", "y", false, "do not ask before something is ended or deleted")
	for _, verb := range verbs {
		root.AddCommand(verb(a))
	}
	a.complete(root)
	return root
}

// verbs are all verbs, in the order of the documentation.
var verbs = []func(*app) *cobra.Command{
	(*app).ls, (*app).show, (*app).top, (*app).limit, (*app).evict, (*app).elections,
	(*app).run, (*app).hold, (*app).release, cronVerb,
	(*app).jobs, (*app).requests,
	(*app).console, (*app).doctor, (*app).export, (*app).bench, (*app).conformance,
	(*app).man, (*app).version,
}

// helpOf returns the verb help, which refuses what is no verb.
func helpOf(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "help [VERB]",
		Short: "Show the help of a verb",
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			var names []string
			if of, _, err := root.Find(args); err == nil {
				for _, c := range of.Commands() {
					if c.IsAvailableCommand() {
						names = append(names, c.Name())
					}
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(_ *cobra.Command, args []string) error {
			of, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 {
				return usageError{fmt.Errorf("%q is no verb; 'etcdkit --help' lists them", strings.Join(args, " "))}
			}
			of.InitDefaultHelpFlag()
			return of.Help()
		},
	}
}
