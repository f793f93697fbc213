# An administrator who is no superuser, on the Postgres of the development server, and a service as systemd would start it.
eval "$(flowlane env)"
psql -q "$DATABASE_URL" -c "CREATE ROLE administrator LOGIN CREATEROLE CREATEDB PASSWORD 'secret'"
at() { sed "s#//[^@]*@\([^/]*\)/[^?]*#//$1@\1/$2#" <<<"$DATABASE_URL"; }
ADMIN_URL=$(at administrator:secret postgres)
OWNER_URL=$(at flowlane_owner:choose-one flows)
APP_URL=$(at flowlane_app:choose-another flows)
unset DATABASE_URL FLOWLANE_URL FLOWLANE_API_KEY FLOWLANE_KEK_FILE
start_service() {
	DATABASE_URL_FILE=database-url FLOWLANE_KEK_FILE=kek FLOWLANE_OPERATOR_TOKEN_FILE=operator-token \
		flowlane serve --listen 127.0.0.1:0 --json >served.json &
	trap 'kill %%' EXIT
	until FLOWLANE_URL=$(jq -r .url served.json) && [ -n "$FLOWLANE_URL" ]; do sleep 0.1; done
	export FLOWLANE_URL
}
