package exit

// The exit codes. Those from 64 on are of sysexits.h where it has one. `run` exits with the code of its
// command otherwise, or with 128 and the number of the signal that has ended it.
const (
	OK          = 0
	Failed      = 1  // not found, in another state, or an error of etcd's
	Usage       = 64 // a flag or an argument is wrong; nothing was sent to etcd, or nothing was changed
	Unreachable = 69 // etcd does not answer: it is not known whether something was changed
	NotAcquired = 75 // no permit was granted; a repetition may succeed
	Lost        = 76 // the permit was lost while it was needed
	Denied      = 77 // etcd denies permission
	NotRunnable = 126
	NotFound    = 127
	GuardKilled = 128 + 9  // the guard was killed, and the command with it
	NoReader    = 128 + 13 // no process reads the output any more
)

// Codes are the exit codes of all verbs, for the documentation.
var Codes = []struct {
	Code    int
	Meaning string
}{
	{OK, "done"},
	{Failed, "not found, in another state, or an error of etcd's"},
	{Usage, "a flag or an argument is wrong, --limit is not the stored limit, or a confirmation is missing: nothing was changed"},
	{Unreachable, "etcd does not answer: it is not known whether something was changed"},
	{NotAcquired, "no permit was granted, or a scheduled command was not run; a repetition may succeed"},
	{Lost, "the permit was lost while it was needed"},
	{Denied, "etcd denies permission"},
	{NotRunnable, "the command of run could not be started, or ulimit -u leaves too few processes for it"},
	{NotFound, "the command of run was not found"},
	{128 + 15, "128 and the number of the signal that has ended the verb, as 130 for ^C; 0 for console, export and cron"},
}
