#!/usr/bin/env bash
# The pair over TCP, as where a network drops UDP, beside the pair over UDP and plain TCP: a download
# of a minute after one of 15 s, a page, and the time until a terminal that starts serves its clients.
#
#   crates/skyhop/benches/blocked.sh [ROUNDS [LAB OPTIONS]]      for example: 3 --per 1%
#
# Needs a release build, or SKYHOP with the path of another.
set -euo pipefail
cd "$(dirname "$0")/../../.."
export SKYHOP=${SKYHOP:-$PWD/target/release/skyhop}
rounds=${1:-3}
shift $(($# > 0 ? 1 : 0))
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT

"$SKYHOP" init "$directory" --hub hub:5900 --name ship --interface lan0 \
    --hub-rate 48Mbit/s --terminal-rate 9Mbit/s >/dev/null
sed -i '1i listen_tcp = "[::]:443"' "$directory/hub.toml"
cp "$directory/ship.toml" "$directory/udp.toml"
# Nothing listens on this port, so the hub does not answer over UDP.
sed 's/hub:5900/hub:5999/; 1i hub_tcp = "hub:443"' "$directory/ship.toml" >"$directory/tcp.toml"
chmod 600 "$directory/"*.toml

# Runs in the lab, on the client.
cat >"$directory/inside" <<'INSIDE'
cd "$(dirname "$0")"
started=()
trap 'kill "${started[@]}" 2>/dev/null || true' EXIT
if [ "$1" != plain ]; then
    : >terminal.log
    "$SKYHOP" lab exec hub -- "$SKYHOP" hub hub.toml >hub.log 2>&1 &
    started+=($!)
    begun=$(date +%s.%N)
    "$SKYHOP" lab exec terminal -- "$SKYHOP" terminal "$1.toml" >terminal.log 2>&1 &
    started+=($!)
    until grep -q '^ready' terminal.log; do
        kill -0 "${started[@]}" || { cat hub.log terminal.log && exit 1; }
        sleep 0.05
    done
    printf '%-5s ready after %.1f s\n' "$1" "$(echo "$(date +%s.%N) - $begun" | bc)"
fi
"$SKYHOP" meter bulk server --time 15s --cc bbr >/dev/null 2>&1
printf '%-5s %s\n' "$1" "$("$SKYHOP" meter bulk server --time 60s --cc bbr 2>&1 | tail -1)"
printf '%-5s %s\n' "$1" "$("$SKYHOP" meter page server --cc bbr 2>&1 | tail -1)"
INSIDE
for ((round = 1; round <= rounds; round++)); do
    for way in udp tcp plain; do
        "$SKYHOP" lab run geo --seed "$round" "$@" -- bash "$directory/inside" "$way"
    done
done
