package pagecode

import (
	"regexp"
	"strings"
)

// Step is what a transcript types, and what it shows of the output.
type Step struct {
	Line  int
	Typed string
	Shown string
}

// Steps returns those of a transcript. A command that ends with a backslash has more in the next line.
func (b Block) Steps() (all []Step) {
	open := false // the last command has more
	for i, line := range strings.Split(strings.TrimSuffix(b.Text, "\n"), "\n") {
		typed, begins := strings.CutPrefix(line, "$ ")
		switch last := len(all) - 1; {
		case begins:
			all = append(all, Step{Line: b.Line + i, Typed: typed})
		case last < 0:
			continue // it shows something before the first command
		case open:
			all[last].Typed += "\n" + line
			typed = line
		default:
			all[last].Shown += line + "\n"
		}
		open = (begins || open) && strings.HasSuffix(typed, `\`)
	}
	return all
}

// Shows reports whether a page shows what was printed. On the page … stands for any text within a line, alone on a line
// for any lines, and white space for any.
func Shows(shown, printed string) bool {
	var lines []string
	for line := range strings.Lines(shown) {
		line = strings.Join(strings.Fields(line), " ")
		if line == "…" {
			lines = append(lines, `(?:.*\n)*`)
			continue
		}
		parts := strings.Split(line, "…")
		for i, part := range parts {
			parts[i] = regexp.QuoteMeta(part)
		}
		lines = append(lines, strings.Join(parts, ".*")+`\n`)
	}
	text := ""
	for line := range strings.Lines(printed) {
		text += strings.Join(strings.Fields(line), " ") + "\n"
	}
	return regexp.MustCompile(`^` + strings.Join(lines, "") + `$`).MatchString(text)
}
