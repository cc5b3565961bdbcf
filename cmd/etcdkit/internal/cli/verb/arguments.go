package verb

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// Arguments permits from least to most arguments, of which any may follow "--": a name may begin with "-". Its
// errors name what is missing, as the verb's usage calls it, or what is too much. most below 0 stands for any
// number, the words of a command: that is what "--" separates from the arguments before it.
func Arguments(least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case most < 0 && cmd.ArgsLenAtDash() == 0:
			return fmt.Errorf("%s is missing", named(cmd, 0))
		case len(args) < least:
			return fmt.Errorf("%s is missing", named(cmd, len(args)))
		case most >= 0 && len(args) > most:
			return fmt.Errorf("%q is an argument too many", args[most])
		}
		return nil
	}
}

// named returns what the usage of a verb calls its nth argument.
func named(cmd *cobra.Command, n int) string {
	var names []string
	for _, word := range strings.Fields(cmd.Use)[1:] {
		if word != "--" {
			names = append(names, word)
		}
	}
	return names[min(n, len(names)-1)]
}
