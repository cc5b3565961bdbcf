package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/cron"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/doctor"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/exit"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/jobs"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/permits"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/queues"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/requests"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/serve"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/trial"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/verb"
)

// verbs are all verbs, in the order of the documentation.
var verbs = []func(*verb.Call) *cobra.Command{
	queues.Ls, queues.Show, queues.Top, queues.Limit, queues.Changes, permits.Evict, queues.Elections,
	permits.Run, permits.Hold, permits.Release, cron.Cron,
	jobsAndRun, requests.Requests,
	serve.Console, doctor.Doctor, serve.Export, trial.Bench, trial.Conformance,
	man, version,
}

// jobsAndRun is the verb jobs with all that is below it: `jobs run` is a command that cron calls, and so of
// package cron.
func jobsAndRun(c *verb.Call) *cobra.Command {
	cmd := jobs.Jobs(c)
	cmd.AddCommand(cron.JobsRun(c))
	return cmd
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
				return exit.Usagef("%q is no verb; 'etcdkit --help' lists them", strings.Join(args, " "))
			}
			of.InitDefaultHelpFlag()
			return of.Help()
		},
	}
}
