package cli

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/exit"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/verb"
)

// verbsOf returns the verbs below a command that a user sees, without help.
func verbsOf(cmd *cobra.Command) (all []*cobra.Command) {
	for _, c := range cmd.Commands() {
		if !c.Hidden && c.Name() != "help" {
			all = append(all, c)
		}
	}
	return all
}

// flagLine is one flag of a verb.
type flagLine struct{ name, variable, initial, usage string }

// flagsOf returns the flags that a verb defines, or that all verbs have.
func flagsOf(flags *pflag.FlagSet) (all []flagLine) {
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" {
			return
		}
		name := "--" + f.Name
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", " + name
		}
		kind, usage := pflag.UnquoteUsage(f)
		if kind != "" {
			name += " " + kind
		}
		initial := f.DefValue
		if slices.Contains([]string{"", "false", "[]"}, initial) {
			initial = ""
		}
		all = append(all, flagLine{name, verb.Variable(f.Name), strings.Trim(initial, "[]"), usage})
	})
	return all
}

// groups are the verbs by what they are for. Those that are in none are of the command itself.
var groups = [][2]string{
	{"To see", "ls, show, top, changes, elections, jobs, requests, console, export"},
	{"To change", "limit, evict, hold, release"},
	{"To run a command ([once a night, step by step](../examples/quickstart/shell/README.md), [with others under one lock](../examples/quickstart/shell/README.md#another-command-under-the-same-lock))", "jobs run, cron, run"},
	{"To examine a cluster", "doctor, bench, conformance"},
}

// writeGroups writes the list of all verbs, with links.
func writeGroups(b *strings.Builder, root *cobra.Command) {
	var listed, rest []string
	for _, g := range groups {
		listed = append(listed, strings.Split(g[1], ", ")...)
	}
	for _, verb := range verbsOf(root) {
		if !slices.Contains(listed, verb.Name()) {
			rest = append(rest, verb.Name())
		}
	}
	for _, g := range append(groups, [2]string{"Of the command itself", strings.Join(rest, ", ")}) {
		var links []string
		for name := range strings.SplitSeq(g[1], ", ") {
			links = append(links, fmt.Sprintf("[%s](#etcdkit-%s)", name, strings.ReplaceAll(name, " ", "-")))
		}
		fmt.Fprintf(b, "- %s: %s\n", g[0], strings.Join(links, ", "))
	}
}

// index returns docs/cli.md: what all verbs have, and each verb with one example.
func index(root *cobra.Command) string {
	var b strings.Builder
	b.WriteString(`# The command etcdkit

` + "`etcdkit`" + ` shows and changes what services keep in etcd with this library, and runs commands under its locks.
This page is written from the command itself. It has each verb with one example: ` + "`etcdkit VERB --help`" + ` says all
about it, and ` + "`etcdkit man DIR`" + ` writes the manual pages.
What each prints, also when it refuses, is in the [transcripts of its tests](../cmd/etcdkit/internal/cli/testdata).

No version is published yet. In a clone, this builds it, and an etcd to try it on, into the folder bin of ` + "`go env GOPATH`" + `:

    go install ./cmd/etcdkit ./cmd/etcdkit-dev

` + "`etcdkit-dev`" + ` serves on this machine until ^C, and prints the variables by which ` + "`etcdkit`, `etcdctl`" + ` and the examples
reach it. ` + "`-tls DIR`" + ` adds client certificates, ` + "`-user app:secret`" + ` a user; ` + "`-data-dir`" + ` keeps the data.

`)
	writeGroups(&b, root)
	writeSettings(&b, root)
	writeExitCodes(&b)
	for _, verb := range verbsOf(root) {
		writeExample(&b, verb, 2)
	}
	return b.String()
}

// reference returns a page for each verb, by its file's name: its help, its flags, and the transcripts of its tests.
func reference(root *cobra.Command, transcripts map[string]string) map[string]string {
	pages := map[string]string{}
	examples := examplesIn(root, transcripts)
	for _, verb := range verbsOf(root) {
		var b strings.Builder
		writeVerb(&b, verb, 1, examples)
		pages[slug(verb)+".md"] = strings.TrimPrefix(b.String(), "\n")
	}
	return pages
}

// alsoShown are the second examples of verbs, by what they begin with: the index has no other word of what they do.
var alsoShown = map[string]string{"limit": "etcdkit limit -N payments rate/"}

// writeExample writes a verb with its first example, and the verbs below it.
func writeExample(b *strings.Builder, cmd *cobra.Command, depth int) {
	fmt.Fprintf(b, "\n%s %s\n\n%s.\n", strings.Repeat("#", depth), cmd.CommandPath(), cmd.Short)
	also, more := alsoShown[cmd.Name()]
	var shown []string
	for i, example := range strings.Split(strings.TrimSpace(cmd.Example), "\n") {
		if i == 0 || more && strings.HasPrefix(example, also) {
			shown = append(shown, example)
		}
	}
	fmt.Fprintf(b, "\n%s\n", indented(strings.Join(shown, "\n")))
	if cmd.Name() == "completion" {
		return // its shells are in the usage
	}
	for _, c := range verbsOf(cmd) {
		writeExample(b, c, depth+1)
	}
}

// writeSettings writes what all verbs have: the flags of the connection, the forms of output, and which of them
// write to etcd or ask first.
func writeSettings(b *strings.Builder, root *cobra.Command) {
	b.WriteString(`
## Connection and output

All verbs have these flags. Those of etcdctl have its names, its meanings and its environment variables, such as
ETCDCTL_ENDPOINTS: `)
	own := writeNames(b, flagsOf(root.PersistentFlags()))
	b.WriteString(".\n\n")
	writeFlags(b, own)
	b.WriteString(`
An empty variable counts as absent; an empty flag of the connection is an error. Variables of other flags of etcdctl
are ignored; if ETCDCTL_DISCOVERY_SRV is set, --endpoints must be given: etcdkit finds no endpoints in DNS.

Results are written to standard output, and everything else to standard error. With ` + "`-o json`" + ` a result is
one line of JSON, and a stream one line for each value. Each value has a member ` + "`schema`" + ` with its form and
version, such as ` + "`etcdkit.queue/v1`" + `; a version keeps its members and may get more
([all members](../cmd/etcdkit/internal/cli/testdata/json.md)). Revisions, tokens and leases are strings, since readers of JSON lose digits of large numbers. Times are RFC 3339 in UTC, and
durations are seconds.

Only 'run', 'hold', 'jobs run', 'cron', 'console --write', 'doctor', 'bench' and 'conformance' open a session with a lease. Verbs that
change nothing write nothing to etcd, and need read permission alone for the
prefix of the namespace: ls, show, top, elections, jobs, jobs list, jobs check, jobs history, jobs watch, requests, requests list,
requests stats, requests get, limit without a number, export, and console without --write.

Verbs that end or delete something ask for confirmation on a terminal. Without a terminal they need
` + "`--yes`" + `. release, which is for
scripts, does not ask: an ID is known to its caller. With the token, it releases no later permit with that ID.
`)
}

// writeExitCodes writes what each exit code means.
func writeExitCodes(b *strings.Builder) {
	b.WriteString(`
## Exit codes

| code | meaning |
|---|---|
`)
	for _, c := range exit.Codes {
		code := fmt.Sprint(c.Code)
		if c.Code > 128 {
			code = "128+n"
		}
		fmt.Fprintf(b, "| %s | %s |\n", code, c.Meaning)
	}
}

// formsOf returns the page of the members of each form of JSON in the transcripts.
func formsOf(transcripts map[string]string) string {
	var b strings.Builder
	b.WriteString(`# Forms of JSON of the command etcdkit

What ` + "`-o json`" + ` prints: the members of each form that the transcripts show. A member without a kind is a text. A member
without a value may be absent. A version keeps its members and may get more. ` + "`make cli-docs`" + ` writes this page.

`)
	forms := schemasIn(transcripts)
	for _, name := range slices.Sorted(maps.Keys(forms)) {
		fmt.Fprintf(&b, "- `%s`: %v\n", name, forms[name])
	}
	return b.String()
}

// examplesIn returns the parts of transcripts, by the paths of the verbs that they execute. The executions of one verb
// in one transcript are one part.
func examplesIn(root *cobra.Command, transcripts map[string]string) map[string][]string {
	examples := map[string][]string{}
	for _, name := range slices.Sorted(maps.Keys(transcripts)) {
		parts := map[string]string{}
		path := ""
		for line := range strings.Lines(transcripts[name]) {
			if call, ok := strings.CutPrefix(line, "$ etcdkit "); ok {
				verb, _, _ := root.Find(strings.Fields(call))
				path = verb.CommandPath()
			}
			parts[path] += line
		}
		for path, part := range parts {
			examples[path] = append(examples[path], part)
		}
	}
	return examples
}

// slug is the anchor of a verb's heading.
func slug(verb *cobra.Command) string {
	return strings.ReplaceAll(verb.CommandPath(), " ", "-")
}

// writeVerb writes a verb with its examples, and the verbs below it.
func writeVerb(b *strings.Builder, cmd *cobra.Command, depth int, examples map[string][]string) {
	fmt.Fprintf(b, "\n%s %s\n\n%s.\n", strings.Repeat("#", depth), cmd.CommandPath(), cmd.Short)
	fmt.Fprintf(b, "\n    %s\n", strings.TrimSuffix(cmd.UseLine(), " [flags]"))
	if cmd.Long != "" {
		long := cmd.Long
		if cmd.Name() == "completion" || cmd.HasParent() && cmd.Parent().Name() == "completion" {
			long = indented(long) // of cobra, with lists and code
		}
		fmt.Fprintf(b, "\n%s\n", long)
	}
	if flags := flagsOf(cmd.LocalNonPersistentFlags()); len(flags) > 0 {
		b.WriteString("\n")
		writeFlags(b, flags)
	}
	if cmd.Example != "" {
		fmt.Fprintf(b, "\n%s\n", indented(cmd.Example))
	}
	for _, part := range examples[cmd.CommandPath()] {
		fmt.Fprintf(b, "\n```console\n%s```\n", aligned(part))
	}
	if cmd.Name() == "completion" {
		return // its shells are in the usage
	}
	for _, c := range verbsOf(cmd) {
		writeVerb(b, c, depth+1, examples)
	}
}

func indented(text string) string {
	return "    " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n    ")
}

// writeNames writes the names of the flags that etcdctl has, too, and returns the others.
func writeNames(b *strings.Builder, flags []flagLine) (own []flagLine) {
	var names []string
	for _, f := range flags {
		if !strings.HasPrefix(f.variable, "ETCDCTL_") {
			own = append(own, f)
			continue
		}
		name, _, _ := strings.Cut(f.name, " ")
		names = append(names, "`"+name+"`")
	}
	b.WriteString(strings.Join(names, ", "))
	return own
}

func writeFlags(b *strings.Builder, flags []flagLine) {
	variables := slices.ContainsFunc(flags, func(f flagLine) bool { return f.variable != "" })
	head, rule := "| flag | default | meaning |", "|---|---|---|"
	if variables {
		head, rule = "| flag | variable | default | meaning |", "|---|---|---|---|"
	}
	fmt.Fprintf(b, "%s\n%s\n", head, rule)
	for _, f := range flags {
		cells := []string{"`" + f.name + "`", "`" + f.variable + "`", "`" + f.initial + "`", strings.ReplaceAll(f.usage, "|", "\\|")}
		if !variables {
			cells = slices.Delete(cells, 1, 2)
		}
		fmt.Fprintf(b, "| %s |\n", strings.ReplaceAll(strings.Join(cells, " | "), "``", ""))
	}
}

// longest is how much of a line of JSON is shown.
const longest = 800

// aligned returns a transcript with the columns of its tables aligned again.
func aligned(transcript string) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
	for line := range strings.Lines(transcript) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case strings.HasPrefix(line, "{") && len(line) > longest:
			line = line[:longest] + "…"
		case strings.HasPrefix(line, "$ ") || strings.HasPrefix(line, "{") || !strings.Contains(line, "  "):
			_ = w.Flush()
		default:
			line = strings.ReplaceAll(line, "  ", "\t")
		}
		fmt.Fprintln(w, line)
	}
	_ = w.Flush()
	return b.String()
}
