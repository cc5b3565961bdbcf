package pagecode

import (
	"regexp"
	"slices"
	"strings"
)

// Call is one call of a program.
type Call struct {
	Line  int
	Words []string // the program and its arguments, without quotes, redirections and assignments
	// Span reports that the text has it between backquotes: it may be the name of a verb alone.
	Span bool
}

// programs are those by which a block without a language, and code within the text, are known as commands.
var programs = []string{"etcdkit", "etcdkit-dev", "etcdctl", "etcdutl", "make", "go", "docker", "curl", "cd", "source", "systemctl", "docs/model/run"}

// Shell reports whether a reader types all of a block.
func (b Block) Shell() bool {
	switch {
	case b.Lang == "sh" || b.Lang == "bash":
		return true
	case b.Fenced:
		return false
	}
	first, _, _ := strings.Cut(b.Text, "\n")
	calls, _ := script(first+"\n", 1)
	return len(calls) > 0 && slices.Contains(programs, calls[0].Words[0])
}

// Transcript reports whether a block shows what is typed, behind "$ ", and what is printed.
func (b Block) Transcript() bool { return b.Fenced && !b.Shell() && strings.HasPrefix(b.Text, "$ ") }

// placeholder is what a page writes for a word that its reader knows: <lease>.
var placeholder = regexp.MustCompile(`<([a-z]+)>`)

// Calls returns the calls of a page: those of scripts, of transcripts, and those that its text names. A function
// that a script of the page defines is no program.
func (p Page) Calls() (all []Call) {
	var functions []string
	add := func(text string, line int) {
		calls, defined := script(text, line)
		all, functions = append(all, calls...), append(functions, defined...)
	}
	for _, b := range p.Blocks {
		switch {
		case b.Shell():
			add(b.Text, b.Line)
		case b.Transcript():
			for i, line := range strings.Split(b.Text, "\n") {
				if typed, ok := strings.CutPrefix(line, "$ "); ok {
					add(typed, b.Line+i)
				}
			}
		}
	}
	all = slices.DeleteFunc(all, func(c Call) bool { return slices.Contains(functions, c.Words[0]) })
	for _, s := range p.spans {
		calls, _ := script(placeholder.ReplaceAllString(s.Text, "$1"), s.Line)
		if len(calls) > 0 && len(calls[0].Words) > 1 && slices.Contains(programs, calls[0].Words[0]) {
			for _, c := range calls {
				c.Span = true
				all = append(all, c)
			}
		}
	}
	return all
}

// shell reads a script.
type shell struct {
	text  string
	at    int
	line  int
	calls []Call
	owned []string // functions that it defines
	here  []string // words that end the here-documents of this line
}

// script returns the calls of a script whose first line is line, and the names of the functions that it defines.
func script(text string, line int) (calls []Call, functions []string) {
	s := &shell{text: text, line: line}
	s.list(0)
	return s.calls, s.owned
}

// list reads commands up to a closing parenthesis, or to the end.
func (s *shell) list(closing byte) {
	c := command{line: s.line}
	for s.at < len(s.text) {
		b := s.text[s.at]
		s.at++
		switch {
		case b == closing:
			s.end(&c)
			return
		case b == ' ' || b == '\t':
			c.endWord()
		case b == '\n':
			s.end(&c)
			s.line++
			s.skipHere()
			c.line = s.line
		case b == ';' || b == '|' || b == '&':
			s.end(&c)
		case b == '#' && !c.inWord:
			s.until('\n')
		case b == '(':
			if s.peek() == ')' {
				s.at++
				s.owned, c = append(s.owned, c.word), command{line: s.line}
				continue
			}
			s.end(&c)
			s.list(')')
		case b == '<' || b == '>':
			s.redirect(b, &c)
		case b == '\\' && s.peek() == '\n':
			s.at++
			s.line++
		default:
			s.inWord(b, &c)
		}
	}
	s.end(&c)
}

// inWord reads a character that is part of a word, with what is quoted or substituted.
func (s *shell) inWord(b byte, c *command) {
	c.inWord = true
	switch {
	case b == '\\':
		c.word += string(s.peek())
		s.at++
	case b == '\'':
		c.word += s.until('\'')
		s.at++
	case b == '"':
		for s.at < len(s.text) && s.peek() != '"' {
			s.at++
			s.quoted(s.text[s.at-1], c)
		}
		s.at++
	default:
		s.quoted(b, c)
	}
}

// quoted reads a character that double quotes would leave its meaning.
func (s *shell) quoted(b byte, c *command) {
	if b == '$' && s.peek() == '(' {
		s.at++
		c.word += "$(…)"
		s.list(')')
		return
	}
	if b == '\n' {
		s.line++
	}
	c.word += string(b)
}

func (s *shell) peek() byte {
	if s.at < len(s.text) {
		return s.text[s.at]
	}
	return 0
}

// until returns the text in front of a character, and stops there.
func (s *shell) until(b byte) string {
	rest := s.text[s.at:]
	if n := strings.IndexByte(rest, b); n >= 0 {
		rest = rest[:n]
	}
	s.at += len(rest)
	s.line += strings.Count(rest, "\n")
	return rest
}

// redirect skips a redirection, and reads the commands of a process substitution.
func (s *shell) redirect(b byte, c *command) {
	if s.peek() == '(' {
		s.at++
		c.word, c.inWord = c.word+"/dev/fd", true
		s.list(')')
		return
	}
	if strings.Trim(c.word, "0123456789") == "" {
		c.word, c.inWord = "", false // 2>
	}
	c.endWord()
	here := b == '<' && s.peek() == '<'
	for strings.IndexByte("<>&- ", s.peek()) >= 0 && s.at < len(s.text) {
		s.at++
	}
	var target command
	for s.at < len(s.text) && strings.IndexByte(" \n;|&)", s.peek()) < 0 {
		s.at++
		s.inWord(s.text[s.at-1], &target)
	}
	if here {
		s.here = append(s.here, target.word)
	}
}

// skipHere skips the here-documents that begin on this line.
func (s *shell) skipHere() {
	for _, word := range s.here {
		for s.at < len(s.text) {
			line := s.until('\n')
			s.at++
			s.line++
			if strings.TrimSpace(line) == word {
				break
			}
		}
	}
	s.here = nil
}

// command is one that is being read.
type command struct {
	line   int
	words  []string
	word   string
	inWord bool
}

func (c *command) endWord() {
	if c.inWord {
		c.words = append(c.words, c.word)
	}
	c.word, c.inWord = "", false
}

var (
	assignment = regexp.MustCompile(`^[A-Za-z_]\w*=`)
	keywords   = []string{"do", "then", "else", "until", "if", "while", "!", "{", "time", "sudo"}
	silent     = []string{"for", "done", "fi", "}", "export", "[[", "["} // no program of the page's
)

// end ends a command. That of ssh is another one.
func (s *shell) end(c *command) {
	c.endWord()
	words := c.words
	for len(words) > 0 && (slices.Contains(keywords, words[0]) || assignment.MatchString(words[0])) {
		words = words[1:]
	}
	if len(words) > 1 && words[0] == "ssh" {
		s.calls = append(s.calls, Call{Line: c.line, Words: words[:2]})
		calls, _ := script(strings.Join(words[2:], " "), c.line) // which its shell reads anew
		s.calls = append(s.calls, calls...)
	} else if len(words) > 0 && !slices.Contains(silent, words[0]) {
		s.calls = append(s.calls, Call{Line: c.line, Words: words})
	}
	*c = command{line: s.line}
}
