#!/usr/bin/env bash
# Makes page/vendor from the packages in vendor.txt, with npm. Run it after a change of vendor.txt; with --write it also
# writes the checksums there, for a new version. Without --write, a checksum that differs ends it.
set -euo pipefail
cd "$(dirname "$0")"
mode=${1:-check}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

check() { # check WHAT WANT GOT
  [ "$mode" = --write ] || [ "$2" = "$3" ] || { echo "the checksum of $1 is $3, and vendor.txt has $2" >&2; exit 1; }
}

mkdir -p vendor
grep '^#' vendor.txt >"$work/vendor.txt"
while read -r file package version licence source packed made; do
  case $file in \#*) continue ;; esac
  tar=$work/${package//\//-}-$version.tgz
  if [ ! -e "$tar" ]; then
    (cd "$work" && mv "$(npm pack --silent "$package@$version")" "$tar.new" && mv "$tar.new" "$tar")
  fi
  got=$(sha512sum "$tar" | cut -d' ' -f1)
  check "$package $version" "$packed" "$got"
  packed=$got
  note="$package $version, $licence; LICENSE.${file%.*} has the licence, vendor.sh made this file."
  # The modules name each other by package. A browser needs addresses. A script that is no module becomes one.
  { case $file in *.css) echo "/* $note */" ;; *) echo "// $note" ;; esac
    tar xzOf "$tar" "package/$source" | sed -E \
      -e '/^\/\/# sourceMappingURL=/d' \
      -e 's#(from ?|import ?)"preact/hooks"#\1"./hooks.js"#g' \
      -e 's#(from ?|import ?)"@preact/signals-core"#\1"./signals-core.js"#g' \
      -e 's#(from ?|import ?)"preact"#\1"./preact.js"#g'
    case $source in *.iife.*) echo 'export default uPlot;' ;; esac; } >"vendor/$file"
  tar xzOf "$tar" package/LICENSE >"vendor/LICENSE.${file%.*}"
  got=$(sha256sum "vendor/$file" | cut -d' ' -f1)
  check "vendor/$file" "$made" "$got"
  echo "$file $package $version $licence $source $packed $got" >>"$work/vendor.txt"
done <vendor.txt
[ "$mode" != --write ] || cp "$work/vendor.txt" vendor.txt
echo "vendor is as vendor.txt says"
