//! Without IPv6, everything works over IPv4.

use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use lab::{LAN_DEVICE, Node, find_netns};
use nix::sys::signal::Signal;
use os::testkit::NoSockets;

use super::assert_transfer;
use crate::bare;
use crate::common::{Runner, as_each_user, program, text};
use crate::gateways::{Keys, accept_any, both, connect_from, listen_on};
use crate::inside::Gateway;

const SWITCHED_OFF: &str = "IPv6 connections are not intercepted: the IPv6 route: EACCES: ";
const TOLD: &str = "IPv6 connections are not intercepted: the IPv6 listener: EAFNOSUPPORT: ";

/// A script in a lab with these options, on a kernel without IPv6.
fn in_lab(runner: &Runner, options: &[&str], script: &str) -> Command {
    let mut command = runner.shell(options, script);
    NoSockets::IPV6.apply_to(&mut command);
    command
}

#[test]
fn without_ipv6_in_the_kernel_lab_pair_solo_and_doctor_work_on_ipv4() {
    let inside = "machines::without_ipv6::inside_a_kernel_without_ipv6";
    as_each_user(|runner| {
        runner.assert_passes(in_lab(runner, bare(), &program::command(inside)), inside);
    });
}

pub(crate) fn inside_a_kernel_without_ipv6() {
    assert!(std::net::UdpSocket::bind("[::]:0").is_err(), "there is no filter");
    let keys = Keys::new(1);
    let hub = keys.hub("", "[tunnel]");
    let mut terminal =
        Gateway::start(Node::Terminal, "terminal", &keys.terminal_config(1, "", "[tunnel]"));
    terminal.wait_for("ready");
    let told = terminal.line_with(TOLD);
    assert!(told.contains("no IPv6") && told.contains("restart the gateway"), "{told}");
    assert_transfer(4000);
    assert!(!terminal.has_said(TOLD), "it says so once");
    terminal.end_by(Signal::SIGTERM);
    hub.end_by(Signal::SIGTERM);

    let config = format!("[intercept]\ninterfaces = [\"{LAN_DEVICE}\"]\n");
    let mut solo = Gateway::start(Node::Terminal, "solo", &config);
    solo.wait_for("ready");
    assert_transfer(4001);
    solo.end_by(Signal::SIGTERM);

    let doctor = Command::new(std::env::var_os("SKYHOP").unwrap()).arg("doctor").output().unwrap();
    assert!(text(&doctor.stdout).contains(TOLD), "{doctor:?}");
}

/// IPv6 is switched off on the hosts of both gateways; then on that of a solo gateway.
#[test]
fn with_ipv6_switched_off_hub_terminal_and_solo_work_on_ipv4() {
    let inside = "machines::without_ipv6::inside_ipv6_is_switched_off";
    as_each_user(|runner| runner.inside(bare(), inside));
}

pub(crate) fn inside_ipv6_is_switched_off() {
    for node in [Node::Terminal, Node::Hub] {
        for scope in ["all", "default"] {
            let setting = format!("/proc/sys/net/ipv6/conf/{scope}/disable_ipv6");
            find_netns(node).unwrap().run(|| std::fs::write(&setting, "1")).unwrap();
        }
    }
    let keys = Keys::new(1);
    let hub = keys.intercepting_hub("", "own_traffic = true\n[tunnel]");
    let terminal = keys.terminal(1, "", "own_traffic = true\n[tunnel]");
    assert_transfer(4000);
    terminal.end_by(Signal::SIGTERM);
    hub.end_by(Signal::SIGTERM);

    let config = format!("[intercept]\ninterfaces = [\"{LAN_DEVICE}\"]\n");
    let mut solo = Gateway::start(Node::Terminal, "solo", &config);
    solo.wait_for("ready");
    solo.wait_for(SWITCHED_OFF);
    assert_transfer(4001);
    solo.end_by(Signal::SIGTERM);
}

#[test]
fn ipv6_that_goes_on_and_off_is_followed() {
    let inside = "machines::without_ipv6::inside_ipv6_goes_on_and_off";
    as_each_user(|runner| runner.inside(bare(), inside));
}

pub(crate) fn inside_ipv6_goes_on_and_off() {
    const ON: &str = "IPv6 connections are intercepted too";
    // The LAN keeps its addresses; only the path to the gateway goes.
    let switch = |off: &str| {
        let write = || std::fs::write("/proc/sys/net/ipv6/conf/lo/disable_ipv6", off);
        find_netns(Node::Terminal).unwrap().run(write).unwrap();
    };
    let [v4, v6] =
        both(Node::Server, 4002).map(|address| (address, listen_on(Node::Server, address)));
    let is_carried = |(address, listener): &(SocketAddr, TcpListener)| {
        let client = connect_from(Node::Client, *address);
        let (_server, peer) = accept_any(listener);
        peer.ip() != client.local_addr().unwrap().ip()
    };
    switch("1");
    let keys = Keys::new(1);
    let hub = keys.hub("", "");
    let mut terminal = Gateway::start(Node::Terminal, "terminal", &keys.terminal_config(1, "", ""));
    terminal.wait_for("ready");
    let told = terminal.line_with(SWITCHED_OFF);
    assert!(told.ends_with("once IPv6 works, the gateway uses it"), "{told}");
    assert_eq!((is_carried(&v4), is_carried(&v6)), (true, false));
    for (off, says, v6_is_carried) in [("0", ON, true), ("1", SWITCHED_OFF, false), ("0", ON, true)]
    {
        switch(off);
        terminal.wait_for(says);
        assert_eq!((is_carried(&v4), is_carried(&v6)), (true, v6_is_carried), "{says}");
    }
    terminal.end_by(Signal::SIGTERM);
    hub.end_by(Signal::SIGTERM);
}

/// A lab has its own hosts, unaffected by what is switched off outside.
#[test]
fn with_ipv6_switched_off_outside_a_lab_works() {
    as_each_user(|runner| {
        const OFF: &str = "echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6 && exec \"$@\"";
        let mut command = Command::new("unshare");
        if runner.user.is_some() {
            command.args(["--user", "--map-root-user"]);
        }
        command.args(["--net", "--mount", "sh", "-c", OFF, "sh"]).arg(&runner.skyhop);
        command.args(["lab", "run", "geo", "--gateways", "--", "true"]).current_dir("/");
        if let Some(user) = runner.user {
            command.uid(user).gid(user);
        }
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
    });
}

#[test]
fn without_ipv6_in_the_kernel_a_lab_with_gateways_serves_its_names() {
    as_each_user(|runner| {
        let script = "\"$SKYHOP\" meter bulk server --bytes 1MB && exit 7";
        let output = in_lab(runner, &["--gateways"], script).output().unwrap();
        assert_eq!(output.status.code(), Some(7), "{output:?}");
    });
}

#[test]
fn without_ipv6_in_the_kernel_the_demo_measures() {
    let directory = tempfile::tempdir().unwrap();
    let everybody = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(directory.path(), everybody).unwrap();
    crate::common::as_myself(|runner| {
        let mut demo = runner.skyhop();
        demo.args(["demo", "--only", "download", "--rate", "100Mbit/s", "--delay", "25ms"]);
        NoSockets::IPV6.apply_to(&mut demo);
        let output = demo.current_dir(directory.path()).output().unwrap();
        let table = text(&output.stdout);
        assert!(output.status.success() && !table.contains("SIMULATED"), "{output:?}");
    });
}
