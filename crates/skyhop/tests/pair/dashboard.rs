//! The dashboard in a real browser, during a download with a fade in its middle.
//!
//! `SKYHOP_DOCS=write cargo test -p skyhop --test pair dashboard` also writes the pictures of
//! `docs/dashboard.md`.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use lab::{Node, find_netns};
use nix::sys::signal::Signal;

use crate::bare;
use crate::common::browser::{BROWSER, Browser};
use crate::common::{as_myself, is_present, skip, text};
use crate::gateways::{Keys, both, connect_from};
use crate::inside::{Gateway, listen};
use crate::operate::{Sockets, skyhop};

const PORT: u16 = 4000;
/// Destination port of a class of its own.
const FILES: u16 = 4001;
const CLASS: &str = "\n[[class]]\nname = \"files\"\nports = [4001]\nweight = 1\n";
const PAGE: &str = "http://127.0.0.1:9590/";
const METRICS: &str = "[metrics]\nlisten = \"127.0.0.1:9590\"\n";

/// Two terminals behind a lossy link, which is gone for a while.
const FADING: [&str; 12] = [
    "--rate",
    "20 Mbit/s",
    "--return-rate",
    "5 Mbit/s",
    "--delay",
    "270 ms",
    "--per",
    "0.5%",
    "--outage",
    "40s+7s",
    "--terminals",
    "2",
];

#[test]
fn the_dashboard_shows_a_download_and_the_fade_in_its_middle() {
    if !is_present(BROWSER) {
        return skip(format!("{BROWSER} is missing"));
    }
    as_myself(|runner| runner.inside(&FADING, "dashboard::inside_a_download_fades"));
}

fn browser(node: Node) -> Browser {
    Browser::start(find_netns(node).unwrap().command("sh"))
}

/// A server that sends without end, and clients of it: one reads all, one reads slowly.
fn downloads() {
    for listener in [PORT, FILES].map(listen) {
        thread::spawn(move || {
            for client in listener.incoming() {
                thread::spawn(move || {
                    let mut client = client.unwrap();
                    while client.write_all(&[0; 1 << 16]).is_ok() {}
                });
            }
        });
    }
    let read = |mut from: TcpStream, pause: Duration| {
        from.set_read_timeout(None).unwrap();
        let mut room = vec![0; 1 << 16];
        while from.read(&mut room).is_ok_and(|got| got > 0) {
            thread::sleep(pause);
        }
    };
    let pauses = [Duration::ZERO, Duration::from_millis(500)];
    for (terminal, port, pause) in
        [(1, PORT, pauses[0]), (1, FILES, pauses[1]), (2, PORT, pauses[1])]
    {
        let node = Node::client(terminal).unwrap();
        let socket = connect_from(node, both(Node::Server, port)[0]);
        thread::spawn(move || read(socket, pause));
    }
}

pub(crate) fn inside_a_download_fades() {
    let (keys, sockets) = (Keys::new(2), Sockets::new());
    let rate = "rate = \"modem\"\ninitial_rate = \"10 Mbit/s\"";
    let own = format!("{rate}\n{}", sockets.key("hub"));
    let config = keys.hub_config(&own, &(METRICS.to_owned() + CLASS));
    let config = config.replace("name = \"1\"", "name = \"MV Aurora\"");
    let mut hub = Gateway::start(
        Node::Hub,
        "hub",
        &config.replace("name = \"2\"", "name = \"Tromsø village\""),
    );
    hub.wait_for("ready");
    let rate = "rate = \"5 Mbit/s\"";
    let terminals = [1, 2].map(|number| keys.terminal(number, rate, ""));
    let told = skyhop(&["rate", "18Mbit/s", "--for", "1h"], &sockets.path("hub"));
    assert!(told.status.success(), "{}", text(&told.stderr));
    downloads();

    let mut browser = browser(Node::Hub);
    browser.resize(1280, 800, false);
    browser.open(PAGE);
    the_list_leads_to_a_session(&mut browser);
    // A screen reader and a keyboard find everything.
    everything_has_a_name(&mut browser);
    browser.press_tab();
    assert_eq!(browser.evaluate("document.activeElement.textContent"), "Skip to the session");
    the_fade_is_seen(&mut browser);
    // What was repaired, and who is waited for.
    browser.wait_for("parseFloat(document.querySelector('#repairs tbody td').textContent) > 0");
    browser.wait_for("document.querySelector('#connections').innerText.includes('client')");
    browser.wait_for("document.querySelector('#class-rates').innerText.includes('files')");
    browser.wait_for("session.history.fine.figures['class files'].some(rate => rate > 1e5)");
    browser.wait_for("session.history.fine.figures.up.slice(-15).every(up => up === 1)");
    for (name, width, height) in [("desktop", 1280, 800), ("phone", 390, 844)] {
        for is_dark in [false, true] {
            browser.resize(width, height, is_dark);
            fits_and_can_be_read(&mut browser, width, is_dark);
            draw(&mut browser, name, is_dark);
        }
    }
    // The history is the gateway's: a page that is opened now shows the fade, too.
    browser.open("about:blank");
    browser.open(&format!("{PAGE}#"));
    the_list_leads_to_a_session(&mut browser);
    browser.wait_for("document.querySelector('#rates rect.fade')");
    assert_eq!(browser.errors, [""; 0]);
    drop(browser);
    terminals.into_iter().for_each(|terminal| terminal.end_by(Signal::SIGTERM));
    hub.end_by(Signal::SIGTERM);
}

fn the_list_leads_to_a_session(browser: &mut Browser) {
    browser.wait_for("document.querySelectorAll('#list tbody tr').length === 2");
    assert_eq!(browser.evaluate("document.querySelector('#list tbody th').innerText"), "MV Aurora");
    browser.evaluate("document.querySelector('#list tbody button').click()");
    browser.wait_for("document.querySelector('#session-title').textContent === 'MV Aurora'");
    browser.wait_for("document.querySelector('#figures').innerText.includes('18 Mbit/s')");
    browser.wait_for("session.history.fine.figures.sent.some(rate => rate > 5e6)");
}

fn the_fade_is_seen(browser: &mut Browser) {
    let state = "document.querySelector('#session-state').textContent";
    browser.wait_for(&format!("{state}.startsWith('does not answer')"));
    browser.wait_for("document.querySelector('#news').textContent.includes('fade begins')");
    browser.wait_for(&format!("{state} === 'works'"));
    let events = browser.evaluate("document.querySelector('#events').innerText");
    let events = events.as_str().unwrap();
    let [begins, ends] = ["fade begins", "fade ends"].map(|event| events.find(event).expect(event));
    assert!(ends < begins, "the last event comes first: {events}");
    assert!(events.contains("rate reported: 18 Mbit/s"), "{events}");
    browser.wait_for("document.querySelector('#rates rect.fade')");
    // The table beside the graph has the same figures.
    browser.evaluate("document.querySelector('#rates summary').click()");
    browser.wait_for("document.querySelector('#rates table').innerText.includes('Mbit/s')");
    browser.evaluate("document.querySelector('#rates summary').click()");
}

fn everything_has_a_name(browser: &mut Browser) {
    let nameless = "[...document.querySelectorAll('button, input, select, svg[role=img], a, th[scope=col]')]
        .filter(it => !(it.textContent.trim() || it.getAttribute('aria-label') || it.labels?.[0]?.textContent.trim()))
        .map(it => it.outerHTML.slice(0, 200))";
    assert_eq!(browser.evaluate(nameless), serde_json::json!([]));
}

/// Nothing is wider than the screen, and text stands out from its background (WCAG 2.1, 1.4.3: 4.5
/// to 1).
fn fits_and_can_be_read(browser: &mut Browser, width: u32, is_dark: bool) {
    browser.evaluate("document.querySelector('#session').scrollIntoView()");
    let wide = browser.evaluate("document.documentElement.scrollWidth");
    assert!(wide.as_u64().unwrap() <= width.into(), "{wide} on {width}");
    let faint = "(() => {
        const parts = color => color.match(/[\\d.]+/g).map(Number);
        const over = ([r, g, b, a = 1], under) => [r, g, b].map((it, i) => it * a + under[i] * (1 - a));
        const behind = it => it ? over(parts(getComputedStyle(it).backgroundColor), behind(it.parentElement)) : [255, 255, 255];
        const light = color => color.map(it => it / 255).map(it => it <= 0.04045 ? it / 12.92 : ((it + 0.055) / 1.055) ** 2.4)
            .reduce((sum, it, i) => sum + it * [0.2126, 0.7152, 0.0722][i], 0);
        return [...document.querySelectorAll('p, dt, dd, small, th, td, h1, h2, h3, a, li, .badge, label, summary, time')]
            .filter(it => it.innerText && it.offsetParent && !it.classList.contains('skip')).map(it => {
                const [one, other] = [light(parts(getComputedStyle(it).color)), light(behind(it))].sort((a, b) => b - a);
                return [(one + 0.05) / (other + 0.05), it.outerHTML.slice(0, 100)];
            }).filter(([contrast]) => contrast < 4.5);
    })()";
    assert_eq!(browser.evaluate(faint), serde_json::json!([]), "dark: {is_dark}");
}

fn draw(browser: &mut Browser, name: &str, is_dark: bool) {
    // Graphs are drawn anew for the new width.
    browser.evaluate("show()");
    let picture = browser.picture();
    assert_eq!(&picture[..4], b"\x89PNG");
    if std::env::var("SKYHOP_DOCS").is_ok_and(|wish| wish == "write") {
        let scheme = if is_dark { "dark" } else { "light" };
        let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/dashboard"));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(format!("{name}-{scheme}.png")), picture).unwrap();
    }
}

/// Names come from configurations and from peers; to a browser they are text.
const NAME: &str = "<img src=x onerror=document.title='owned'><b id=owned>ship</b>";

#[test]
fn names_are_text_for_the_browser_and_a_login_needs_the_token() {
    if !is_present(BROWSER) {
        return skip(format!("{BROWSER} is missing"));
    }
    as_myself(|runner| runner.inside(bare(), "dashboard::inside_a_name_is_a_script"));
}

pub(crate) fn inside_a_name_is_a_script() {
    let (keys, sockets) = (Keys::new(1), Sockets::new());
    let token = sockets.path("token");
    crate::operate::write_secret(&token, "0123456789abcdef\n");
    let metrics = format!("{METRICS}token_file = {token:?}\n");
    let config = keys.hub_config(&sockets.key("hub"), &metrics);
    let config = config.replace("name = \"1\"", &format!("name = {NAME:?}"));
    let mut hub = Gateway::start(Node::Hub, "hub", &config);
    hub.wait_for("ready");
    let mut browser = browser(Node::Hub);
    browser.open(PAGE);
    browser.wait_for("document.querySelector('input[type=password]')");
    browser.evaluate("document.querySelector('input').value = 'wrong'; document.forms[0].submit()");
    browser
        .wait_for("document.querySelector('[role=alert]')?.textContent.includes('not the token')");
    browser.evaluate(
        "document.querySelector('input').value = '0123456789abcdef'; document.forms[0].submit()",
    );
    a_hub_without_sessions_is_no_fault(&mut browser);
    let terminal = keys.terminal(1, "", "");
    // With one session, its details are shown at once.
    let title = "document.querySelector('#session-title')?.textContent";
    browser.wait_for(&format!("{title} === {NAME:?}"));
    browser.wait_for("document.querySelector('#state').textContent === 'in service'");
    browser.wait_for("document.querySelector('#next-step').hidden");
    classes_without_traffic_share_a_line(&mut browser);
    browser.wait_for(&format!("document.querySelector('#events').textContent.includes({NAME:?})"));
    assert_eq!(browser.evaluate("location.href.includes('token')"), false);
    assert_eq!(browser.evaluate("document.cookie"), "", "no script can read it");
    assert_eq!(
        browser.evaluate("document.querySelector('#owned, main img')"),
        serde_json::Value::Null
    );
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let title = format!("{NAME} – {} – skyhop hub", host.trim());
    assert_eq!(browser.evaluate("document.title"), title.as_str());
    drop(browser);
    terminal.end_by(Signal::SIGTERM);
    hub.end_by(Signal::SIGTERM);
}

/// The page says what is waited for, and what to do.
fn a_hub_without_sessions_is_no_fault(browser: &mut Browser) {
    browser.wait_for("document.querySelector('#state')?.textContent === 'waiting for terminals'");
    let is_bad = browser.evaluate("document.querySelector('#state').classList.contains('bad')");
    assert_eq!(is_bad, false);
    let step = "document.querySelector('#next-step')";
    browser.wait_for(&format!("!{step}.hidden && {step}.textContent.includes('skyhop terminal')"));
}

fn classes_without_traffic_share_a_line(browser: &mut Browser) {
    browser.wait_for(
        "(() => {
            const idle = document.querySelector('#idle-classes');
            const names = idle.hidden ? [] : idle.textContent.split(': ')[1].split(', ');
            const rows = document.querySelectorAll('#classes tbody tr');
            return names.length > 1 && names.length + rows.length === session.status.classes.length;
        })()",
    );
}
