#!/usr/bin/env bash
# Counts instructions per reading from body to ack, by valgrind's callgrind: each case is run with a number of readings and
# with twice as many, and the difference divided by that number, so that starting up and making the bodies cancel.
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

# readings CASE: whole ticks of its sensors, and for `gateway` whole hours of 60 ticks.
readings() {
    case $1 in
    gateway) echo 120000 ;;
    wide) echo 200000 ;;
    single) echo 20000 ;;
    *) printf 'no case is called %s: gateway, wide, single\n' "$1" >&2 && return 1 ;;
    esac
}

# profile CASE TAKEN: how many instructions it took to take so many readings. The profile stays.
profile() {
    local file=$profiles/$1.$2
    valgrind --tool=callgrind --callgrind-out-file="$file" \
        "$target/release/hourglass-benches" "$1" $((2 * $(readings "$1"))) "$2" >"$file.said" 2>&1 ||
        { cat "$file.said" >&2 && return 1; }
    sed -n 's/^\(totals\|summary\): \([0-9]*\).*/\2/p' "$file" | tail -n 1
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

# stages TOTAL: what each stage takes, of a table of functions on standard input.
stages() {
    awk -v total="$1" '
        function stage(name, pattern) {
            rest -= cost[pattern]
            printf "  %-28s %8.1f  %5.1f %%\n", name, cost[pattern], 100 * cost[pattern] / total
        }
        { name = $0; sub(/^ *[0-9.]+  /, "", name); cost[name] += $1 }
        END {
            rest = total
            stage("parse", "hourglass::wire::line_protocol::Lines::next")
            stage("judge", "hourglass::ingest::door::Door::line")
            stage("encode the record", "hourglass::ingest::record::encode")
            stage("compress, checksum", "hourglass::log::format::Stored::new")
            stage("write, feed the shards", "hourglass::log::writer::Writer::run")
            stage("take in", "hourglass::ingest::unflushed::Unflushed::add")
            printf "  %-28s %8.1f  %5.1f %%\n", "all else", rest, 100 * rest / total
        }
    '
}

cargo build --quiet --release -p hourglass-benches
mkdir -p "$profiles"
[ $# -gt 0 ] || set -- gateway wide single
for name in "$@"; do
    count=$(readings "$name")
    for ((round = 0; round < rounds; round++)); do
        once=$(profile "$name" "$count")
        twice=$(profile "$name" $((2 * count)))
        printf '%s: %s instructions per reading\n' "$name" $(((twice - once + count / 2) / count))
    done
    difference "$name" "$count" inclusive | stages $(((twice - once) / count))
    printf '  of which, by themselves:\n'
    difference "$name" "$count" exclusive | sed -n '1,12s/^/  /p'
done
