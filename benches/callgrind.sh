#!/usr/bin/env bash
# Counts instructions per reading from the body to the ack and into the shards, with valgrind's callgrind. Runs each
# case with a number of readings and with twice as many, and divides the difference by that number, which cancels
# constant costs.
#
#   benches/callgrind.sh [gateway|wide|single …]      all three when none is named
#   ROUNDS=3 benches/callgrind.sh gateway             how well it repeats
#
# CARGO_PROFILE_DIST_DEBUG=line-tables-only gives profiles with lines, for callgrind_annotate and kcachegrind.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
target=${CARGO_TARGET_DIR:-target}
profiles=$target/callgrind
rounds=${ROUNDS:-1}
# Callgrind counts a string instruction once per byte, and the C library uses them for more than 2 KiB. This makes the
# library use 32-byte instructions for every size.
export GLIBC_TUNABLES=glibc.cpu.x86_rep_movsb_threshold=0x40000000:glibc.cpu.x86_rep_stosb_threshold=0x40000000

# The WAL's thread and the others run in turn, on one CPU, in the order in which they become ready. Otherwise the amount
# of work per wake-up would be random, which matters if every reading causes one.
cpu=$(taskset -cp $$ | sed 's/.*: *\([0-9]*\).*/\1/')

# readings CASE: the number of readings: whole ticks of all sensors, and for `gateway` whole hours of 60 ticks.
readings() {
    case $1 in
    gateway) echo 120000 ;;
    wide) echo 200000 ;;
    single) echo 50000 ;;
    *) printf 'no case is called %s: gateway, wide, single\n' "$1" >&2 && return 1 ;;
    esac
}

# profile CASE TAKEN: runs a case under callgrind and leaves the profile.
profile() {
    local file=$profiles/$1.$2
    taskset -c "$cpu" valgrind --tool=callgrind --fair-sched=yes --callgrind-out-file="$file" \
        "$target/dist/hourglass-benches" "$1" $((2 * $(readings "$1"))) "$2" >"$file.said" 2>&1 ||
        { cat "$file.said" >&2 && return 1; }
}

# difference CASE READINGS inclusive|exclusive: instructions per reading by function, most first.
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

# stages CASE: the total cost and that of each stage, from a table of functions on stdin. The total is that of the whole
# program minus the calibration of a clock at its start, whose length is random. Adding up functions would not work:
# callgrind counts mutually recursive functions more than once.
stages() {
    awk -v name="$1" '
        function row(stage, count) { printf "  %-24s %9.0f  %5.1f %%\n", stage, count, 100 * count / total }
        function stage(name, pattern) {
            if (!(pattern in cost)) { printf "no function is called %s: it was renamed or inlined\n", pattern; exit 1 }
            rest -= cost[pattern]; row(name, cost[pattern])
        }
        { function_name = $0; sub(/^ *[0-9.]+  /, "", function_name); cost[function_name] += $1 }
        END {
            rest = total = cost["PROGRAM TOTALS"] - cost["quanta::Calibration::calibrate"]
            printf "%s: %.0f instructions per reading\n", name, total
            stage("parse", "<hourglass_wire::line_protocol::Lines as hourglass_wire::point::Points>::next")
            stage("validate", "hourglass::ingest::admission::validate::Validator::validate")
            stage("encode the record", "hourglass::buffer::record::encode")
            stage("compress, checksum", "hourglass_wal::format::EncodedPayload::new")
            stage("memtable", "hourglass::buffer::memtable::MemtableBuckets::add")
            row("all else", rest)
        }
    '
}

# The names of functions are for callgrind.
CARGO_PROFILE_DIST_STRIP=none cargo build --quiet --profile dist -p hourglass-benches
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
