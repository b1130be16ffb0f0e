#!/bin/sh
# Installs skyhop from its unpacked archive. Needs a POSIX shell and the usual file commands
# (busybox is enough), and no network.
#
#   ./install.sh [--prefix DIR]                        below DIR; /usr/local by default
#   ./install.sh --uninstall [--prefix DIR] [--purge]  --purge: configuration and state, too
#
# As root it also creates /etc/skyhop and, with systemd, the user skyhop; --files-only leaves that
# out. A second run upgrades: it keeps the configuration, and running gateways drain and restart.
set -eu

fail() {
    echo "install.sh: $*" >&2
    exit 2
}

here=$(cd "$(dirname "$0")" && pwd)
prefix=/usr/local uninstall= purge= files_only=
while [ $# -gt 0 ]; do
    case $1 in
    --prefix)
        [ $# -ge 2 ] || fail "--prefix: expected a directory"
        prefix=$2
        shift
        ;;
    --prefix=*) prefix=${1#--prefix=} ;;
    --uninstall) uninstall=1 ;;
    --purge) purge=1 ;;
    --files-only) files_only=1 ;;
    -h | --help)
        sed -n '2,9s/^# \{0,1\}//p' "$0"
        exit 0
        ;;
    *) fail "$1: expected --prefix DIR, --uninstall, --purge, --files-only or --help" ;;
    esac
    shift
done
[ -z "$purge" ] || [ -n "$uninstall" ] || fail "--purge goes with --uninstall"
case $prefix in
/*[!A-Za-z0-9/._+-]* | [!/]* | '') fail "--prefix $prefix: expected an absolute path of letters, digits and ._+-" ;;
esac
prefix=${prefix%/}

list=$prefix/share/skyhop/installed
services() { [ -z "$files_only" ] && [ "$(id -u)" = 0 ]; }

# Removes what a list names: files, then the directories (with a slash at the end) that are empty.
remove_listed() {
    grep -v '/$' "$1" | while read -r file; do rm -f "$file"; done
    grep '/$' "$1" | sort -r | while read -r directory; do rmdir "$directory" 2>/dev/null || true; done
}

# Makes a directory and its parents, and notes those that were not there.
make_directory() {
    [ ! -d "$1/" ] || return 0
    make_directory "${1%/*}"
    mkdir "$1"
    echo "$1/" >>"$new"
}

if [ -n "$uninstall" ]; then
    [ -e "$list" ] || fail "skyhop is not installed in $prefix"
    ! services || "$prefix/share/skyhop/services" remove
    kept=$(mktemp)
    cp "$list" "$kept"
    remove_listed "$kept"
    rm -f "$kept"
    if services && [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
    if services && [ -n "$purge" ]; then
        rm -rf /etc/skyhop
        for place in /var/lib /var/lib/private /var/cache /var/cache/private; do
            rm -rf "$place"/skyhop "$place"/skyhop-*
        done
        if grep -q '^skyhop:' /etc/passwd && command -v userdel >/dev/null; then userdel skyhop; fi
    fi
    exit 0
fi

[ -x "$here/files/bin/skyhop" ] || fail "$here/files/bin/skyhop is missing: run it in the unpacked archive"
umask 022
files=$(cd "$here/files" && find . -type f | sed 's|^\./||') || fail "cannot list $here/files"
new=$(mktemp)
old=$(mktemp)
what=install
if [ -e "$list" ]; then
    what=upgrade
    cp "$list" "$old"
    grep '/$' "$old" >"$new" || true
fi
for file in $files share/skyhop/install.sh; do
    make_directory "$prefix/${file%/*}"
    echo "$prefix/$file" >>"$new"
done
echo "$list" >>"$new"
for file in $files share/skyhop/install.sh share/skyhop/installed; do
    to=$prefix/$file
    case $file in
    share/skyhop/installed) cp "$new" "$to.new" ;;
    share/skyhop/install.sh) cp "$here/install.sh" "$to.new" ;;
    lib/systemd/*) sed "s|/usr/bin/|$prefix/bin/|; s|/usr/share/|$prefix/share/|" "$here/files/$file" >"$to.new" ;;
    *) cp "$here/files/$file" "$to.new" ;;
    esac
    case $file in
    bin/* | *.sh | */services) chmod 755 "$to.new" ;;
    *) chmod 644 "$to.new" ;;
    esac
    # A running program's file is replaced, never written to.
    mv -f "$to.new" "$to"
done
# What an earlier version had and this one has not.
gone=$(mktemp)
grep -vxF -f "$new" "$old" >"$gone" || true
remove_listed "$gone"
rm -f "$new" "$old" "$gone"
! services || "$prefix/share/skyhop/services" $what
echo "skyhop is installed in $prefix; to remove it: $prefix/share/skyhop/install.sh --uninstall --prefix $prefix"
