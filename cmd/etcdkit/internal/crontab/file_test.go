package crontab

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A file with everything that a line can have.
func TestRead(t *testing.T) {
	t.Parallel()
	jobs, problems := Read(`# the night
SHELL = "/bin/bash"
PATH=/usr/local/bin:/usr/bin
MAILTO=""
CRON_TZ=Europe/Berlin

# job: backup at-most=2h retries=1 late-by=30m
30 2 * * *	/usr/local/bin/backup --all
 # two blanks, and a comment between
 ## job: report
# of the shop
@daily  report "a=b" | mail -s 'the 7\%' ops%first line%second \% line
CRON_TZ='America/New_York'
PATH = '/opt/bin'
# job: import
*/15 9-17 * * mon-fri backup --weekly
`, nil)
	require.Empty(t, problems)
	require.Len(t, jobs, 3)
	var got []string
	for _, j := range jobs {
		got = append(got, fmt.Sprintf("%d %s %s | %s | %q | %s %v %d %v | %s", j.Line, j.Name, j.Schedule, j.Command, j.Input, strings.Join(j.Env, " "), j.AtMost, j.Retries, j.LateBy, j.Shell()))
	}
	require.Equal(t, []string{
		`8 backup CRON_TZ=Europe/Berlin 30 2 * * * | /usr/local/bin/backup --all | "" | SHELL=/bin/bash PATH=/usr/local/bin:/usr/bin 2h0m0s 1 30m0s | /bin/bash`,
		`12 report CRON_TZ=Europe/Berlin @daily | report "a=b" | mail -s 'the 7%' ops | "first line\nsecond % line\n" | SHELL=/bin/bash PATH=/usr/local/bin:/usr/bin 0s 0 0s | /bin/bash`,
		`16 import CRON_TZ=America/New_York */15 9-17 * * mon-fri | backup --weekly | "" | SHELL=/bin/bash PATH=/usr/local/bin:/usr/bin PATH=/opt/bin 0s 0 0s | /bin/bash`,
	}, got)
	require.Equal(t, "/bin/sh", Job{}.Shell())
	require.Equal(t, "/srv", Job{Env: []string{"HOME=/", "HOME=/srv"}}.Home())
}

// A668: the input of a command is that of cronie 1.7 (write_data of do_command.c): a line end is added only if the last character
// is none.
func TestInputOfACommand(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"x":            "",
		"x%":           "",
		"x%%":          "\n",
		"x%a":          "a\n",
		"x%a%":         "a\n",
		"x%a%%":        "a\n\n",
		"x%a%b":        "a\nb\n",
		"x%%b":         "\nb\n",
		`x%\%`:         "%\n",
		`x%a%\%`:       "a\n%\n",
		`x%a\b`:        "a\\b\n",
		`x%a\`:         "a\\\n",
		`x%a%\`:        "a\n\\",
		`x%\`:          `\`,
		`x \% y%1\%%2`: "1%\n2\n",
	} {
		jobs, problems := Read("# job: a\n0 1 * * * "+text, time.UTC)
		require.Empty(t, problems, text)
		require.Equal(t, want, jobs[0].Input, text)
	}
}

// An edited line is the same job, and two equal lines are two.
func TestNamesStayWithTheirLines(t *testing.T) {
	t.Parallel()
	names := func(text string) (out []string) {
		jobs, problems := Read(text, time.UTC)
		require.Empty(t, problems)
		for _, j := range jobs {
			out = append(out, j.Name)
		}
		return out
	}
	require.Equal(t, []string{"a", "b"}, names("# job: a\n0 1 * * * x\n# job: b\n0 1 * * * x\n"))
	require.Equal(t, []string{"b", "a"}, names("# job: b\n0 1 * * * x\n\n# job: a\n5 4 * * * x --changed"))
}

// What is refused, by the number of its line.
func TestReadRefuses(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"0 1 * * * x":                                  "line 1: it has no name",
		"# job: a\n\n# job: b\n0 1 * * * x":            "line 3: line 1 names the next line already",
		"# job: a\n0 1 * * * x\n# job: a\n0 2 * * * x": `line 4: the name "a" is that of line 2 already`,
		"# job: a":                       "line 1: no line follows",
		"# job:\n0 1 * * * x":            "line 2: the comment above it has no name",
		"# job: pr\xfcfung\n0 1 * * * x": `line 2: the name in the comment above it: "pr\xfcfung" is not valid UTF-8`,
		"# job: " + strings.Repeat("a", 256) + "\n0 1 * * * x": "line 2: the name in the comment above it: ",
		"# job: a retries=x\n0 1 * * * x":                      "line 2: retries=x is no number",
		"# job: a at-most=2\n0 1 * * * x":                      "line 2: at-most=2 is no duration",
		"# job: a late-by=x\n0 1 * * * x":                      "line 2: late-by=x is no duration, such as late-by=1h",
		"# job: a late-by=0s\n0 1 * * * x":                     "line 2: late-by=0s is no duration",
		"# job: a b\n0 1 * * * x":                              `line 2: "b" is no option`,
		"# job: a\n0 1 * * *":                                  "line 2: it has no command",
		"# job: a\n0 1 * *":                                    "line 2: \"0 1 * *\" has 4 fields",
		"# job: a\n@reboot x":                                  "line 2: @reboot",
		"# job: a\n*/90 * * * * x":                             `line 2: minute "*/90"`,
		"# job: a\n-5 1 * * * x":                               "line 2: minute \"-5\"",
		"# job: a\n0 1 * * * root /usr/bin/x":                  `line 2: "root" is an account, as in the sixth column of /etc/crontab`,
		"# job: a\n0 1 * * * root\tcd /":                       `line 2: "root" is an account`,
		"# job: a\n0 0 1 * * * x":                              `line 2: "*" is a sixth field`,
		"# job: a\n0 0 1 1 * 2027 x":                           `line 2: "2027" is a sixth field`,
		"MAILTO=ops@example.com":                               "line 1: MAILTO: no mail is sent",
		"RANDOM_DELAY=45":                                      "line 1: RANDOM_DELAY",
		"LOGNAME=ada":                                          "line 1: LOGNAME",
		"CRON_TZ=Mars":                                         "line 1: CRON_TZ=Mars is no time zone",
		"CRON_TZ=":                                             "line 1: CRON_TZ= is no time zone",
		"\ufeffCRON_TZ=UTC":                                    "line 1: it begins with a byte order mark",
		"A=1\n\ufeffCRON_TZ=UTC":                               `line 2: "\ufeffCRON_TZ" is no name of a variable`,
		"é=1":                                                  `line 1: "é" is no name of a variable`,
		"A.B=1":                                                `line 1: "A.B" is no name of a variable`,
		"A-B = 1":                                              `line 1: "A-B" is no name of a variable`,
		"=1":                                                   `line 1: "" is no name of a variable`,
	} {
		_, problems := Read(text, time.UTC)
		require.Len(t, problems, 1, text)
		require.Contains(t, problems[0].String(), want, text)
	}
	_, problems := Read("# job: a\n0 1 * * * x", nil)
	require.Contains(t, fmt.Sprint(problems), "line 2: its time zone is not known")
}

// A line is good or bad on all machines alike, whatever accounts they have; what could be an account is a warning.
func TestFirstWordOfACommand(t *testing.T) {
	t.Parallel()
	for command, warned := range map[string]bool{
		"backup /data":             true, // Debian has such an account
		"www-data  /usr/bin/x":     true,
		"deploy\t/srv/run.sh":      true,
		"git pull":                 false,
		"backup --weekly /data":    false,
		"/usr/bin/backup /data":    false,
		"A=b backup /data":         false,
		"root":                     false,
		"root -b /srv/macro.C":     false,
		"rooted /usr/bin/x-of-you": true,
	} {
		jobs, problems := Read("# job: a\n0 1 * * * "+command, time.UTC)
		require.Empty(t, problems, command)
		if warned {
			require.Contains(t, jobs[0].Warning, "comes before a path", command)
		} else {
			require.Empty(t, jobs[0].Warning, command)
		}
	}
}

// Whatever a file has, reading it ends, and each job has what it needs.
func FuzzRead(f *testing.F) {
	f.Add("# job: a at-most=1h\n*/5 1-3,7 * jan sun x % y\nA = 'b'\n@daily")
	f.Fuzz(func(t *testing.T, text string) {
		jobs, _ := Read(text, time.UTC)
		for _, j := range jobs {
			require.NotEmpty(t, j.Name)
			at := time.Date(2026, 11, 28, 0, 0, 0, 0, time.UTC)
			next := j.Schedule.Next(at)
			require.True(t, next.IsZero() || next.After(at))
		}
	})
}
