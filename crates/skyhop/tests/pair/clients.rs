//! Everyday programs through the pair: remote shells, file copies, repositories, a browser.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use nix::unistd::Uid;

use crate::LOSSY;
use crate::common::browser::BROWSER;
use crate::common::{Runner, as_each_user, as_myself, is_present, skip, text};
use crate::inside::{accept, listen};

/// A temporary directory, and servers started with `on_server`.
const PREPARE: &str = "
    set -e
    cd $(mktemp -d)
    trap 'rm -r \"$PWD\"' EXIT
    export HOME=$PWD
    on_server() { \"$SKYHOP\" lab exec server -- \"$@\"; }
    # Who asks the gateways for a port that is still closed is let past them for a while.
    until_it_listens() { until_it_works on_server bash -c \": < /dev/tcp/127.0.0.1/$1\"; }
    until_it_works() {
        for try in $(seq 40); do \"$@\" 2> complaint && return 0; sleep 0.25; done
        cat complaint >&2; return 1
    }
";

/// Output of the script, by line.
fn lines(runner: &Runner, script: &str) -> Vec<String> {
    let output = runner.shell(&LOSSY, &format!("{PREPARE}{script}")).output().unwrap();
    assert!(output.status.success(), "as {:?}: {output:#?}", runner.user);
    text(&output.stdout).lines().map(str::to_owned).collect()
}

fn all_present(programs: &[&str]) -> bool {
    let missing = programs.iter().find(|program| !is_present(program));
    missing.map(|program| skip(format!("{program} is missing"))).is_none()
}

/// Whether this is an address of the lab's client: a server that sees it was not reached through
/// the pair.
fn is_client(address: &str) -> bool {
    let address = address.trim_start_matches("::ffff:");
    ["10.1.0.2", "fd00:1::2"].contains(&address)
}

/// An ssh server with its own keys, which admits `key` as root, and a client that knows it. `/run`
/// is covered only in the lab.
const SSH: &str = "
    mount -t tmpfs tmpfs /run
    mkdir /run/sshd
    ssh-keygen -q -t ed25519 -N '' -f host
    ssh-keygen -q -t ed25519 -N '' -f key
    cat > sshd_config <<END
Port 2222
HostKey $PWD/host
AuthorizedKeysFile $PWD/key.pub
StrictModes no
UsePAM no
PermitRootLogin yes
PidFile none
Subsystem sftp internal-sftp
END
    cat > ssh_config <<END
Host server
Port 2222
User root
IdentityFile $PWD/key
IdentitiesOnly yes
UserKnownHostsFile $PWD/known
StrictHostKeyChecking yes
END
    echo \"[server]:2222 $(cat host.pub)\" > known
    on_server /usr/sbin/sshd -D -e -f \"$PWD/sshd_config\" 2> sshd_log &
    remote=\"ssh -F $PWD/ssh_config\"
    until_it_listens 2222
    until_it_works $remote server true
    head -c 1000000 /dev/urandom > sent
";

#[test]
fn ssh_scp_and_rsync_work() {
    if !Uid::effective().is_root() {
        return skip("sshd lets nobody in unless root runs it");
    }
    if !all_present(&["ssh", "scp", "rsync", "sha256sum"]) {
        return;
    }
    if !std::fs::exists("/usr/sbin/sshd").unwrap() {
        return skip("sshd is missing");
    }
    let script = "
        $remote server 'echo $SSH_CONNECTION'
        sha256sum < sent
        code=0; $remote server 'sha256sum; exit 3' < sent || code=$?
        echo $code
        scp -q -F ssh_config sent server:$PWD/there
        scp -q -F ssh_config server:$PWD/there back
        cmp sent back
        mkdir -p tree/branch
        cp sent tree/leaf
        echo small > tree/branch/leaf
        rsync -a -e \"$remote\" tree/ server:$PWD/mirror/
        echo more >> tree/leaf
        rsync -a -e \"$remote\" --no-whole-file --stats tree/ server:$PWD/mirror/ > stats
        diff -r tree mirror
        grep 'Matched data' stats | tr -dc 0-9";
    as_myself(|runner| {
        let lines = lines(runner, &format!("{SSH}{script}"));
        let [connection, sent, arrived, code, matched] = &lines[..] else { panic!("{lines:?}") };
        assert!(!is_client(connection.split(' ').next().unwrap()), "not through: {connection}");
        assert_eq!((arrived, code.as_str()), (sent, "3"));
        // rsync did not send again what the other side already had.
        assert!(matched.parse::<u32>().unwrap() > 900_000, "{matched}");
    });
}

#[test]
fn git_clones_and_pulls() {
    if !all_present(&["git"]) {
        return;
    }
    let script = "
        commit() {
            head -c 1000000 /dev/urandom > origin/data
            git -C origin add data
            git -C origin -c user.name=n -c user.email=e@example.net commit -qm \"$1\"
        }
        git init -q -b main origin
        commit first
        on_server git daemon --verbose --reuseaddr --export-all --base-path=\"$PWD\" 2> log &
        until_it_listens 9418
        until_it_works git clone -q git://server/origin copy
        commit second
        git -C copy pull -q
        git -C copy fsck --strict --no-progress
        cmp origin/data copy/data
        git -C origin rev-parse HEAD
        git -C copy rev-parse HEAD
        grep -o 'Connection from .*' log | head -n 1";
    as_each_user(|runner| {
        let lines = lines(runner, script);
        let [origin, copy, connection] = &lines[..] else { panic!("{lines:?}") };
        assert_eq!(origin, copy);
        let peer = connection.trim_start_matches("Connection from ").trim_start_matches('[');
        let (peer, _) = peer.rsplit_once(':').unwrap();
        assert!(!is_client(peer.trim_end_matches(']')), "not through the pair: {connection}");
    });
}

/// Number of pictures on the page.
const PICTURES: usize = 12;

#[test]
fn a_browser_loads_a_page_with_all_its_pictures() {
    if !all_present(&[BROWSER]) {
        return;
    }
    as_myself(|runner| runner.inside(&LOSSY, "clients::inside_a_browser_loads_a_page"));
}

pub(crate) fn inside_a_browser_loads_a_page() {
    static PICTURES_SERVED: AtomicUsize = AtomicUsize::new(0);
    let listener = listen(8080);
    thread::spawn(move || {
        loop {
            let client = accept(&listener);
            thread::spawn(move || serve_page(&client, &PICTURES_SERVED));
        }
    });
    let profile = tempfile::tempdir().unwrap();
    let profile = format!("--user-data-dir={}", profile.path().display());
    let options = ["--no-sandbox", "--disable-gpu", "--timeout=20000", "--dump-dom", &profile];
    let output = Command::new(BROWSER).args(options).arg("http://server:8080/").output().unwrap();
    let page = text(&output.stdout);
    assert!(page.contains(&format!("all {PICTURES} pictures")), "{page}\n{output:?}");
    assert_eq!(PICTURES_SERVED.load(Ordering::Relaxed), PICTURES);
}

/// Answers the requests on one connection: the page, or one of its pictures.
fn serve_page(client: &TcpStream, pictures: &AtomicUsize) -> Option<()> {
    let (mut reader, mut writer) = (BufReader::new(client), client);
    loop {
        let mut lines = reader.by_ref().lines().map_while(Result::ok);
        let request = lines.next()?;
        lines.find(|line| line.is_empty())?;
        let path = request.split(' ').nth(1)?;
        let (kind, body) = match path.strip_prefix("/picture") {
            Some(_) => {
                pictures.fetch_add(1, Ordering::Relaxed);
                ("image/svg+xml", picture())
            }
            None if path == "/" => ("text/html", page()),
            None => ("text/plain", String::new()),
        };
        let length = body.len();
        let head =
            format!("HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\r\n");
        writer.write_all((head + &body).as_bytes()).ok()?;
    }
}

/// A page that counts its loaded pictures.
fn page() -> String {
    let pictures: String = (0..PICTURES).map(|i| format!("<img src=\"/picture{i}\">")).collect();
    let script = "let whole = [...document.images].filter(it => it.naturalWidth == 7).length; \
                  document.getElementById('said').textContent = 'all ' + whole + ' pictures'";
    format!("<!doctype html><body onload=\"{script}\"><p id=\"said\"></p>{pictures}</body>")
}

/// A picture of 7 by 7 pixels in 50 kB.
fn picture() -> String {
    let padding = "x".repeat(50_000);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"7\" height=\"7\"><!--{padding}--></svg>"
    )
}
