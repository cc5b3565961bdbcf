#!/usr/bin/env bash
# Guess: cron follows the zone of its machine: when a country changes its standard time, "30 2 * * *" fires at 02:30 of the new
#   time from the next night on, as it does after summer time.
# Really: cronie asks for the offset from UTC when it starts, and again when tm_isdst changes, not when the offset does. On
#   1 March 2024 Almaty went from +6 to +5, both without summer time: the line fires at 01:30 until cronie is started again.
#   In Antarctica/Casey, which has changed its standard time by three hours twice a year, it is 23:30 for half a year.
# Versions: cronie 1.7.2 (its own loop and parser, under a clock that does not wait), the machine's zones (tzdata 2024a or later)
# Source: src/cron.c (set_time): "if (initialize || tm.tm_isdst != isdst)".
set -euo pipefail
d=$(mktemp -d); trap 'rm -rf "$d"' EXIT; cd "$d"
curl -fsSLo cronie.tar.gz http://deb.debian.org/debian/pool/main/c/cronie/cronie_1.7.2.orig.tar.gz
echo 'f1da374a15ba7605cf378347f96bc8b678d3d7c0765269c8242cfe5b0789c571  cronie.tar.gz' | sha256sum -c --quiet
tar xzf cronie.tar.gz
cd cronie-1.7.2
./configure --quiet --without-selinux --without-inotify --without-pam >/dev/null
make -s cron-paths.h >/dev/null
cat > src/probe.c <<'C'
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static time_t now, end;
static time_t clock_time(time_t *t) { if (t) *t = now; return now; }
static unsigned clock_sleep(unsigned seconds);
#define time(t) clock_time(t)
#define sleep(s) clock_sleep(s)
#define main crond
#include "cron.c"
#undef main

static unsigned clock_sleep(unsigned seconds) {
	if ((now += seconds) >= end)
		got_sigintterm = 1;
	return 0;
}

void acquire_daemonlock(int closeflag) { (void) closeflag; }
void set_cron_uid(void) {}
void check_spool_dir(void) {}
void check_orphans(cron_db *db) { (void) db; }
void log_it(const char *u, PID_T p, const char *e, const char *d, int x) { (void) u, (void) p, (void) e, (void) d, (void) x; }
void log_close(void) {}
static void refused(const char *why) { fprintf(stderr, "%s\n", why); exit(1); }

int load_database(cron_db *db) {
	static struct passwd account = {.pw_name = "root", .pw_passwd = "", .pw_dir = "/", .pw_shell = "/bin/sh", .pw_gecos = ""};
	static user u = {.name = "root", .tabname = "tab"};
	char *none = NULL;
	if (db->head)
		return 0;
	u.crontab = load_entry(fopen("tab", "r"), refused, &account, &none);
	db->head = db->tail = &u;
	return 1;
}

void do_command(entry *e, user *u) {
	char text[64];
	(void) e, (void) u;
	strftime(text, sizeof text, "%d %b %H:%M %z", localtime(&now));
	puts(text);
}

int main(int argc, char **argv) {
	char *args[] = {"crond", "-n", "-i", "-s", NULL};
	now = atoll(argv[1]), end = atoll(argv[2]);
	return crond(4, args);
}
C
cc="gcc -O1 -w -DHAVE_CONFIG_H -I. -Isrc"
for f in src/probe src/entry src/env src/pw_dup src/job cronie_common; do $cc -c $f.c -o "$(basename $f).o"; done
unused=; for f in acquire_daemonlock set_cron_uid check_spool_dir log_it log_close; do unused+=" -D$f=unused_$f"; done
$cc $unused -c src/misc.c -o misc.o
gcc probe.o entry.o env.o pw_dup.o job.o cronie_common.o misc.o -o probe
echo '30 2 * * * true' > tab
run() { TZ=Asia/Almaty ./probe "$(date -ud "$1" +%s)" "$(date -ud "$2" +%s)"; }
echo "started on 27 February:"; run 2024-02-27 '2024-03-02 12:00' | tee all
echo "started on 1 March:"; run '2024-03-01 12:00' '2024-03-02 12:00' | tee anew
if [[ $(tail -1 all) != "02 Mar 01:30 +0500" || $(tail -1 anew) != "02 Mar 02:30 +0500" ]]; then echo CHANGED; exit 1; fi
