// Package guard runs a command that must be dead before a deadline, which its caller moves on for as long
// as it may.
//
// Two processes keep that promise, each if the other fails. The front process is the caller: it knows until
// when a permit is trusted. It starts the guard, which starts the command. Both are subreapers, so every
// process that the command starts stays below them, with a session of its own or without. When the
// deadline has passed, or the caller asks for it, the guard sends SIGTERM to all of these processes, and
// SIGKILL after the grace. If the front process is killed, the guard kills them at once; if it is stopped,
// at the deadline. If the guard is killed, the front process kills them at once; if it is stopped, when the
// grace has passed.
//
// A process with several commands has a front process for each, as its child: see Remote.
//
// The caller learns when the command has exited, and when no process is left that it has started.
//
// Not promised: an end of the command
//   - if both processes are killed: then only the command itself dies with the guard, not what it has started;
//   - if both are stopped and the command is not, or one is killed and the other is stopped;
//   - of a process in uninterruptible sleep, which no signal ends; or of one that this user may not signal,
//     such as a setuid program: Event.Refused reports that;
//   - of what another process starts on the command's behalf, such as a container of a daemon's;
//   - of what a process leaves behind that has entered another PID namespace, as by nsenter(1);
//   - of a process that /proc does not show (mounted with hidepid), which is one that this user may not
//     signal: without a report;
//   - in time, of a program whose processes fork and exit faster than the guard can kill orphans.
//
// On systems other than Linux, and with the /proc of another PID namespace, Supported returns an error that says so.
package guard
