package main

import (
	"errors"
	"fmt"
	"strings"
)

// section is one procedure of the page.
type section struct {
	title  string
	script string // its commands, all blocks after each other
	keeps  bool   // it says that no session is lost
	fill   bool   // etcd is filled up to its quota before it
}

// The page says by these words what a run has to see or to do.
const (
	keepsWords = "No session is lost"
	restore    = "Restore" // its title: all tokens after it are above those before
	fillWords  = "<!-- make runbook fills etcd up to its quota here -->"
)

// sections reads the procedures of a page: what is below a heading of level two, with the blocks of sh.
func sections(page string) (found []section, err error) {
	var code *strings.Builder
	for line := range strings.Lines(page) {
		text := strings.TrimRight(line, "\n")
		switch title, heading := strings.CutPrefix(text, "## "); {
		case code != nil && text == "```":
			found[len(found)-1].script += code.String()
			code = nil
		case code != nil:
			code.WriteString(line)
		case heading:
			found = append(found, section{title: title})
		case text == "```sh" && len(found) == 0:
			return nil, errors.New("a block of commands comes before the first section")
		case text == "```sh":
			code = &strings.Builder{}
		case len(found) > 0:
			s := &found[len(found)-1]
			s.keeps = s.keeps || strings.Contains(text, keepsWords)
			s.fill = s.fill || text == fillWords
		}
	}
	if code != nil {
		return nil, fmt.Errorf("section %q: a block of commands has no end", found[len(found)-1].title)
	}
	return found, nil
}

// script joins sections to one script of bash, which says on file descriptor 9 where it is, and waits
// there for an answer. The command systemctl uses that descriptor too, for the services.
func script(of []section) string {
	var b strings.Builder
	b.WriteString("set -Eeuo pipefail\ntrap 'echo \"failed: $BASH_COMMAND\" >&2' ERR\nsay() { echo \"$*\" >&9; local answer; read -r answer <&9; [[ $answer == ok ]]; }\n")
	for _, s := range of {
		fmt.Fprintf(&b, "say begin %s\n%s\nsay end %[1]s\n", s.title, s.script)
	}
	return b.String()
}
