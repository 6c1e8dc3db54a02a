#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Builds the dashboard and writes its files, packed, as one C file:
#
#   web.sh FOLDER OUT.c [auto|on|off]
#
# FOLDER keeps the packages and what was built of them last, by the content of web/, so that several build folders have
# one build of it among them. auto (the default): without node, npm or a registry a page takes its place that says so;
# on: that is an error; off: always that page.

set -eu
web=$(cd "$(dirname "$0")/../web" && pwd)
mkdir -p "$1"
folder=$(cd "$1" && pwd)
out=$2
mode=${3:-auto}

# One build at a time; the others find it done.
exec 9>"$folder/lock"
flock 9

packages() {
    cmp -s "$web/package-lock.json" "$folder/installed.json" && return 0
    rm -f "$folder/installed.json"
    cp "$web/package.json" "$web/package-lock.json" "$web/.npmrc" "$folder" &&
        (cd "$folder" && npm ci --no-audit --no-fund --loglevel=error) >&2 &&
        cp "$web/package-lock.json" "$folder/installed.json"
}

# The name of what is in web/ now.
content() { (cd "$web" && find . -type f ! -path '*/node_modules/*' | LC_ALL=C sort | xargs sha256sum | sha256sum); }

build() {
    now=$(content)
    if [ "$now" = "$(cat "$folder/stamp" 2>/dev/null)" ] && [ -f "$folder/dist/index.html" ]; then
        return 0
    fi
    rm -rf "$folder/stamp" "$folder/dist"
    packages && node "$web/build.mjs" "$folder" "$folder/dist" >&2 && echo "$now" >"$folder/stamp"
}

stand_in() {
    rm -rf "$folder/stand-in"
    mkdir -p "$folder/stand-in"
    cp "$web/stand-in.html" "$folder/stand-in/index.html"
}

type_of() {
    case $1 in
    *.html) echo "text/html; charset=utf-8" ;;
    *.js) echo "text/javascript; charset=utf-8" ;;
    *.css) echo "text/css; charset=utf-8" ;;
    *.svg) echo "image/svg+xml" ;;
    *) echo "application/octet-stream" ;;
    esac
}

# files DIST: a row for each file, the page first, behind the bytes of all.
files() {
    list=$(cd "$1" && find assets -type f 2>/dev/null | LC_ALL=C sort || true)
    echo '/* Made by scripts/web.sh. */'
    echo '#include "api/http_web.h"'
    n=0
    for name in index.html $list; do
        echo "static const unsigned char file_$n[] = {"
        gzip -9n <"$1/$name" | od -An -v -tu1 | sed 's/  */,/g; s/^,//; s/$/,/'
        echo '};'
        n=$((n + 1))
    done
    echo 'const struct mr_http_file mr_web_files[] = {'
    n=0
    for name in index.html $list; do
        path=/$name fixed=true
        [ "$name" != index.html ] || path=/ fixed=false
        sum=$(sha256sum <"$1/$name" | cut -c 1-16)
        printf '{"%s", "%s", "\\"%s\\"", file_%d, sizeof file_%d, %d, %s},\n' "$path" "$(type_of "$name")" "$sum" \
            "$n" "$n" "$(wc -c <"$1/$name")" "$fixed"
        n=$((n + 1))
    done
    echo '};'
    echo 'const size_t mr_web_files_n = sizeof mr_web_files / sizeof *mr_web_files;'
}

dist=$folder/dist
if [ "$mode" = off ]; then
    stand_in
    dist=$folder/stand-in
elif ! build; then
    [ "$mode" = auto ] || exit 1
    echo "web: the dashboard could not be built (see above; it needs node, npm and its registry): a page that says so takes its place" >&2
    stand_in
    dist=$folder/stand-in
fi
files "$dist" >"$folder/files.c"
cp "$folder/files.c" "$out"
