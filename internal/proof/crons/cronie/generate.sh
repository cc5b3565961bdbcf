#!/usr/bin/env bash
# Writes a year of fire times by cronie, for the lines of lines.txt: generate.sh DIR ZONE..., one file for each zone in DIR,
# lines "number of the line, Unix time". `go test -run TestPlans ./internal/proof/crons -raw DIR` makes plans.txt of it.
# It needs a C compiler, curl, and the zones of the machine; no test runs it.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=$(mkdir -p "$1" && cd "$1" && pwd); shift
d=$(mktemp -d); trap 'rm -rf "$d"' EXIT; cd "$d"
source=${CRONIE:-http://deb.debian.org/debian/pool/main/c/cronie/cronie_1.7.2.orig.tar.gz}
case $source in http*) curl -fsSLo cronie.tar.gz "$source" ;; *) cp "$source" cronie.tar.gz ;; esac
echo 'f1da374a15ba7605cf378347f96bc8b678d3d7c0765269c8242cfe5b0789c571  cronie.tar.gz' | sha256sum -c --quiet
tar xzf cronie.tar.gz
(cd cronie-1.7.2 && ./configure --quiet --without-selinux --without-inotify --without-pam >/dev/null && make -s cron-paths.h)
cp "$here/year.c" cronie-1.7.2/src/year.c
cd cronie-1.7.2
cc="gcc -O2 -w -DHAVE_CONFIG_H -I. -Isrc"
$cc -c src/year.c -o year.o
$cc -c src/entry.c -o entry.o
$cc -c src/env.c -o env.o
$cc -c src/pw_dup.c -o pw_dup.o
$cc -c cronie_common.c -o common.o
$cc -Djob_runqueue=run_queue -Dgetpwnam=account_by_name -c src/job.c -o job.o
unused=; for f in acquire_daemonlock set_cron_uid check_spool_dir log_it log_close; do unused+=" -D$f=unused_$f"; done
$cc $unused -c src/misc.c -o misc.o
gcc year.o entry.o env.o pw_dup.o common.o job.o misc.o -o year
grep -v '^#' "$here/lines.txt" | cut -f1 | awk '{print $0, NR}' > tab
for zone; do # from a minute before the year on
	TZ=$zone ./year tab "$(date -ud '2019-12-31 23:59:30' +%s)" "$(date -ud '2021-01-01' +%s)" > "$out/${zone//\//-}"
done
