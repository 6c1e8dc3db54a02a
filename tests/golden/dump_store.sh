#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# dump_store.sh URL FILE: what is in a store of SQLite or PostgreSQL, as SQL that makes it again. A file that is there is left alone.
set -euo pipefail

url=$1 file=$2
if [ -e "$file" ]; then
    echo "dump_store: $file is there, and stays as it is" >&2
    exit 0
fi

case $url in
sqlite:*)
    path=${url#sqlite:}
    {
        echo "-- SPDX-License-Identifier: Apache-2.0"
        echo "PRAGMA application_id = $(sqlite3 "$path" 'PRAGMA application_id');"
        sqlite3 "$path" .dump
    } >"$file"
    ;;
postgres*)
    {
        echo "-- SPDX-License-Identifier: Apache-2.0"
        # What is said for psql or for the session is no part of it.
        pg_dump --inserts --no-owner --no-privileges --schema=millrace "$url" | grep -vE '^(--|\\|SET |SELECT pg_catalog.set_config|$)'
    } >"$file"
    ;;
*)
    echo "dump_store: unknown store $url" >&2
    exit 2
    ;;
esac
