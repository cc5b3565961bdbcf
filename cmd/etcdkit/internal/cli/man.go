package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/exit"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/output"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/verb"
)

func man(c *verb.Call) *cobra.Command {
	return &cobra.Command{
		Use:   "man DIR",
		Short: "Write the manual pages of all verbs into a directory",
		Long: `Write the manual pages of all verbs into a directory, as etcdkit.1, etcdkit-show.1 and so on: for packages,
or for 'man -M', which takes the directory above one named man1.`,
		Example: "etcdkit man /usr/local/share/man/man1",
		Args:    verb.Arguments(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			pages := manuals(cmd.Root())
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return err
			}
			for name, text := range pages {
				if err := os.WriteFile(filepath.Join(args[0], name), []byte(text), 0o644); err != nil { //nolint:gosec // for all users
					return err
				}
			}
			return c.Print(struct {
				output.Form
				Pages int `json:"pages"`
			}{output.FormOf("man"), len(pages)}, func(t *output.Table) { t.Line(output.Count(len(pages), "page", "pages") + " in " + args[0]) })
		},
	}
}

// manuals returns the manual pages of a tree of verbs by their file names.
func manuals(root *cobra.Command) map[string]string {
	pages := map[string]string{}
	var add func(cmd *cobra.Command)
	add = func(cmd *cobra.Command) {
		pages[slug(cmd)+".1"] = manual(cmd)
		for _, c := range verbsOf(cmd) {
			add(c)
		}
	}
	add(root)
	return pages
}

// manual returns the manual page of a verb, in the macros of man(7).
func manual(cmd *cobra.Command) string {
	var b strings.Builder
	fmt.Fprintf(&b, ".TH %q 1 %q etcdkit \"etcdkit\"\n", strings.ToUpper(slug(cmd)), built())
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", roff(slug(cmd)), roff(cmd.Short))
	fmt.Fprintf(&b, ".SH SYNOPSIS\n.B %s\n", roff(strings.TrimSuffix(cmd.UseLine(), " [flags]")))
	if cmd.Long != "" {
		fmt.Fprintf(&b, ".SH DESCRIPTION\n%s\n", roff(cmd.Long))
	}
	for _, s := range []struct {
		name  string
		flags []flagLine
	}{{"OPTIONS", flagsOf(cmd.LocalNonPersistentFlags())}, {"OPTIONS OF ALL VERBS", flagsOf(cmd.Root().PersistentFlags())}} {
		if len(s.flags) == 0 {
			continue
		}
		fmt.Fprintf(&b, ".SH %s\n", s.name)
		for _, f := range s.flags {
			text := f.usage
			if f.initial != "" {
				text += "; default: " + f.initial
			}
			if f.variable != "" {
				text += "; variable: " + f.variable
			}
			fmt.Fprintf(&b, ".TP\n.B %s\n%s\n", roff(f.name), roff(text))
		}
	}
	b.WriteString(".SH EXIT STATUS\n")
	for _, c := range exit.Codes {
		code := fmt.Sprint(c.Code)
		if c.Code > 128 {
			code = "128+n"
		}
		fmt.Fprintf(&b, ".TP\n.B %s\n%s\n", code, roff(c.Meaning))
	}
	if cmd.Example != "" {
		fmt.Fprintf(&b, ".SH EXAMPLES\n.nf\n%s\n.fi\n", roff(cmd.Example))
	}
	if all := verbsOf(cmd); len(all) > 0 {
		b.WriteString(".SH SEE ALSO\n")
		for i, c := range all {
			end := ","
			if i == len(all)-1 {
				end = ""
			}
			fmt.Fprintf(&b, ".BR %s (1)%s\n", roff(slug(c)), end)
		}
	}
	return b.String()
}

// built returns the day of the commit that this program was built of, or that of its file.
func built() string {
	info, _ := debug.ReadBuildInfo()
	for i := 0; info != nil && i < len(info.Settings); i++ {
		if s := info.Settings[i]; s.Key == "vcs.time" && len(s.Value) >= len(time.DateOnly) {
			return s.Value[:len(time.DateOnly)]
		}
	}
	self, err := os.Executable()
	if err != nil {
		return time.Now().UTC().Format(time.DateOnly)
	}
	file, err := os.Stat(self)
	if err != nil {
		return time.Now().UTC().Format(time.DateOnly)
	}
	return file.ModTime().UTC().Format(time.DateOnly)
}

// roff escapes a text: no line of it is a request, and empty lines part paragraphs.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, "…", `\[u2026]`).Replace(strings.TrimSpace(text))
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		switch {
		case line == "":
			lines[i] = ".PP"
		case line[0] == '\t': // a command line, as cobra has them
			lines[i] = ".RS\n.nf\n" + strings.TrimSpace(line) + "\n.fi\n.RE"
		case line[0] == '.' || line[0] == '\'':
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n")
}
