#!/usr/bin/env bash
# Times everyday programs over a GEO link with 1 % loss: plain, with the machine's own
# congestion control, and through a gateway pair, alternately.
#
#   crates/skyhop/benches/clients.sh [ROUNDS [SKYHOP]]       # as root, for sshd
#
# SKYHOP defaults to target/release/skyhop. Prints medians and ranges in seconds.
set -euo pipefail
rounds=${1:-3}
here=$(cd "$(dirname "$0")" && pwd)
skyhop=$(realpath "${2:-$here/../../../target/release/skyhop}")

if [ "${1:-}" != --inside ]; then
    for program in curl git scp rsync python3 chromium-headless-shell; do
        command -v $program > /dev/null || { echo "$program is missing" >&2; exit 2; }
    done
    results=$(mktemp)
    trap 'rm "$results"' EXIT
    for round in $(seq "$rounds"); do
        for way in plain pair; do
            echo "round $round of $rounds, $way" >&2
            gateways=(); [ $way = plain ] || gateways=(--gateways)
            "$skyhop" lab run geo --per 1% --seed "$round" "${gateways[@]}" -- \
                "$here/clients.sh" --inside "$skyhop" | sed "s/^/$way /" | tee -a "$results" >&2
        done
    done
    sort -k2,2 -k1,1 -k3,3n "$results" | awk '
        { key = $2 " " $1; n[key]++; t[key, n[key]] = $3; names[$2] = 1 }
        function show(key) {
            return sprintf("%6.1f (%.1f–%.1f)", t[key, int((n[key] + 1) / 2)], t[key, 1], t[key, n[key]])
        }
        END {
            printf "%-12s %20s %20s\n", "seconds", "plain", "skyhop"
            for (name in names) printf "%-12s %20s %20s\n", name, show(name " plain"), show(name " pair") | "sort"
        }'
    exit
fi

# On the client of a lab.
work=$(mktemp -d)
cd "$work"
trap 'rm -r "$work"' EXIT
export HOME=$work
on_server() { "$skyhop" lab exec server -- "$@"; }
until_it_works() {
    for try in $(seq 40); do "$@" > complaint 2>&1 && return; sleep 0.25; done
    cat complaint >&2; exit 1
}
# Runs a command; prints its name and the seconds it took.
take() {
    local name=$1 begin end; shift
    begin=$(date +%s%N)
    "$@" > said 2>&1 || { cat said >&2; exit 1; }
    end=$(date +%s%N)
    awk "BEGIN { printf \"%s %.3f\\n\", \"$name\", ($end - $begin) / 1e9 }"
}

head -c 10000000 /dev/urandom > big
mkdir -p tree www
for i in $(seq 100); do head -c 50000 /dev/urandom > tree/$i; done
for i in $(seq 24); do
    { echo '<svg xmlns="http://www.w3.org/2000/svg"><!--'; head -c 37000 /dev/urandom | base64; echo '--></svg>'; } > www/$i.svg
done
for i in $(seq 24); do echo "<img src=$i.svg>"; done > www/index.html
git init -q -b main project
cp -r tree project
git -C project add .
git -C project -c user.name=n -c user.email=e@example.net commit -qm all

mount -t tmpfs tmpfs /run    # in the lab only
mkdir /run/sshd
ssh-keygen -q -t ed25519 -N '' -f host
ssh-keygen -q -t ed25519 -N '' -f key
printf '%s\n' 'Port 2222' "HostKey $work/host" "AuthorizedKeysFile $work/key.pub" 'StrictModes no' 'UsePAM no' \
    'PermitRootLogin yes' 'PidFile none' 'Subsystem sftp internal-sftp' > sshd_config
printf '%s\n' 'Host server' 'Port 2222' 'User root' "IdentityFile $work/key" 'IdentitiesOnly yes' \
    "UserKnownHostsFile $work/known" 'StrictHostKeyChecking yes' > ssh_config
echo "[server]:2222 $(cat host.pub)" > known
on_server /usr/sbin/sshd -D -e -f "$work/sshd_config" 2> sshd_log &
on_server git daemon --reuseaddr --export-all --base-path="$work" 2> git_log &
on_server python3 -m http.server --bind :: --directory www 8000 > http_log 2>&1 &
until_it_works ssh -F ssh_config server true
until_it_works git ls-remote git://server/project
until_it_works curl -sSf -o page http://server:8000/

take curl-10MB curl -sSf -o got http://server/10MB
take git-5MB git clone -q git://server/project copy
take ssh-login ssh -F ssh_config server true
take scp-10MB scp -q -F ssh_config server:"$work/big" got
take rsync-5MB rsync -a -e "ssh -F $work/ssh_config" server:"$work/tree/" back/
take browser chromium-headless-shell --no-sandbox --disable-gpu --user-data-dir="$work/profile" --dump-dom http://server:8000/
