/* A year of cronie 1.7.2 (see generate.sh): its main loop, its parser and its queue of jobs as they are, under a clock that
 * passes by its own sleep, and with a command that is written down in place of run. */
#define _GNU_SOURCE
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static time_t now, end;
static time_t clock_time(time_t *t) { if (t) *t = now; return now; }

#define time(t) clock_time(t)
#define sleep(s) clock_sleep(s)
#define main crond
static unsigned clock_sleep(unsigned seconds);
#include "cron.c"
#undef main

static unsigned clock_sleep(unsigned seconds) {
	now += seconds;
	if (now >= end)
		got_sigintterm = 1;
	return 0;
}

/* What a daemon does to its machine. */
void acquire_daemonlock(int closeflag) { (void) closeflag; }
void set_cron_uid(void) {}
void check_spool_dir(void) {}
void check_orphans(cron_db *db) { (void) db; }
void log_it(const char *user, PID_T pid, const char *event, const char *detail, int err) {
	(void) user, (void) pid, (void) event, (void) detail, (void) err;
}
void log_close(void) {}

static struct passwd account = {.pw_name = "year", .pw_passwd = "", .pw_dir = "/", .pw_shell = "/bin/sh", .pw_gecos = ""};
struct passwd *account_by_name(const char *name) { (void) name; return &account; }

static const char *tab;
static void refused(const char *why) { fprintf(stderr, "%s: %s\n", tab, why); exit(1); }

/* The database is one file, in which each command is the number of its line. */
int load_database(cron_db *db) {
	static user u;
	FILE *f;
	entry *e;
	char *none = NULL;
	if (db->head)
		return 0;
	if (!(f = fopen(tab, "r")))
		refused("cannot be read");
	while ((e = load_entry(f, refused, &account, &none))) {
		e->next = u.crontab;
		u.crontab = e;
	}
	u.name = u.tabname = "year";
	db->head = db->tail = &u;
	return 1;
}

void do_command(entry *e, user *u) {
	(void) u;
	printf("%s %lld\n", e->cmd, (long long) now);
}

/* cronie pauses for ten seconds after each minute of a burst in which something was run. Lines of one file would delay each
 * other. */
extern int run_queue(void);
int job_runqueue(void) { run_queue(); return 0; }

int main(int argc, char **argv) {
	char *args[] = {"crond", "-n", "-i", "-s", NULL};
	if (argc != 4)
		return 2;
	tab = argv[1];
	now = atoll(argv[2]);
	end = atoll(argv[3]);
	crond(4, args);
	return 0;
}
