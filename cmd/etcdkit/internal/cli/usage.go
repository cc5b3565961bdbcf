package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/exit"
)

// usage returns the error of flags or arguments that could not be parsed.
func usage(cmd *cobra.Command, err error) error {
	if strings.Contains(err.Error(), "missing unit in duration") {
		err = fmt.Errorf("%w, as in 5s or 1h30m", err)
	}
	if strings.Contains(err.Error(), "unknown shorthand flag: 'n'") {
		err = fmt.Errorf("%w; the namespace is -N, as in -N payments", err)
	}
	if strings.Contains(err.Error(), "unknown flag: --token") && strings.Contains(cmd.UseLine(), " TOKEN") {
		err = fmt.Errorf("%w; the token is an argument, without a flag", err)
	}
	see := fmt.Sprintf("See '%s --help'", cmd.CommandPath())
	if cmd.HasParent() { // cobra suggests verbs, and nothing below them
		see = "Usage: " + strings.TrimSuffix(cmd.UseLine(), " [flags]") + "\n" + see
		cmd.SuggestionsMinimumDistance = 2
		if args := cmd.Flags().Args(); cmd.HasAvailableSubCommands() && len(args) > 0 {
			for _, s := range cmd.SuggestionsFor(args[0]) {
				see = fmt.Sprintf("Did you mean '%s %s'?\n%s", cmd.CommandPath(), s, see)
			}
		}
	}
	return exit.Usagef("%w\n%s", err, see)
}
