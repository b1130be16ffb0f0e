#!/usr/bin/env bash
# Goodput of verified downloads over a satellite link: plain TCP with each congestion control that
# the kernel allows (sysctl net.ipv4.tcp_allowed_congestion_control), skyhop, and any other accelerator whose programs are given; alternately.
#
#   crates/skyhop/benches/rivals.sh [-r ROUNDS] [-l "PER..."] [-n BYTES] [-k LINK] [-s SKYHOP] [RIVAL...]
#
# By default 3 rounds, PER "0 0.1% 1%", 20000000 bytes, LINK "geo --rate 50Mbit/s --return-rate
# 10Mbit/s --delay 300ms" and SKYHOP target/release/skyhop. Prints medians and ranges in Mbit/s, and
# what a client sees of a connection that the server refuses. Needs root and curl, and nft for rivals
# that intercept.
#
# A RIVAL is a file of shell variables. The commands run in the foreground on the lab's hosts `hub`
# (10.9.0.2) and `terminal` (10.9.0.1), until they are ended:
#
#   name="some rival"
#   hub="/opt/rival server --listen 10.9.0.2:4000"
#   terminal="/opt/rival client --server 10.9.0.2:4000 --tproxy 0.0.0.0:5000"
#   tproxy=5000                        # intercepts the client's TCP at the terminal, or:
#   proxy=socks5h://terminal:1080      # the client uses a proxy
#   algorithm=bbr                      # of the kernel, on all hosts; by default the machine's own
set -euo pipefail

# Runs a command on a host of the lab.
on() { "$skyhop" lab exec "$1" -- "${@:2}"; }

# On the client of a lab, which ends what is started here: one download, and one refused connection.
inside() {
    local curl=(curl --silent --show-error --max-time 300)
    if [ -n "${algorithm:-}" ]; then
        for host in client terminal hub server; do
            on $host sysctl -qw net.ipv4.tcp_congestion_control="$algorithm"
        done
    fi
    if [ -n "${hub:-}" ]; then on hub $hub > /dev/null 2>&1 & fi
    if [ -n "${terminal:-}" ]; then on terminal $terminal > /dev/null 2>&1 & fi
    if [ -n "${tproxy:-}" ]; then
        on terminal ip rule add fwmark 1 lookup 100
        on terminal ip route add local default dev lo table 100
        on terminal nft "table ip rival { chain intercept { type filter hook prerouting priority mangle;
            iifname lan0 meta l4proto tcp tproxy to :$tproxy meta mark set 1 accept; }; }"
    fi
    if [ -n "${proxy:-}" ]; then curl+=(--proxy "$proxy"); fi
    # The first request waits for the rival to be up, and is not measured.
    "${curl[@]}" --max-time 5 --retry 10 --retry-delay 1 --retry-all-errors -o /dev/null \
        http://server/1kB

    local begin end got expected refused
    expected=$(on server curl --silent "http://server/${bytes}B" | sha256sum)
    begin=$(date +%s%N)
    got=$("${curl[@]}" "http://server/${bytes}B" | sha256sum) || got=failed
    end=$(date +%s%N)
    refused=$("${curl[@]}" --max-time 20 http://server:9/ 2>&1 || true)
    case $refused in
    *refused* | *"Couldn't connect"* | *"Could not connect"*) refused=refused ;;
    *reset*) refused=reset ;;
    *mpty*) refused=end-of-file ;;
    *) refused=other ;;
    esac
    if [ "$got" != "$expected" ]; then
        echo "wrong;$refused"
    else
        awk "BEGIN { printf \"%.2f;%s\\n\", $bytes * 8e3 / ($end - $begin), \"$refused\" }"
    fi
}

here=$(cd "$(dirname "$0")" && pwd)
if [ "${1:-}" = --inside ]; then
    skyhop=$2 bytes=$3
    # shellcheck source=/dev/null
    source "$4"
    inside
    exit
fi

link="geo --rate 50Mbit/s --return-rate 10Mbit/s --delay 300ms"
rounds=3 losses="0 0.1% 1%" bytes=20000000 skyhop=$here/../../../target/release/skyhop
usage() { sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2; exit 2; }
while getopts r:l:n:k:s: option; do
    case $option in
    r) rounds=$OPTARG ;;
    l) losses=$OPTARG ;;
    n) bytes=$OPTARG ;;
    k) link=$OPTARG ;;
    s) skyhop=$OPTARG ;;
    *) usage ;;
    esac
done
shift $((OPTIND - 1))
skyhop=$(realpath "$skyhop")

work=$(mktemp -d)
trap 'rm -r "$work"' EXIT
for algorithm in $(sysctl -n net.ipv4.tcp_allowed_congestion_control); do
    printf 'name="kernel, %s"\nalgorithm=%s\n' "$algorithm" "$algorithm" > "$work/1-$algorithm"
done
echo 'name="skyhop"' > "$work/2-skyhop"
number=0
for rival in "$@"; do
    number=$((number + 1))
    (source "$rival" && : "${name:?is not set in $rival}") || exit 2
    cp "$rival" "$work/3-$number"
done

for round in $(seq "$rounds"); do
    for loss in $losses; do
        for rival in "$work"/[123]-*; do
            name=$(source "$rival" && echo "$name")
            gateways=(); [ "$rival" != "$work/2-skyhop" ] || gateways=(--gateways)
            echo "round $round of $rounds, PER $loss, $name" >&2
            # shellcheck disable=SC2086
            result=$("$skyhop" lab run $link --per "$loss" --seed "$round" "${gateways[@]}" -- \
                "$here/rivals.sh" --inside "$skyhop" "$bytes" "$rival" 2> "$work/said") ||
                { result="failed;-"; tail -n 3 "$work/said" >&2; }
            echo "$(basename "$rival");$name;$loss;$result" >> "$work/results"
            echo "    $result" >&2
        done
    done
done
sort -t ';' -k1,3 -k4,4n "$work/results" | awk -F ';' -v losses="$losses" '
    {
        if (!($2 in n)) order[++rivals] = $2
        n[$2]++; key = $2 SUBSEP $3; t[key, ++c[key]] = $4
        if (index(ends[$2], $5) == 0) ends[$2] = ends[$2] " " $5
    }
    END {
        columns = split(losses, loss, " ")
        printf "%-24s", "Mbit/s"
        for (i = 1; i <= columns; i++) printf "%22s", "PER " loss[i]
        print "  refused connection"
        for (r = 1; r <= rivals; r++) {
            printf "%-24s", order[r]
            for (i = 1; i <= columns; i++) {
                key = order[r] SUBSEP loss[i]
                printf "%22s", t[key, int((c[key] + 1) / 2)] " (" t[key, 1] "–" t[key, c[key]] ")"
            }
            print " " ends[order[r]]
        }
    }'
