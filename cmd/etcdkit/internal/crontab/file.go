package crontab

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/etcdkit/etcdkit/internal/keyspace"
)

// Job is a line of a crontab.
type Job struct {
	Line     int
	Name     string // of the comment above it: # job: NAME
	Schedule Schedule
	Command  string   // for the shell
	Input    string   // what follows the first %
	Env      []string // NAME=value, of the lines above it
	AtMost   time.Duration
	Retries  int
	LateBy   time.Duration // how late a time may still be started, or 0 if the comment does not say
	Warning  string        // what its command may be taken for, or ""
}

// Shell returns the program that runs the command.
func (j Job) Shell() string {
	if shell, ok := variable(j.Env, "SHELL"); ok {
		return shell
	}
	return "/bin/sh"
}

// Home returns the HOME of the file, or "".
func (j Job) Home() string { home, _ := variable(j.Env, "HOME"); return home }

// variable returns the value of a variable.
func variable(env []string, name string) (value string, ok bool) {
	for _, v := range slices.Backward(env) {
		if value, ok = strings.CutPrefix(v, name+"="); ok {
			return value, true
		}
	}
	return "", false
}

// Problem is why a line of a crontab is refused.
type Problem struct {
	Line int
	Text string
}

// String returns the problem with its line.
func (p Problem) String() string { return fmt.Sprintf("line %d: %s", p.Line, p.Text) }

// reader is what is known when a line is read.
type reader struct {
	zone   *time.Location // of CRON_TZ, or what is taken without it; nil for none
	env    []string
	title  string // of the comment that names the next line, and where it is
	titled int

	jobs []Job
}

// Read reads a crontab. zone is that of the lines above a CRON_TZ, or nil if these are to be refused.
func Read(text string, zone *time.Location) (jobs []Job, problems []Problem) {
	r := reader{zone: zone}
	n := 0
	text, marked := strings.CutPrefix(text, byteOrderMark)
	if marked {
		problems = append(problems, Problem{1, "it begins with a byte order mark (U+FEFF), which is a part of the first line for other crons: save the file as UTF-8 without one"})
	}
	for line := range strings.Lines(text) {
		n++
		if err := r.read(n, strings.TrimSpace(line)); err != nil {
			problems = append(problems, Problem{n, err.Error()})
		}
	}
	if r.titled > 0 {
		problems = append(problems, Problem{r.titled, "no line follows that it names"})
	}
	return r.jobs, problems
}

// byteOrderMark is what some editors begin a file with.
const byteOrderMark = "\ufeff"

// read reads a line without the blanks around it.
func (r *reader) read(n int, line string) error {
	switch {
	case line == "":
		return nil
	case line[0] == '#':
		return r.comment(n, line)
	}
	if name, value, ok := assignment(line); ok {
		if !variableName.MatchString(name) {
			return fmt.Errorf("%q is no name of a variable: it has letters from a to z, digits and _, and does not begin with a digit", name)
		}
		return r.assign(name, value)
	}
	title, titled := r.title, r.titled
	r.title, r.titled = "", 0
	j, err := r.line(line)
	if err != nil {
		return err
	}
	if j.Line = n; titled == 0 {
		return errors.New("it has no name: write a comment above it, # job: NAME; the name stays when the line is changed")
	}
	if err := j.entitle(title); err != nil {
		return err
	}
	if i := slices.IndexFunc(r.jobs, func(other Job) bool { return other.Name == j.Name }); i >= 0 {
		return fmt.Errorf("the name %q is that of line %d already", j.Name, r.jobs[i].Line)
	}
	r.jobs = append(r.jobs, j)
	return nil
}

// comment reads a comment, which may name the next line.
func (r *reader) comment(n int, line string) error {
	title, ok := strings.CutPrefix(strings.TrimSpace(strings.TrimLeft(line, "#")), "job:")
	if !ok {
		return nil
	}
	if r.titled > 0 {
		return fmt.Errorf("line %d names the next line already", r.titled)
	}
	r.title, r.titled = title, n
	return nil
}

// entitle reads the name of a line and its options: NAME at-most=2h retries=1 late-by=1h.
func (j *Job) entitle(title string) (err error) {
	words := strings.Fields(title)
	if len(words) == 0 {
		return errors.New("the comment above it has no name: # job: NAME")
	}
	j.Name = words[0]
	if err := keyspace.CheckJob(j.Name); err != nil {
		return fmt.Errorf("the name in the comment above it: %w", err)
	}
	for _, option := range words[1:] {
		name, value, _ := strings.Cut(option, "=")
		switch name {
		case "at-most":
			if j.AtMost, err = time.ParseDuration(value); err != nil || j.AtMost < time.Millisecond {
				return fmt.Errorf("at-most=%s is no duration, such as at-most=2h", value)
			}
		case "late-by":
			if j.LateBy, err = time.ParseDuration(value); err != nil || j.LateBy < time.Millisecond {
				return fmt.Errorf("late-by=%s is no duration, such as late-by=1h", value)
			}
		case "retries":
			if j.Retries, err = strconv.Atoi(value); err != nil || j.Retries < 0 || j.Retries > 1000 {
				return fmt.Errorf("retries=%s is no number from 0 to 1000", value)
			}
		default:
			return fmt.Errorf("%q is no option of a line; at-most=DURATION, retries=N and late-by=DURATION are, and a name has no blanks", option)
		}
	}
	return nil
}

// variableName is what the names of variables look like, for each shell.
var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// assignment splits a line that sets a variable, of whatever name: a line with a schedule has a blank before its first =,
// or begins as its minute does.
func assignment(line string) (name, value string, ok bool) {
	name, value, ok = strings.Cut(line, "=")
	name = unquoted(strings.TrimSpace(name))
	if !ok || strings.ContainsAny(name, " \t") || strings.ContainsAny(line[:1], "0123456789*@-") {
		return "", "", false
	}
	return name, unquoted(strings.TrimSpace(value)), true
}

// unquoted returns a text without the quotes around it.
func unquoted(text string) string {
	if n := len(text); n > 1 && (text[0] == '"' || text[0] == '\'') && text[n-1] == text[0] {
		return text[1 : n-1]
	}
	return text
}

// assign sets a variable for the lines below.
func (r *reader) assign(name, value string) error {
	switch name {
	case "CRON_TZ":
		loc, err := time.LoadLocation(value)
		if err != nil || value == "" || value == "Local" {
			return fmt.Errorf("CRON_TZ=%s is no time zone that all machines know, such as Europe/Berlin", value)
		}
		r.zone = loc
		return nil
	case "MAILTO", "MAILFROM":
		if value != "" {
			return fmt.Errorf("%s: no mail is sent; the output of a command is that of etcdkit cron, and 'etcdkit jobs history' has its exit code: write MAILTO=\"\"", name)
		}
		return nil
	case "RANDOM_DELAY":
		return errors.New("RANDOM_DELAY: each machine would choose another time, and one of them starts a line in any case")
	case "LOGNAME", "USER":
		return fmt.Errorf("%s: commands run as the user of etcdkit cron", name)
	}
	r.env = append(slices.Clip(r.env), name+"="+value)
	return nil
}

// line reads a schedule and a command.
func (r *reader) line(line string) (j Job, err error) {
	fields := 5
	if line[0] == '@' {
		fields = 1
	}
	rest := line
	for range fields {
		rest = strings.TrimLeft(rest, " \t")
		if i := strings.IndexAny(rest, " \t"); i < 0 {
			rest = ""
		} else {
			rest = rest[i:]
		}
	}
	spec, command := strings.TrimSpace(line[:len(line)-len(rest)]), strings.TrimSpace(rest)
	if r.zone == nil {
		return j, errors.New("its time zone is not known: write CRON_TZ=Europe/Berlin above it, or give --zone, since machines may have other zones")
	}
	if j.Schedule, err = Parse(spec, r.zone); err != nil {
		return j, err
	}
	if command == "" {
		return j, errors.New("it has no command")
	}
	if j.Warning, err = checkCommand(command); err != nil {
		return j, err
	}
	j.Command, j.Input = split(command)
	j.Env = r.env
	return j, nil
}

// account is what the names of accounts look like, and most names of programs.
var account = regexp.MustCompile(`^[a-z_][a-z0-9_-]*$`)

// checkCommand refuses what begins as the lines of other formats do, and returns a warning about what may. It depends on
// the line alone: a file is good or bad on all machines, whatever accounts they have.
func checkCommand(command string) (warning string, err error) {
	words := strings.Fields(command)
	first, second := words[0], ""
	if len(words) > 1 {
		second = words[1]
	}
	switch {
	case strings.Trim(first, "*/0123456789,-?") == "":
		return "", fmt.Errorf("%q is a sixth field: a schedule has five, minute first, and no seconds or years", first)
	case first == "root" && second != "" && second[0] != '-':
		return "", errors.New(`"root" is an account, as in the sixth column of /etc/crontab: commands run as the user of etcdkit cron; leave it out, or write the path of a program of that name`)
	case account.MatchString(first) && strings.HasPrefix(second, "/"):
		return fmt.Sprintf("%q comes before a path: if it is an account, as in the sixth column of /etc/crontab, leave it out; commands run as the user of etcdkit cron", first), nil
	}
	return "", nil
}

// split divides a command at its first %: what follows is its input, in which each % is a line end. \% is a %. As in cronie the
// input gets a line end if it has none at its end; a backslash there is not looked at.
func split(text string) (command, input string) {
	var out [2]strings.Builder
	part := 0
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\' && i+1 < len(text) && text[i+1] == '%':
			out[part].WriteByte('%')
			i++
		case c == '%' && part == 0:
			part = 1
		case c == '%':
			out[1].WriteByte('\n')
		default:
			out[part].WriteByte(c)
		}
	}
	if last := strings.TrimRight(out[1].String(), `\`); last != "" && !strings.HasSuffix(last, "\n") {
		out[1].WriteByte('\n')
	}
	return strings.TrimSpace(out[0].String()), out[1].String()
}
