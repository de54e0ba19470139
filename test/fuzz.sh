#!/bin/sh
# Runs every fuzz test of the tree for FUZZTIME: a duration, or a count as 2000x. A
# duration can end a slow input's run as a failure ("context deadline exceeded"), so
# CI counts.
set -eu
cd "$(dirname "$0")/.."
git grep -hlE '^func Fuzz' -- '*_test.go' | sort -u | while read -r file; do
	for name in $(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' "$file"); do
		echo "-- $name in $(dirname "$file")"
		"$GO" test -run '^$' -fuzz "^$name\$" -fuzztime "$FUZZTIME" -fuzzminimizetime 1x "./$(dirname "$file")"
	done
done
