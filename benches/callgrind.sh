#!/usr/bin/env bash
# Counts instructions per reading from body to ack and into the shards, by valgrind's callgrind: each case is run with a
# number of readings and with twice as many, and the difference divided by that number, so that what comes once cancels.
#
#   benches/callgrind.sh [gateway|wide|single …]      all three when none is named
#   ROUNDS=3 benches/callgrind.sh gateway             how well it repeats
#
# CARGO_PROFILE_RELEASE_DEBUG=line-tables-only gives profiles with lines, for callgrind_annotate and kcachegrind.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
target=${CARGO_TARGET_DIR:-target}
profiles=$target/callgrind
rounds=${ROUNDS:-1}
# Callgrind counts one string instruction once per byte, and the C library fills and copies more than 2 KiB by those: here
# it does so by 32 bytes at a time, whatever the size.
export GLIBC_TUNABLES=glibc.cpu.x86_rep_movsb_threshold=0x40000000:glibc.cpu.x86_rep_stosb_threshold=0x40000000

# The log's thread and the rest take turns: on one CPU, and in the order in which they ask. Else it is chance how much of
# the work a wake-up finds, which counts where every reading has one.
cpu=$(taskset -cp $$ | sed 's/.*: *\([0-9]*\).*/\1/')

# readings CASE: whole ticks of its sensors, and for `gateway` whole hours of 60 ticks.
readings() {
    case $1 in
    gateway) echo 120000 ;;
    wide) echo 200000 ;;
    single) echo 50000 ;;
    *) printf 'no case is called %s: gateway, wide, single\n' "$1" >&2 && return 1 ;;
    esac
}

# profile CASE TAKEN: runs a case under callgrind, and leaves the profile.
profile() {
    local file=$profiles/$1.$2
    taskset -c "$cpu" valgrind --tool=callgrind --fair-sched=yes --callgrind-out-file="$file" \
        "$target/release/hourglass-benches" "$1" $((2 * $(readings "$1"))) "$2" >"$file.said" 2>&1 ||
        { cat "$file.said" >&2 && return 1; }
}

# difference CASE READINGS inclusive|exclusive: instructions per reading by function, the most first.
difference() {
    local inclusive=no taken
    [ "$3" = exclusive ] || inclusive=yes
    for taken in "$2" $((2 * $2)); do
        printf 'profile\n'
        callgrind_annotate --threshold=100 --auto=no --inclusive=$inclusive "$profiles/$1.$taken"
    done | awk -v readings="$2" '
        $1 == "profile" { sign = seen++ ? 1 : -1 }
        $1 ~ /^[0-9,]+$/ && $2 ~ /^\(/ {
            count = $1; gsub(/,/, "", count)
            sub(/^ *[0-9,]+ +\( *[0-9.]+%\) +/, ""); sub(/ \[[^]]*\]$/, ""); sub(/^[^:]*:/, "")
            cost[$0] += sign * count
        }
        END { for (name in cost) if (cost[name] >= readings) printf "%8.1f  %s\n", cost[name] / readings, name }
    ' | sort -rn
}

# stages CASE: what all of it takes, and each stage, of a table of functions on standard input. All of it is the whole
# program but the calibration of a clock at its start, whose length is chance: where functions call each other in a
# circle, callgrind counts what they take together more than once.
stages() {
    awk -v name="$1" '
        function row(stage, count) { printf "  %-24s %9.0f  %5.1f %%\n", stage, count, 100 * count / total }
        function stage(name, pattern) { rest -= cost[pattern]; row(name, cost[pattern]) }
        { function_name = $0; sub(/^ *[0-9.]+  /, "", function_name); cost[function_name] += $1 }
        END {
            rest = total = cost["PROGRAM TOTALS"] - cost["quanta::Calibration::calibrate"]
            printf "%s: %.0f instructions per reading\n", name, total
            stage("parse", "<hourglass::wire::line_protocol::Lines as hourglass::wire::point::Points>::next")
            stage("judge", "hourglass::ingest::door::Door::point")
            stage("encode the record", "hourglass::ingest::record::encode")
            stage("compress, checksum", "hourglass::log::format::Stored::new")
            stage("take in", "hourglass::ingest::unflushed::Unflushed::add")
            row("all else", rest)
        }
    '
}

cargo build --quiet --release -p hourglass-benches
mkdir -p "$profiles"
[ $# -gt 0 ] || set -- gateway wide single
for name in "$@"; do
    count=$(readings "$name")
    for ((round = 0; round < rounds; round++)); do
        profile "$name" "$count"
        profile "$name" $((2 * count))
        difference "$name" "$count" inclusive | stages "$name"
    done
    printf '  by themselves:\n'
    difference "$name" "$count" exclusive | sed -n '2,13s/^/  /p'
done
