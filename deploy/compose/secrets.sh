#!/bin/sh
# Makes the secrets of compose.yaml in the folder secrets beside this file; those that are there stay. Keep kek with
# your backups: without it stored credentials cannot be opened. Containers read the files as their own users, so that
# it is the folder which nobody else may enter; the key is for the user of the image alone, who would refuse it else.
set -eu
umask 077
mkdir -p "$(dirname "$0")/secrets"
cd "$(dirname "$0")/secrets"
[ "$(id -u)" -eq 0 ] || { echo 'Run it as root: the key must belong to the user of the image.' >&2; exit 1; }

# make NAME VALUE
make() {
	[ -s "$1" ] || printf '%s\n' "$2" >"$1"
	chmod 444 "$1"
}

for name in owner-password app-password ops-password operator-token grafana-password; do
	make "$name" "$(openssl rand -hex 24)"
done
make owner-database-url "postgres://flowlane:$(cat owner-password)@postgres:5432/flowlane?sslmode=disable"
make database-url "postgres://flowlane_app:$(cat app-password)@pgbouncer:6432/flowlane?sslmode=disable"
make pgbouncer-users "\"flowlane_app\" \"$(cat app-password)\""
make kek "$(openssl rand -base64 32)"
chmod 400 kek
chown 65532:65532 kek
