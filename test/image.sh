#!/bin/sh
# Builds deploy/Dockerfile, and tries the image as it is meant to run: as its own user, with a root that is read-only
# and no capabilities, on a Postgres of this machine. Where no registry gives the base that it builds on, one is made of
# Debian's packages and this machine's Go, and taken away again. As root, with docker or podman (ENGINE), jq and
# Postgres' programs, and for that base debootstrap; BUILD_FLAGS and RUN_FLAGS go to the engine. PORT and the three
# ports that follow must be free.
set -eu
cd "$(dirname "$0")/.."
engine=${ENGINE:-docker} image=${IMAGE:-flowlane}:$(git describe --tags --always) port=${PORT:-18080}
base=$(sed -n 's/^FROM \(.*\) AS build$/\1/p' deploy/Dockerfile)
work=$(mktemp -d) name=flowlane-image-$$ stand_in='' postgres=$(ls -d /usr/lib/postgresql/*/bin | sort -V | tail -1)

as_postgres() { runuser -u postgres -- "$postgres/$@"; }

end() {
	for container in serve sim files; do $engine rm -f "$name-$container" >/dev/null 2>&1 || true; done
	as_postgres pg_ctl -D "$work/postgres" -m immediate stop >/dev/null 2>&1 || true
	[ -z "$stand_in" ] || $engine rmi "$base" >/dev/null
	rm -rf --one-file-system "$work"
}
trap end EXIT
trap 'exit 1' INT TERM
chmod 755 "$work"

fail() { echo "$*" >&2 && exit 1; }

if ! $engine image inspect "$base" >/dev/null 2>&1 && ! $engine pull -q "$base" 2>/dev/null; then
	[ "$(go env GOVERSION)" = "go$(sed -n 's/^go //p' go.mod)" ] || fail 'Go is not the one that go.mod names.'
	debootstrap --variant=minbase --include=git,make,ca-certificates bookworm "$work/root"
	cp -a "$(go env GOROOT)" "$work/root/usr/local/go"
	# By which this machine reaches Go's modules; nothing of it gets into the image.
	printf '%s=%s\n' GOTOOLCHAIN local GOPROXY "$(go env GOPROXY)" GOSUMDB "$(go env GOSUMDB)" \
		>"$work/root/usr/local/go/go.env"
	cp "${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}" "$work/root/usr/local/share/authorities.pem"
	tar -C "$work/root" -c . | $engine import --change 'ENV PATH=/usr/local/go/bin:/usr/sbin:/usr/bin:/sbin:/bin' \
		--change 'ENV SSL_CERT_FILE=/usr/local/share/authorities.pem' - "$base" >/dev/null
	stand_in=yes
fi
make image ENGINE="$engine" IMAGE="${image%:*}" BUILD_FLAGS="${BUILD_FLAGS-}"

is() { [ "$($engine image inspect --format "$1" "$image")" = "$2" ] || fail "$1 of the image is not $2."; }
is '{{.Config.User}}' 65532:65532
is '{{index .Config.Labels "org.opencontainers.image.revision"}}' "$(git rev-parse HEAD)"
$engine create --name "$name-files" "$image" >/dev/null
$engine cp "$name-files:/flowlane" "$work/flowlane"
$engine cp "$name-files:/usr/share/doc/flowlane" "$work/doc"
go version -m "$work/flowlane" >"$work/built"
# A file that is tracked and left out of the build counts as a change.
[ -n "$(git status --porcelain)" ] || grep -q 'vcs.modified=false' "$work/built" || fail 'Its commit is not known.'
awk '$1 == "dep" {print $2}' "$work/built" | sort >"$work/modules"
[ -z "$(jq -r '.components[].name' "$work/doc/flowlane.cdx.json" | sort | comm -23 "$work/modules" -)" ] ||
	fail 'The bill of materials lacks a module.'

install -d -o postgres "$work/postgres"
as_postgres initdb -D "$work/postgres" -A trust -U postgres >/dev/null
as_postgres pg_ctl -w -D "$work/postgres" -l "$work/postgres/log" \
	-o "-p $((port + 1)) -c listen_addresses=127.0.0.1 -k $work/postgres" start >/dev/null
head -c 32 /dev/urandom | base64 | install -o 65532 -g 65532 -m 400 /dev/stdin "$work/kek"

export FLOWLANE_URL="http://127.0.0.1:$port" FLOWLANE_API_KEY=''
run() { # FLAGS IMAGE ARGUMENTS
	$engine run --network host --read-only --cap-drop ALL --security-opt no-new-privileges -v "$work/kek:/kek:ro" \
		-e FLOWLANE_KEK_FILE=/kek -e "DATABASE_URL=postgres://postgres@127.0.0.1:$((port + 1))/postgres?sslmode=disable" \
		-e "FLOWLANE_LISTEN=127.0.0.1:$port" -e "FLOWLANE_OPERATOR_LISTEN=127.0.0.1:$((port + 3))" \
		-e "FLOWLANE_SIM_URL=http://127.0.0.1:$((port + 2))" -e FLOWLANE_URL -e FLOWLANE_API_KEY ${RUN_FLAGS-} "$@"
}
run --rm "$image" version
run -d --name "$name-sim" "$image" sim dialer --listen "127.0.0.1:$((port + 2))" >/dev/null
run -d --name "$name-serve" "$image" serve --migrate >/dev/null
for second in $(seq 60); do
	! $engine exec "$name-serve" /flowlane ready "$FLOWLANE_URL" 2>/dev/null || break
	[ "$second" -lt 60 ] && sleep 1 || fail "$($engine logs "$name-serve" 2>&1)"
done
org=$(run --rm "$image" org create --name Image --json | jq -r .id)
FLOWLANE_API_KEY=$(run --rm "$image" apikey create --org "$org" --name image --json | jq -r .key)
run --rm "$image" demo --records 1000
$engine stop -t 40 "$name-serve" >/dev/null
[ "$($engine inspect --format '{{.State.ExitCode}}' "$name-serve")" -eq 0 ] || fail 'serve did not drain.'
echo "$image: $($engine image inspect --format '{{.Size}}' "$image") bytes"
