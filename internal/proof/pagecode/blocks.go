package pagecode

import (
	"regexp"
	"strings"
)

// Block is a fenced or an indented block of code.
type Block struct {
	Line   int    // of its first line of code, from 1
	Lang   string // what the fence says; empty for an indented block
	Fenced bool
	Text   string // without the indentation of an indented block
}

// Title is the first line of a block that is not empty, by which lists name it.
func (b Block) Title() string {
	for line := range strings.Lines(b.Text) {
		if line = strings.TrimSpace(line); line != "" {
			return line
		}
	}
	return ""
}

var (
	fence    = regexp.MustCompile("^(```+|~~~+)(.*)$")
	indented = regexp.MustCompile(`^(    |\t)`)
	span     = regexp.MustCompile("`([^`\n]+)`")
)

// Page is a page that was parsed.
type Page struct {
	Blocks []Block
	spans  []Block // code within the text
}

// Parse returns the blocks of a page, and keeps the code within its text for Calls.
func Parse(page string) Page {
	var p Page
	var open *Block
	end := ""
	lines := strings.Split(page, "\n")
	for i, line := range lines {
		m := fence.FindStringSubmatch(line)
		switch {
		case end != "" && m != nil && m[1] == end && m[2] == "":
			p.Blocks, open, end = append(p.Blocks, *open), nil, ""
		case end != "":
			open.Text += line + "\n"
		case m != nil:
			p.close(&open)
			open, end = &Block{Line: i + 2, Lang: strings.TrimSpace(m[2]), Fenced: true}, m[1]
		case indented.MatchString(line) && (open != nil || i == 0 || strings.TrimSpace(lines[i-1]) == ""):
			if open == nil {
				open = &Block{Line: i + 1}
			}
			open.Text += indented.ReplaceAllString(line, "") + "\n"
		case open != nil && strings.TrimSpace(line) == "": // a block may have empty lines
			open.Text += "\n"
		default:
			p.close(&open)
			for _, m := range span.FindAllStringSubmatch(line, -1) {
				p.spans = append(p.spans, Block{Line: i + 1, Text: m[1]})
			}
		}
	}
	p.close(&open)
	return p
}

// close ends a block that is open, without the empty lines behind it.
func (p *Page) close(open **Block) {
	if b := *open; b != nil {
		b.Text = strings.TrimRight(b.Text, "\n") + "\n"
		p.Blocks = append(p.Blocks, *b)
	}
	*open = nil
}
