//! What the packages hold works: units, scripts, lists of files.

use std::collections::BTreeSet;
use std::fs;
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use os::testkit::skip;
use tempfile::TempDir;

const SKYHOP: &str = env!("CARGO_BIN_EXE_skyhop");
/// Where the units expect it.
const INSTALLED: &str = "/usr/bin/skyhop";
/// The units, an instance of each, and the greatest exposure in tenths
/// (`systemd-analyze security`).
const UNITS: [(&str, &str, u32); 3] = [
    ("skyhop-hub.service", "skyhop-hub.service", 13),
    ("skyhop-terminal@.service", "skyhop-terminal@ship-1.service", 22),
    ("skyhop-solo.service", "skyhop-solo.service", 22),
];
const PATIENCE: Duration = Duration::from_secs(20);

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn packaging(path: &str) -> PathBuf {
    repository().join("packaging").join(path)
}

fn read(path: impl AsRef<Path>) -> String {
    let path = path.as_ref();
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Output of a command that must succeed.
fn output(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", said(&output));
    said(&output)
}

fn said(output: &Output) -> String {
    [&output.stdout[..], &output.stderr].map(String::from_utf8_lossy).concat()
}

/// The instances of the units, with the test's program.
fn units(instance: &str) -> (TempDir, Vec<PathBuf>) {
    let directory = tempfile::tempdir().unwrap();
    let copy = |(unit, name, _): &(&str, &str, u32)| {
        let text = read(packaging("systemd").join(unit)).replace(INSTALLED, SKYHOP);
        let path = directory.path().join(name.replace("ship-1", instance));
        fs::write(&path, text).unwrap();
        path
    };
    let paths = UNITS.iter().map(copy).collect();
    (directory, paths)
}

fn systemd_analyze() -> Option<Command> {
    let found = Command::new("systemd-analyze").arg("--version").output().is_ok();
    found.then(|| Command::new("systemd-analyze"))
}

#[test]
fn systemd_accepts_the_units() {
    let Some(mut verify) = systemd_analyze() else { return skip("systemd-analyze is missing") };
    let (_directory, paths) = units("ship-1");
    verify.args(["verify", "--man=no", "--recursive-errors=no"]).args(paths);
    // Unknown keys are only warnings.
    assert_eq!(output(&mut verify), "");
}

#[test]
fn systemd_finds_them_hardened() {
    let Some(_) = systemd_analyze() else { return skip("systemd-analyze is missing") };
    let (_directory, paths) = units("ship-1");
    let operate = read(repository().join("docs/operate.md"));
    for ((_, name, exposure), path) in UNITS.iter().zip(paths) {
        let row = format!("| {}.{} |", exposure / 10, exposure % 10);
        let mut rows = operate.lines().filter(|line| line.ends_with(&row));
        assert!(rows.any(|line| line.contains(name.trim_end_matches(".service"))), "{name} {row}");
        let mut security = systemd_analyze().unwrap();
        security.args(["security", "--offline=true", "--no-pager"]);
        security.arg(format!("--threshold={exposure}")).arg(path);
        output(&mut security);
    }
}

/// The values of a key of a unit, with the instance filled in.
fn values(unit: &str, key: &str) -> Vec<String> {
    let text = read(packaging("systemd").join(unit)).replace("%i", "ship-1");
    let prefix = format!("{key}=");
    text.lines().filter_map(|line| line.strip_prefix(&prefix)).map(str::to_owned).collect()
}

/// The command of a unit, for a gateway whose directories are below `root`.
fn unit_command(unit: &str, key: &str, root: &Path) -> Command {
    let [line] = &values(unit, key)[..] else { panic!("{unit} has one {key}") };
    let below = |text: &str| text.replace(" /etc/", &format!(" {}/etc/", root.display()));
    let line = below(line.trim_start_matches('-'));
    let mut words = line.split(' ');
    assert_eq!(words.next(), Some(INSTALLED));
    let mut command = Command::new(SKYHOP);
    command.args(words);
    for variable in values(unit, "Environment") {
        let (name, value) = variable.split_once('=').unwrap();
        command.env(name, format!("{}{value}", root.display()));
    }
    command
}

/// Starts, reloads and drains a hub as its unit does.
#[test]
fn a_hub_lives_as_its_unit_says() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    let [runtime] = &values("skyhop-hub.service", "RuntimeDirectory")[..] else { panic!() };
    let socket = root.join("run").join(runtime).join("hub.sock");
    fs::create_dir_all(socket.parent().unwrap()).unwrap();
    let free = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut init = Command::new(SKYHOP);
    init.arg("init").arg(root.join("etc/skyhop")).args(["--hub", &free.to_string()]);
    output(&mut init);
    let mut hub = unit_command("skyhop-hub.service", "ExecStart", root).spawn().unwrap();
    let started = Instant::now();
    while !socket.exists() {
        assert!(hub.try_wait().unwrap().is_none() && started.elapsed() < PATIENCE, "it starts");
        std::thread::sleep(Duration::from_millis(10));
    }
    let reload = output(&mut unit_command("skyhop-hub.service", "ExecReload", root));
    assert!(reload.contains("reloaded"), "{reload}");
    output(&mut unit_command("skyhop-hub.service", "ExecStop", root));
    assert!(hub.wait().unwrap().success());
}

#[test]
fn every_unit_starts_a_gateway_and_stops_it_in_time() {
    for (unit, _, _) in UNITS {
        let nowhere = tempfile::tempdir().unwrap();
        for (key, why) in [
            ("ExecStart", ".toml"),
            ("ExecReload", "no private directory"),
            ("ExecStop", "no private directory"),
        ] {
            let output = unit_command(unit, key, nowhere.path()).output().unwrap();
            let said = said(&output);
            let known = said.contains(why) || said.contains("no gateway runs here");
            assert!(known && !said.contains("Usage"), "{unit} {key}: {said}");
        }
        let stop = values(unit, "ExecStop").concat();
        let within = stop.rsplit_once(' ').unwrap().1.trim_end_matches('s');
        let limit = values(unit, "TimeoutStopSec").concat();
        let [within, limit] = [within, &limit].map(|text| text.parse::<u32>().unwrap());
        assert!(within < limit, "{unit}: systemd waits for the drain");
    }
}

/// The directories that a unit's key names, for an instance.
fn directories(unit: &str, key: &str, instance: &str) -> Vec<String> {
    let [line] = &values(unit, key)[..] else { panic!("{unit} has one {key}") };
    line.replace("ship-1", instance).split(' ').map(str::to_owned).collect()
}

#[test]
fn every_terminal_has_directories_of_its_own_and_keeps_those_that_its_file_may_name() {
    let unit = "skyhop-terminal@.service";
    for key in ["StateDirectory", "CacheDirectory", "RuntimeDirectory"] {
        let [one, other] = ["ship-1", "ship-2"].map(|instance| directories(unit, key, instance));
        assert_ne!(one[0], other[0], "{key}");
        let may_be_below = key == "RuntimeDirectory";
        assert_eq!(one[0].contains('/'), may_be_below, "{key}: a link has no directories below");
        // Of earlier versions; files name it.
        assert_eq!(one[1..] == ["skyhop"], !may_be_below, "{key}: {one:?}");
    }
    let operate = read(repository().join("docs/operate.md"));
    for place in ["/var/lib", "/var/cache"] {
        assert!(operate.contains(&format!("`{place}/skyhop-NAME`")), "{place}");
    }
}

#[test]
fn a_purge_removes_what_the_units_keep() {
    let root = tempfile::tempdir().unwrap();
    let script = |path: &str| {
        let text =
            read(packaging(path)).replace(" /var/", &format!(" {}/var/", root.path().display()));
        let start = text.find("for place in").unwrap();
        let end = text[start..].find("done").unwrap() + start;
        text[start..end].to_owned() + "done"
    };
    for path in ["install.sh", "scripts/postrm", "scripts/rpm-postun"] {
        let kept = |unit: &str, key: &str, place: &str| {
            let names = directories(unit, key, "ship-1").into_iter();
            names.map(|name| root.path().join("var").join(place).join(name)).collect::<Vec<_>>()
        };
        let mut all = Vec::new();
        for (key, place) in [("StateDirectory", "lib"), ("CacheDirectory", "cache")] {
            for place in [place.to_owned(), format!("{place}/private")] {
                all.extend(kept("skyhop-terminal@.service", key, &place));
                all.extend(kept("skyhop-hub.service", key, &place));
            }
        }
        let other = root.path().join("var/lib/skyhopper");
        all.iter().chain([&other]).for_each(|path| fs::create_dir_all(path).unwrap());
        output(Command::new("sh").args(["-c", &script(path)]));
        assert!(all.iter().all(|kept| !kept.exists()) && other.exists(), "{path}");
    }
}

/// What packages hold, with the test's program.
fn staged() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    output(Command::new(packaging("stage")).arg(SKYHOP).arg(directory.path().join("usr")));
    directory
}

/// The files below a directory.
fn files(root: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut directories = vec![root.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.is_symlink() {
                directories.push(path.clone());
            }
            found.insert(path.strip_prefix(root).unwrap().to_str().unwrap().to_owned());
        }
    }
    found
}

/// Files that match `directory/*.end`, `directory/*` or a path.
fn matching<'a>(pattern: &str, files: &'a BTreeSet<String>) -> Vec<&'a str> {
    let Some((start, end)) = pattern.split_once('*') else {
        return files.get(pattern).map(String::as_str).into_iter().collect();
    };
    let within = |file: &&str| {
        let rest = file.strip_prefix(start).and_then(|rest| rest.strip_suffix(end));
        rest.is_some_and(|rest| !rest.is_empty() && !rest.contains('/'))
    };
    files.iter().map(String::as_str).filter(within).collect()
}

#[test]
fn deb_and_rpm_hold_the_same_files_and_every_one() {
    let directory = staged();
    let stage = directory.path().join("usr");
    let mut all = files(&stage);
    all.retain(|file| stage.join(file).is_file());
    for program in ["share/man/man1/skyhop-hub.1.gz", "share/doc/skyhop/LICENSE-MIT"] {
        assert!(all.contains(program), "{all:?}");
    }
    let manifest: toml::Table =
        read(repository().join("crates/skyhop/Cargo.toml")).parse().unwrap();
    let metadata = &manifest["package"]["metadata"];
    let deb = metadata["deb"]["assets"].as_array().unwrap();
    let rpm = metadata["generate-rpm"]["assets"].as_array().unwrap();
    let three = |row: &toml::Value, keys: [&str; 3]| {
        let get = |(at, key): (usize, &&str)| row.get(*key).or_else(|| row.get(at));
        let all: Vec<String> = keys
            .iter()
            .enumerate()
            .map(|row| get(row).unwrap().as_str().unwrap().trim_start_matches('/').to_owned())
            .collect();
        <[String; 3]>::try_from(all).unwrap()
    };
    for assets in [deb, rpm] {
        let mut covered = BTreeSet::new();
        for asset in assets {
            let [source, to, mode] = three(asset, ["source", "dest", "mode"]);
            let pattern = source.trim_start_matches("../").strip_prefix("target/packages/stage/");
            let found = matching(pattern.unwrap(), &all);
            assert!(!found.is_empty(), "{source} matches nothing that packaging/stage lays out");
            for file in found {
                let staged = fs::metadata(stage.join(file)).unwrap().permissions().mode() & 0o777;
                assert_eq!(mode, format!("{staged:o}"), "{file}");
                let place = Path::new("usr").join(file).parent().unwrap().join("");
                let place = place.to_str().unwrap().to_owned();
                // Debian's zsh looks elsewhere.
                let debian = to.replace("vendor-completions", "site-functions");
                assert!(to == place || debian == place, "{file} goes to {to}");
                covered.insert(file.to_owned());
            }
        }
        assert_eq!(covered, all);
    }
    for (key, script) in [("deb", "maintainer-scripts"), ("generate-rpm", "post_install_script")] {
        let path = metadata[key][script].as_str().unwrap().trim_start_matches("../");
        assert!(repository().join(path).exists(), "{path}");
    }
}

/// An unpacked archive, and busybox as its only tools.
struct Archive {
    directory: TempDir,
}

impl Archive {
    fn new() -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let tools = directory.path().join("tools");
        fs::create_dir(&tools).unwrap();
        Command::new("busybox").args(["--install", "-s"]).arg(&tools).output().ok()?;
        fs::rename(staged().keep().join("usr"), directory.path().join("files")).unwrap();
        fs::copy(packaging("install.sh"), directory.path().join("install.sh")).unwrap();
        Some(Self { directory })
    }

    fn at(&self, path: &str) -> PathBuf {
        self.directory.path().join(path)
    }

    /// Runs install.sh for `prefix`; it touches nothing outside.
    fn run(&self, arguments: &[&str]) -> Output {
        let mut shell = Command::new(self.at("tools/sh"));
        shell.arg(self.at("install.sh")).args(["--files-only", "--prefix"]).arg(self.at("prefix"));
        shell.args(arguments).env("PATH", self.at("tools")).output().unwrap()
    }

    fn succeeds(&self, arguments: &[&str]) {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", said(&output));
    }
}

#[test]
fn an_archive_is_installed_upgraded_and_removed_with_busybox_alone() {
    let Some(archive) = Archive::new() else { return skip("busybox is missing") };
    fs::create_dir_all(archive.at("prefix/bin")).unwrap();
    fs::write(archive.at("prefix/bin/other"), "another program").unwrap();
    let before = files(&archive.at("prefix"));
    archive.succeeds(&[]);
    let version = output(Command::new(archive.at("prefix/bin/skyhop")).arg("--version"));
    assert_eq!(version, format!("skyhop {}\n", env!("CARGO_PKG_VERSION")));
    let unit = read(archive.at("prefix/lib/systemd/system/skyhop-hub.service"));
    let start = format!("ExecStart={}/bin/skyhop hub", archive.at("prefix").display());
    assert!(unit.contains(&start) && !unit.contains("/usr/bin"), "{unit}");
    let first = files(&archive.at("prefix"));

    // The next version has one file less and one more.
    fs::remove_file(archive.at("files/share/skyhop/hub-net-admin.conf")).unwrap();
    fs::create_dir(archive.at("files/share/new")).unwrap();
    fs::write(archive.at("files/share/new/file"), "").unwrap();
    archive.succeeds(&[]);
    let mut second = first.clone();
    second.remove("share/skyhop/hub-net-admin.conf");
    second.extend(["share/new".to_owned(), "share/new/file".to_owned()]);
    assert_eq!(files(&archive.at("prefix")), second);

    archive.succeeds(&["--uninstall"]);
    assert_eq!(files(&archive.at("prefix")), before);
    let again = archive.run(&["--uninstall"]);
    assert!(!again.status.success() && said(&again).contains("is not installed"), "{again:?}");
}

#[test]
fn install_says_what_it_accepts() {
    let Some(archive) = Archive::new() else { return skip("busybox is missing") };
    for (arguments, why) in [
        (&["--frob"][..], "--frob: expected --prefix DIR"),
        (&["--prefix"], "--prefix: expected a directory"),
        (&["--prefix", "usr"], "expected an absolute path"),
        (&["--prefix", "/a b"], "expected an absolute path"),
        (&["--purge"], "--purge goes with --uninstall"),
    ] {
        let output = archive.run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(said(&output).contains(why), "{arguments:?}: {}", said(&output));
    }
    fs::remove_dir_all(archive.at("files")).unwrap();
    assert!(said(&archive.run(&[])).contains("run it in the unpacked archive"));
    assert!(!archive.at("prefix").exists(), "nothing is left");
}

/// The flake is parsed as Nix does, not evaluated.
#[test]
fn the_flake_parses_and_names_files_that_exist() {
    let text = read(repository().join("flake.nix"));
    let parsed = rnix::Root::parse(&text);
    assert!(parsed.errors().is_empty(), "{:?}", parsed.errors());
    assert!(!rnix::Root::parse(&text.replacen('{', "", 1)).errors().is_empty(), "it can fail");
    for path in ["Cargo.toml", "Cargo.lock", "packaging/stage"] {
        assert!(text.contains(path) && repository().join(path).exists(), "{path}");
    }
}

/// Stand-ins for the rules of OpenWrt that the recipe uses: enough to prepare and to install.
const OPENWRT: [(&str, &str); 3] = [
    (
        "rules.mk",
        "INCLUDE_DIR:=$(TOPDIR)/include\nCP:=cp -r\nINSTALL_DIR:=install -d -m0755\n\
         INSTALL_BIN:=install -m0755\nPKG_BUILD_DIR:=$(TOPDIR)/build\n\
         PKG_INSTALL_DIR:=$(TOPDIR)/built\n",
    ),
    (
        "include/package.mk",
        "define BuildPackage\nprepare:\n\t$$(Build/Prepare)\ninstall:\n\
         \t$$(call Package/$(1)/install,$(TOPDIR)/root)\n\
         version:\n\t@echo $(PKG_VERSION) $(PKG_LICENSE)\nendef\n",
    ),
    ("feeds/packages/lang/rust/rust-package.mk", ""),
];

#[test]
fn the_openwrt_recipe_prepares_and_installs() {
    let top = tempfile::tempdir().unwrap();
    let at = |path: &str| top.path().join(path);
    for (path, text) in OPENWRT {
        fs::create_dir_all(at(path).parent().unwrap()).unwrap();
        fs::write(at(path), text).unwrap();
    }
    fs::create_dir_all(at("built/bin")).unwrap();
    fs::copy(SKYHOP, at("built/bin/skyhop")).unwrap();
    let make = |goal: &str| {
        let mut make = Command::new("make");
        make.arg("-C").arg(packaging("openwrt")).arg("--no-print-directory").arg(goal);
        make.arg(format!("TOPDIR={}", top.path().display()));
        make
    };
    if make("version").output().is_err() {
        return skip("make is missing");
    }
    let version = output(&mut make("version"));
    assert_eq!(version, format!("{} Apache-2.0 OR MIT\n", env!("CARGO_PKG_VERSION")));
    output(&mut make("install"));
    let installed = files(&at("root"));
    for path in ["usr/bin/skyhop", "etc/init.d/skyhop", "etc/skyhop"] {
        assert!(installed.contains(path), "{installed:?}");
    }
    output(&mut make("prepare"));
    assert!(at("build/crates/skyhop/Cargo.toml").exists() && at("build/Cargo.lock").exists());
}

#[test]
fn the_openwrt_service_knows_the_role_of_each_configuration() {
    let script = packaging("openwrt/files/skyhop.init");
    let ask = ". \"$1\"; role hub; role solo; role ship-1";
    let roles = output(Command::new("sh").args(["-c", ask, "sh"]).arg(script));
    assert_eq!(roles, "hub\nsolo\nterminal\n");
}

/// The programs that the release workflow runs from the repository.
#[test]
fn the_release_workflow_runs_scripts_that_exist() {
    let text = read(repository().join(".github/workflows/release.yml"));
    let words = text.split_whitespace().filter(|word| word.starts_with("packaging/"));
    let scripts: BTreeSet<&str> = words.collect();
    assert!(scripts.contains("packaging/build") && scripts.contains("packaging/test"));
    for script in scripts {
        let mode = fs::metadata(repository().join(script)).unwrap().permissions().mode();
        assert!(mode & 0o100 != 0, "{script} can be run");
    }
}

/// The command of docs/install.md, with a key made for the test.
#[test]
fn a_signature_is_verified_as_the_page_says() {
    let page = read(repository().join("docs/install.md"));
    let verify = page.lines().find(|line| line.starts_with("ssh-keygen -Y verify")).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let at = |path: &str| directory.path().join(path);
    let mut keygen = Command::new("ssh-keygen");
    keygen.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(at("key"));
    if keygen.output().is_err() {
        return skip("ssh-keygen is missing");
    }
    let public = read(at("key.pub"));
    let signers = read(packaging("allowed_signers"));
    let form = signers.lines().find(|line| line.contains("release@skyhop")).unwrap();
    let form = form.trim_start_matches(['#', ' ']).replace("ssh-ed25519 AAAA…", public.trim());
    fs::write(at("allowed_signers"), form).unwrap();
    fs::write(at("SHA256SUMS"), "0123  skyhop.deb\n").unwrap();
    let mut sign = Command::new(packaging("sign"));
    output(sign.arg(at("SHA256SUMS")).env("SKYHOP_SIGNING_KEY", at("key")));

    let mut shell = Command::new("sh");
    shell.args(["-c", verify]).current_dir(directory.path());
    assert!(output(&mut shell).contains("Good \"skyhop-release\" signature"));
    fs::write(at("SHA256SUMS"), "4567  skyhop.deb\n").unwrap();
    assert!(!shell.output().unwrap().status.success(), "other sums are not signed");
}
