mod reference_page;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::{
    AnswerTiming, ControlPath, DlepConfig, EtcdConfig, EtcdLogin, EtcdTls, MetricsConfig,
    ModemLocation, NameResolution, NodeReach, OperationConfig, ProxyConfig, SideConfig, TlsFiles,
    TunnelConfig, TunnelDevice,
};
use pep::accounting::{ExhaustedAction, RenewalPeriod, VolumeQuota};
use pep::egress::{EgressRules, EgressTarget};
use pep::hubs::HubId;
use pep::keys::format_public_key;
use pep::routes::TerminalQuota;
use pep::traffic::{PacketQueue, PolicyAction};
use slacp::{ClassRates, KeyPair, SessionShare};
use units::{BitRate, ByteCount};

use crate::*;

/// A key pair for tests only.
const PRIVATE: &str = "yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=";
const PUBLIC: &str = "HIgo9xNzJMWLKASShiTqIybxZ0U3wGLiUeJ1PKf8ykw=";

fn file<'a>(name: &'a str, text: &'a str) -> ConfigFile<'a> {
    ConfigFile { path: Path::new(name), text, regular: true }
}

fn any_key(_: KeySource) -> Result<KeyPair, &'static str> {
    Ok(KeyPair::from_private([7; 32]))
}

/// The public key of [`any_key`].
fn own_key() -> String {
    format_public_key(&KeyPair::from_private([7; 32]).public())
}

fn terminal(text: &str) -> Result<TerminalConfig, FileError> {
    file("/site/terminal.toml", text).terminal(any_key)
}

fn hub(text: &str) -> Result<HubConfig, FileError> {
    file("/site/hub.toml", text).hub(any_key)
}

fn solo(text: &str) -> Result<SoloConfig, FileError> {
    file("/site/solo.toml", text).solo()
}

/// A terminal's configuration with `from` replaced by `to`.
fn terminal_with(from: &str, to: &str) -> String {
    let text = format!(
        "private_key = \"{PRIVATE}\"\nhub = \"192.0.2.1:5900\"\nhub_key = \"{PUBLIC}\"\n\
         rate = \"10 Mbit/s\"\n[intercept]\ninterfaces = [\"lan0\"]\n"
    );
    assert!(text.contains(from), "{from:?} is not in the configuration");
    text.replace(from, to)
}

/// The section of [`terminal_with`] that may be omitted.
const INTERCEPT: &str = "[intercept]\ninterfaces = [\"lan0\"]\n";

fn hub_with(from: &str, to: &str) -> String {
    let text = format!(
        "private_key = \"{PRIVATE}\"\nrate = \"50 Mbit/s\"\n\
         [[terminal]]\nname = \"ship-1\"\nkey = \"{PUBLIC}\"\n"
    );
    assert!(text.contains(from), "{from:?} is not in the configuration");
    text.replace(from, to)
}

#[test]
fn a_short_terminal_configuration_suffices() {
    let config = terminal(&terminal_with("lan0", "lan0")).unwrap();
    assert_eq!(config.hubs.len(), 1);
    assert_eq!(config.hubs[0].address.as_str(), "192.0.2.1:5900");
    assert_eq!(format_public_key(&config.hubs[0].key), PUBLIC);
    assert_eq!(config.link.rate, slacp::Rate::Fixed(BitRate::from_mbit(10)));
    assert_eq!(config.link.mtu, 1500);
    let intercept = config.intercept.unwrap();
    assert_eq!(intercept.interfaces, ["lan0"]);
    assert!(config.policies.is_empty() && config.listen.is_none() && config.proxy.is_none());
}

#[test]
fn a_proxy_needs_no_interface_and_serves_this_machine_by_default() {
    let with = |proxy: &str| {
        let text = terminal_with(INTERCEPT, &format!("[proxy]\nlisten = {proxy}"));
        terminal(&text).unwrap()
    };
    let serves = |proxy: &ProxyConfig, client: &str| proxy.serves(client.parse().unwrap());
    let config = with("\"127.0.0.1:1080\"");
    let proxy = config.proxy.unwrap();
    assert!(config.intercept.is_none() && proxy.answer == AnswerTiming::Early);
    assert_eq!(proxy.names, NameResolution::Hub);
    assert!(serves(&proxy, "127.0.0.1") && serves(&proxy, "::ffff:127.0.0.1"));
    assert!(!serves(&proxy, "10.1.0.1"));

    let open = "\"[::]:1080\"\nclients = [\"10.1.0.0/16\", \"fd00::/8\"]\nanswer = \"deferred\"\nnames = \"here\"";
    let proxy = with(open).proxy.unwrap();
    assert_eq!((proxy.answer, proxy.names), (AnswerTiming::Deferred, NameResolution::Here));
    for (client, served) in
        [("10.1.2.3", true), ("::ffff:10.1.2.3", true), ("fd00::1", true), ("10.2.0.1", false)]
    {
        assert_eq!(serves(&proxy, client), served, "{client}");
    }
}

#[test]
fn a_short_hub_configuration_suffices() {
    let config = hub(&hub_with("", "")).unwrap();
    assert_eq!(config.link.rate, slacp::Rate::Fixed(BitRate::from_mbit(50)));
    assert_eq!(config.connect_timeout, Duration::from_secs(30));
    assert_eq!(config.terminals[0].name, "ship-1");
    assert!(config.terminals[0].networks.is_empty());
    assert!(config.intercept.is_none() && !config.mesh);
}

#[test]
fn a_terminal_has_the_addresses_behind_it() {
    let networks = "networks = [\"10.1.0.0/16\", \"fd00:1::/64\"]";
    let text = hub_with("name = \"ship-1\"", &format!("name = \"ship-1\"\n{networks}"));
    let config = hub(&text).unwrap();
    let networks: Vec<String> =
        config.terminals[0].networks.iter().map(ToString::to_string).collect();
    assert_eq!(networks, ["10.1.0.0/16", "fd00:1::/64"]);
}

#[test]
fn further_hubs_have_names_and_keys_of_their_own() {
    let other = format_public_key(&KeyPair::from_private([9; 32]).public());
    let with = |sections: &str| {
        let order = format!("hub_order = \"listed\"\n{INTERCEPT}");
        terminal(&(terminal_with(INTERCEPT, &order) + sections))
    };
    let second = format!("[[other_hub]]\naddress = \"b:1\"\nkey = \"{other}\"\ntcp = \"b:443\"\n");
    let config = with(&second).unwrap();
    let names: Vec<&str> = config.hubs.iter().map(|hub| &hub.name[..]).collect();
    assert_eq!(names, ["hub", "hub-2"]);
    assert_eq!(config.hubs[1].tcp.as_ref().map(ToString::to_string).as_deref(), Some("b:443"));
    assert_eq!(config.ranking(), [HubId(0), HubId(1)]);
    for (sections, parts) in [
        (second.replace(&other, PUBLIC), ["other_hub.0.key", "hub has the same key"]),
        (second.replace(&other, &own_key()), ["other_hub.0.key", "own public key"]),
        (second.replace("b:1", "b"), ["other_hub.0.address", "an address and a UDP port"]),
        (second.replace("tcp", "name = \"hub\"\ntcp"), ["other_hub.0.name", "no earlier hub"]),
        ("[[other_hub]]\naddress = \"b:1\"\n".to_owned(), ["other_hub.0.key", "expected"]),
        ("[[other_hub]]\nport = 1\n".to_owned(), ["port", "address"]),
    ] {
        let error = with(&sections).unwrap_err().to_string();
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    }
    let many: String = (10..18)
        .map(|seed| {
            second.replace(&other, &format_public_key(&KeyPair::from_private([seed; 32]).public()))
        })
        .collect();
    let error = with(&many).unwrap_err().to_string();
    assert!(error.contains("at most 8 hubs"), "{error}");
}

#[test]
fn a_carrier_is_the_hubs_or_the_terminals() {
    let carrier = |top: &str, of_terminal: &str| {
        let text = hub_with("[[terminal]]", &format!("{top}[[terminal]]"));
        let config = hub(&format!("{text}{of_terminal}"));
        config.map(|config| config.terminals[0].carrier.clone()).map_err(|error| error.to_string())
    };
    let name = |name: &str| Ok(Some(name.to_owned()));
    assert_eq!(carrier("", ""), Ok(None));
    assert_eq!(carrier("carrier = \"ku-1\"\n", ""), name("ku-1"));
    assert_eq!(carrier("carrier = \"ku-1\"\n", "carrier = \"ka 2\"\n"), name("ka 2"));
    for (top, of_terminal, key) in [
        ("carrier = \"\"\n", "", "hub.toml:3: carrier = \"\""),
        ("", "carrier = \" \"\n", "hub.toml:6: terminal.0.carrier = \" \""),
    ] {
        let error = carrier(top, of_terminal).unwrap_err();
        assert!(error.contains(key) && error.contains("expected the name of a"), "{error}");
    }
}

#[test]
fn a_rate_may_be_measured_or_configured() {
    let with = |to: &str| {
        let config = hub(&hub_with("rate = \"50 Mbit/s\"", to)).unwrap();
        (config.link.rate, config.operation.maximum_rate)
    };
    let most = BitRate::from_mbit(40);
    assert_eq!(with("rate = \"auto\""), (slacp::Rate::auto(), None));
    let ceiling = Some(most);
    let maximum = "maximum_rate = \"40 Mbit/s\"";
    assert_eq!(
        with(&format!("rate = \"auto\"\n{maximum}")),
        (slacp::Rate::Auto { ceiling, probe: true }, ceiling)
    );
    let quiet = slacp::Rate::Auto { ceiling: None, probe: false };
    assert_eq!(with("rate = \"auto\"\nprobe = false").0, quiet);
    let modem = with(&format!("rate = \"modem\"\ninitial_rate = \"40 Mbit/s\"\n{maximum}"));
    assert_eq!(modem, (slacp::Rate::Modem { initial: most }, ceiling));
    let measured = with(&format!("rate = \"modem\"\n{maximum}"));
    assert_eq!(measured, (slacp::Rate::ModemOrAuto { ceiling, probe: true }, ceiling));
    let quiet = slacp::Rate::ModemOrAuto { ceiling: None, probe: false };
    assert_eq!(with("rate = \"modem\"\nprobe = false").0, quiet);
}

#[test]
fn padding_takes_a_share_of_what_is_sent() {
    let with = |keys: &str| {
        let config = hub(&hub_with("rate = \"50 Mbit/s\"", keys));
        config.map(|config| config.link.padding_share).map_err(|error| error.to_string())
    };
    assert_eq!(with("rate = \"auto\""), Ok(0.02));
    assert_eq!(with("rate = \"auto\"\nprobe_share = \"0.5 %\""), Ok(0.005));
    assert_eq!(with("rate = \"modem\"\nprobe_share = \"0 %\""), Ok(0.0));
    for (keys, expected) in [
        ("rate = \"auto\"\nprobe_share = \"101 %\"", "0 % to 100 %"),
        ("rate = \"auto\"\nprobe_share = \"-1 %\"", "0 % to 100 %"),
        ("rate = \"auto\"\nprobe_share = \"much\"", "much"),
        ("rate = \"auto\"\nprobe = false\nprobe_share = \"1 %\"", "with probe = true"),
        ("rate = \"9 Mbit/s\"\nprobe_share = \"1 %\"", "a rate that is measured"),
    ] {
        let error = with(keys).unwrap_err();
        assert!(error.contains("probe_share") && error.contains(expected), "{error}");
    }
}

#[test]
fn a_burst_holds_a_packet_at_least() {
    let with = |keys: &str| {
        let config = hub(&hub_with("rate = \"50 Mbit/s\"", &format!("rate = \"auto\"\n{keys}")));
        config.map(|config| config.link.burst).map_err(|error| error.to_string())
    };
    assert_eq!(with(""), Ok(None));
    assert_eq!(with("burst = \"3 kB\""), Ok(Some(ByteCount::new(3000))));
    assert_eq!(with("burst = \"1200 B\"\nmtu = 1200"), Ok(Some(ByteCount::new(1200))));
    let error = with("burst = \"1400 B\"").unwrap_err();
    assert!(error.contains("burst") && error.contains("1500 bytes"), "{error}");
}

#[test]
fn the_operation_of_a_gateway_is_configured() {
    let with = |keys: &str| {
        let text = hub_with("rate", &format!("{keys}\nrate"));
        hub(&text).map(|config| config.operation)
    };
    let file = Some(PathBuf::from("/site/hub.toml"));
    assert_eq!(with("").unwrap(), OperationConfig { file: file.clone(), ..Default::default() });
    let keys = "control = \"ctl.sock\"\nstate = \"kept\"\ntotal_memory = \"1 GB\"\nmax_connections = 7\n\
                keepalive = \"30 s\"\nlog = \"warn,gateway=debug\"";
    let expected = OperationConfig {
        control: ControlPath::At(PathBuf::from("/site/ctl.sock")),
        total_memory: Some(ByteCount::new(1_000_000_000)),
        max_connections: Some(7),
        keepalive: Some(Duration::from_secs(30)),
        log: Some("warn,gateway=debug".parse().unwrap()),
        maximum_rate: None,
        state: Some(PathBuf::from("/site/kept")),
        metrics: None,
        dlep: None,
        file,
        warnings: Vec::new(),
    };
    assert_eq!(with(keys).unwrap(), expected);
    assert_eq!(with("control = \"none\"").unwrap().control, ControlPath::None);
    for (keys, told) in [
        ("control = \"\"", "control = \"\": expected a path"),
        ("max_connections = 0", "max_connections = 0: expected at least 1"),
        ("total_memory = \"1 kB\"", "at least 64 kB"),
    ] {
        let error = with(keys).unwrap_err().to_string();
        assert!(error.contains(told), "{error}");
    }
}

#[test]
fn metrics_are_served_beyond_this_machine_only_to_those_named() {
    let with = |keys: &str| {
        let text = hub_with("rate", &format!("metrics = {{ {keys} }}\nrate"));
        hub(&text).map(|config| config.operation.metrics)
    };
    let plain = |listen: &str| MetricsConfig {
        listen: listen.parse().unwrap(),
        token_file: None,
        allow: Vec::new(),
        hosts: Vec::new(),
        hide_destinations: false,
    };
    for at in ["127.0.0.1:9590", "[::1]:9590"] {
        assert_eq!(with(&format!("listen = \"{at}\"")).unwrap(), Some(plain(at)));
    }
    let at = "0.0.0.0:9590";
    let token_file = Some(PathBuf::from("/site/token"));
    let found = with(&format!("listen = \"{at}\", token_file = \"token\"")).unwrap();
    assert_eq!(found, Some(MetricsConfig { token_file, ..plain(at) }));
    let keys = "allow = [\"10.0.0.0/8\"], hosts = [\"Hub.lan\"], hide_destinations = true";
    let expected = MetricsConfig {
        allow: vec!["10.0.0.0/8".parse().unwrap()],
        hosts: vec!["hub.lan".to_owned()],
        hide_destinations: true,
        ..plain(at)
    };
    assert_eq!(with(&format!("listen = \"{at}\", {keys}")).unwrap(), Some(expected));
    let local = "listen = \"127.0.0.1:9590\"";
    for (keys, told) in [
        ("", "metrics.listen is missing"),
        ("listen = \"9590\"", "metrics.listen = \"9590\": expected an address and a port"),
        ("listen = \"0.0.0.0:9590\"", "or `allow = [\"10.0.0.0/8\"]`"),
        ("listen = \"[::]:9590\"", "metrics.listen = \"[::]:9590\": expected a loopback"),
        ("listen = \"192.0.2.1:9590\"", "`token_file = \"FILE\"`"),
        (&format!("{local}, allow = []"), "at least one prefix"),
        (&format!("{local}, allow = [\"ten\"]"), "metrics.allow"),
        (&format!("{local}, token_file = \"\""), "metrics.token_file = \"\": expected a path"),
        (&format!("{local}, hosts = [\"hub:9590\"]"), "metrics.hosts = \"hub:9590\""),
    ] {
        let error = with(keys).unwrap_err().to_string();
        assert!(error.contains(told), "{keys}: {error}");
    }
}

#[test]
fn a_modem_is_asked_for_its_rate_where_it_is() {
    let with = |rate: &str, keys: &str| {
        let text = hub_with("rate = \"50 Mbit/s\"", rate);
        hub(&format!("{text}\n[dlep]\n{keys}")).map(|config| config.operation.dlep)
    };
    const MODEM: &str = "rate = \"modem\"\ninitial_rate = \"1 Mbit/s\"";
    let heartbeat = Duration::from_secs(5);
    let config = |modem| DlepConfig { modem, heartbeat, gtsm: true, on_demand: false };
    for rate in [MODEM, "rate = \"modem\""] {
        let found = with(rate, "interface = \"wan0\"").unwrap();
        assert_eq!(found, Some(config(ModemLocation::Discover("wan0".to_owned()))));
    }
    for (modem, address) in [
        ("192.0.2.1", "192.0.2.1:854"),
        ("192.0.2.1:99", "192.0.2.1:99"),
        ("2001:db8::1", "[2001:db8::1]:854"),
        ("[2001:db8::1]:99", "[2001:db8::1]:99"),
    ] {
        let found = with(MODEM, &format!("modem = \"{modem}\"")).unwrap();
        assert_eq!(found, Some(config(ModemLocation::At(address.parse().unwrap()))));
    }
    let all =
        with(MODEM, "modem = \"192.0.2.1\"\nheartbeat = \"1 min\"\ngtsm = false\non_demand = true");
    let all = all.unwrap().unwrap();
    assert_eq!((all.heartbeat, all.gtsm, all.on_demand), (Duration::from_secs(60), false, true));
    for (rate, keys, told) in [
        (
            "rate = \"auto\"",
            "interface = \"wan0\"",
            "rate = \"auto\": expected \"modem\", which [dlep] needs",
        ),
        (
            "rate = \"9 Mbit/s\"",
            "interface = \"wan0\"",
            "hub.toml:2: rate = \"9 Mbit/s\": expected \"modem\"",
        ),
        (MODEM, "", "dlep.interface is missing: expected the interface"),
        (MODEM, "interface = \"\"", "dlep.interface = \"\": expected the name"),
        (MODEM, "interface = \"a\"\nmodem = \"192.0.2.1\"", "only one of `interface`"),
        (MODEM, "modem = \"modem.lan\"", "dlep.modem = \"modem.lan\": expected an address"),
        (MODEM, "modem = \"224.0.0.117\"", "expected an address"),
        (MODEM, "interface = \"a\"\nheartbeat = \"0.5 s\"", "expected 1 s to 1 h"),
        (MODEM, "interface = \"a\"\nport = 9", "port"),
    ] {
        let error = with(rate, keys).unwrap_err().to_string();
        assert!(error.contains(told), "{keys}: {error}");
    }
}

#[test]
fn every_key_is_taken_over() {
    let all = "listen = \"[::1]:7\"\nmtu = 1400\nmemory = \"8 MB\"\nstream_window = \"1 MB\"\n\
               connect_timeout = \"5 s\"\n[intercept]\nbypass = [\"10.0.0.0/8\", \"fd00::/8\"]";
    let config = terminal(&terminal_with("[intercept]", all)).unwrap();
    assert_eq!(config.listen, Some("[::1]:7".parse().unwrap()));
    assert_eq!(config.link.mtu, 1400);
    assert_eq!(config.link.memory, ByteCount::new(8_000_000));
    assert_eq!(config.link.stream_window, ByteCount::new(1_000_000));
    assert_eq!(config.connect_timeout, Duration::from_secs(5));
    assert_eq!(config.policies[0].to.len(), 2);
}

#[test]
fn a_tunnel_has_a_device_and_every_channel() {
    let plain = terminal(&terminal_with("", "")).unwrap();
    assert_eq!(plain.tunnel, None);
    let config = terminal(&(terminal_with("", "") + "[tunnel]\n")).unwrap();
    let (name, device) = ("skyhop0".to_owned(), TunnelDevice::Auto);
    let usual = TunnelConfig { name, device, mtu: 1500, pool: None, clamp_mss: true };
    assert_eq!(config.tunnel, Some(usual));
    let all = "[tunnel]\nname = \"sky.1\"\ndevice = \"veth\"\nmtu = 1400\nclamp_mss = false\n";
    let config = terminal(&(terminal_with("", "") + all)).unwrap();
    let (name, device) = ("sky.1".to_owned(), TunnelDevice::Veth);
    let told = TunnelConfig { name, device, mtu: 1400, pool: None, clamp_mss: false };
    assert_eq!(config.tunnel, Some(told));
    let jumbo = terminal_with("rate", "mtu = 9000\nrate") + "[tunnel]\n";
    assert_eq!(terminal(&jumbo).unwrap().tunnel.unwrap().mtu, 9000);
    let networks = "key = \"K\"\nnetworks = [\"10.1.0.0/16\"]\n[tunnel]\n".replace('K', PUBLIC);
    let text = hub_with(&format!("key = \"{PUBLIC}\"\n"), &networks);
    assert!(hub(&text).unwrap().tunnel.is_some());
}

#[test]
fn a_tunnel_of_a_hub_has_addresses_for_terminals_without_networks() {
    let pool = |text: &str| hub(text).map(|hub| hub.tunnel.unwrap().pool.unwrap().to_string());
    let of = |key: &str| pool(&(hub_with("", "") + &format!("[tunnel]\n{key}\n")));
    assert_eq!(of("").unwrap(), "10.213.0.0/16");
    assert_eq!(of("pool = \"192.168.40.0/22\"").unwrap(), "192.168.40.0/22");
    for wrong in [
        "100.64.0.0/16",
        "198.18.0.0/16",
        "203.0.113.0/24",
        "fd00::/64",
        "10.0.0.0/31",
        "0.0.0.0/0",
    ] {
        let error = of(&format!("pool = \"{wrong}\"")).unwrap_err().to_string();
        for part in ["tunnel.pool", wrong, "10.0.0.0/8", "carriers"] {
            assert!(error.contains(part), "{part:?} is not in: {error}");
        }
    }
    // Networks in the pool matter only if somebody needs it.
    let key = format!("key = \"{PUBLIC}\"\n");
    let networks = format!("{key}networks = [\"10.0.0.0/8\"]\n");
    assert_eq!(pool(&(hub_with(&key, &networks) + "[tunnel]\n")).unwrap(), "10.213.0.0/16");
    let other = KeyPair::from_private([9; 32]);
    let second = "[[terminal]]\nname = \"2\"\nkey = \"K\"\n[tunnel]\n";
    let second = second.replace('K', &format_public_key(&other.public()));
    let error = pool(&(hub_with(&key, &networks) + &second)).unwrap_err().to_string();
    assert!(error.contains("tunnel.pool") && error.contains("ship-1"), "{error}");
}

#[test]
fn a_class_has_its_share_and_its_traffic() {
    let class = "[[class]]\nname = \"voice\"\ndscp = [\"EF\", 44]\nports = [5004, \"udp/6000-6100\"]\n\
                 protocols = [\"icmp\", 50]\nweight = 10\nguaranteed = \"1 Mbit/s\"\n\
                 maximum = \"2 Mbit/s\"\nchannel = \"fec\"\n\
                 [[class]]\nname = \"default\"\nweight = 3\nchannel = \"arq\"\n";
    let config = terminal(&(terminal_with("", "") + class)).unwrap();
    let class = |port, dscp| config.classes.of_connection(port, dscp);
    assert_ne!(class(5004, None), class(80, None));
    assert_ne!(class(80, Some(44)), class(80, None));
    assert_eq!(class(80, Some(44)), class(5004, None));
    assert_eq!(class(6000, None), slacp::ClassId::DEFAULT, "those are UDP's");
}

#[test]
fn a_class_has_its_queue_of_packets() {
    let class = "[tunnel]\n[[class]]\nname = \"default\"\nqueue = \"40 kB\"\n\
                 queue_time = \"3 s\"\naqm = \"none\"\n";
    let config = terminal(&(terminal_with("", "") + class)).unwrap();
    let (bytes, time) = (ByteCount::new(40_000), Duration::from_secs(3));
    let discipline = slacp::QueueDiscipline::DropTail;
    let queue = PacketQueue { bytes, time, discipline, gather: Duration::ZERO };
    assert_eq!(config.classes.definitions()[0].queue, queue);
}

#[test]
fn a_class_gathers_and_compresses_its_packets() {
    let class = |keys: &str| {
        let class = format!("[tunnel]\n[[class]]\nname = \"default\"\n{keys}\n");
        let config = terminal(&(terminal_with("", "") + &class)).unwrap();
        let class = &config.classes.definitions()[0];
        (class.queue.gather, class.compress_headers, class.compress_streams)
    };
    assert_eq!(class(""), (Duration::ZERO, true, false));
    assert_eq!(class("gather = \"20 ms\""), (Duration::from_millis(20), true, false));
    assert_eq!(class("compress = false"), (Duration::ZERO, false, false));
    assert_eq!(class("compress = true"), (Duration::ZERO, true, true));
}

#[test]
fn packets_may_wait_for_capacity_on_demand() {
    let queue = |dlep: &str| {
        let text = terminal_with("10 Mbit/s", "modem") + dlep;
        terminal(&text).unwrap().classes.definitions()[0].queue
    };
    assert_eq!(queue("[tunnel]\n"), PacketQueue::default());
    let dlep = "[dlep]\nmodem = \"192.0.2.1\"\non_demand = true\n[tunnel]\n";
    assert_eq!(queue(dlep), PacketQueue::on_demand());
    let class = "[[class]]\nname = \"default\"\nqueue = \"40 kB\"\n";
    let bytes = ByteCount::new(40_000);
    assert_eq!(
        queue(&(dlep.to_owned() + class)),
        PacketQueue { bytes, ..PacketQueue::on_demand() }
    );
}

#[test]
fn the_default_window_fits_into_a_small_memory() {
    let text = terminal_with("[intercept]", "memory = \"1 MB\"\n[intercept]");
    let config = terminal(&text).unwrap();
    assert_eq!(config.link.stream_window, ByteCount::new(1_000_000));
}

#[test]
fn a_bad_terminal_configuration_is_a_one_line_error() {
    let inline = format!("private_key = \"{PRIVATE}\"");
    let cases: &[(&str, &str, &[&str])] = &[
        (
            "rate = \"10 Mbit/s\"",
            "rate = 10",
            &["terminal.toml:4: rate = 10: expected a text in quotes"],
        ),
        ("rate = \"10 Mbit/s\"", "rate = \"10 Mbps\"", &["rate", "10 Mbps", "Mbit/s"]),
        ("rate = \"10 Mbit/s\"", "rate = \"0 bit/s\"", &["rate", "0 bit/s", "like"]),
        ("rate = \"10 Mbit/s\"", "", &["rate is missing", "10 Mbit/s", "auto", "modem"]),
        ("10 Mbit/s", "Auto", &["rate", "Auto", "or \"auto\""]),
        (
            "10 Mbit/s",
            "modem\"\ninitial_rate = \"1 Mbit/s\"\nprobe = false\n# \"",
            &["probe = false", "or \"modem\" without an initial_rate"],
        ),
        (
            "10 Mbit/s",
            "modem\"\ninitial_rate = \"auto",
            &["initial_rate: \"auto\" is", "no such key, which measures the rate"],
        ),
        ("10 Mbit/s", "10 Mbit/s\"\ninitial_rate = \"1 Mbit/s", &["initial_rate", "\"modem\""]),
        ("10 Mbit/s", "10 Mbit/s\"\nmaximum_rate = \"1 Mbit/s", &["maximum_rate", "\"auto\""]),
        ("10 Mbit/s", "auto\"\nmaximum_rate = \"0 bit/s", &["maximum_rate", "a rate above 0"]),
        (
            "10 Mbit/s",
            "modem\"\nmaximum_rate = \"1 Mbit/s\"\ninitial_rate = \"2 Mbit/s",
            &["maximum_rate", "at least the initial_rate, 2 Mbit/s"],
        ),
        (
            "rate = \"10 Mbit/s\"",
            "rat = \"1\"",
            &["terminal.toml:4: unknown key `rat`, did you mean `rate`?"],
        ),
        ("rate = ", "rate : ", &["terminal.toml:4: \"rate : "]),
        ("192.0.2.1:5900", "192.0.2.1", &["hub", "192.0.2.1", "port"]),
        ("192.0.2.1:5900", "2001:db8::1", &["hub", "2001:db8::1", "port"]),
        ("192.0.2.1:5900", "192.0.2.1:0", &["hub", "port"]),
        (PUBLIC, "AAAA", &["hub_key", "AAAA", "base64"]),
        (PUBLIC, &own_key(), &["hub_key", "the terminal's own public key"]),
        (&inline, "", &["private_key_file", "skyhop keygen"]),
        (&inline, &format!("{inline}\nprivate_key_file = \"x\""), &["only one of `private_key`"]),
        ("[intercept]", "mtu = 70000\n[intercept]", &["mtu = 70000", "576 to 9216"]),
        ("[intercept]", "memory = \"1 kB\"\n[intercept]", &["memory", "at least 64 kB"]),
        (
            "[intercept]",
            "memory = \"1 MB\"\nstream_window = \"2 MB\"\n[intercept]",
            &["stream_window", "2 MB", "at most the memory, 1 MB"],
        ),
        ("[intercept]", "listen = \"lan0\"\n[intercept]", &["listen", "lan0", "[::]:5900"]),
        ("[intercept]", "connect_timeout = \"0 s\"\n[intercept]", &["connect_timeout", "10 min"]),
        ("[intercept]", "log = \"loud\"\n[intercept]", &["log", "loud", "off, error, warn"]),
        ("[intercept]", "keepalive = \"0.5 s\"\n[intercept]", &["keepalive", "1 s to 2 h"]),
        ("[intercept]\ninterfaces = [\"lan0\"]\n", "", &["intercept.interfaces is missing"]),
        ("[\"lan0\"]", "[]", &["intercept.interfaces = []", "lan0"]),
        ("lan0", "a-name-far-too-long", &["a-name-far-too-long", "1 to 15"]),
        ("[\"lan0\"]", "[\"lan0\"]\nanswer = \"late\"", &["intercept.answer", "late", "deferred"]),
        ("[\"lan0\"]", "[\"lan0\"]\nbypass = [\"10.1.0.0/8\"]", &["bypass", "10.0.0.0/8"]),
        (INTERCEPT, "[proxy]\n", &["proxy.listen is missing", "127.0.0.1:1080"]),
        (
            INTERCEPT,
            "[proxy]\nlisten = \"[::1]:1080\"\n[dns]\n",
            &["dns.intercept = false", "[intercept]", "`listen`"],
        ),
        (
            INTERCEPT,
            "[proxy]\nlisten = \"[::1]:1080\"\n[dns]\nlisten = [\"[::1]:53\"]\nanswer = \"instant\"",
            &["dns.answer", "instant", "[intercept]"],
        ),
        (
            "[intercept]",
            "[dns]\nlisten = [\"0.0.0.0:53\"]\n[intercept]",
            &["dns.clients is missing", "10.1.0.0/16"],
        ),
        ("[intercept]", "[http]\nports = [443]\n[intercept]", &["http.ports.0", "443"]),
        ("[intercept]", "[http]\nports = []\n[intercept]", &["http.ports", "16 ports"]),
        ("[intercept]", "[http]\ndisk = \"1 GB\"\n[intercept]", &["http.directory is missing"]),
        ("[intercept]", "[http]\nstale = \"800 h\"\n[intercept]", &["http.stale", "720 h"]),
        ("[intercept]", "[http]\nmemory = \"1 kB\"\n[intercept]", &["http.memory", "64 kB"]),
        (
            "[intercept]",
            "[http]\n[[http.site]]\nhosts = [\"192.0.2.1\"]\n[intercept]",
            &["http.site.0.hosts.0", "192.0.2.1", "mirror.example"],
        ),
        (
            "[intercept]",
            "[http]\n[[http.site]]\nhosts = [\"a.example\"]\n[intercept]",
            &["http.site.0.certificate is missing"],
        ),
        (
            "[intercept]",
            "[http]\nports = [80, 8443]\ntls_ports = [8443]\n[[http.site]]\nhosts = [\"a.example\"]\n\
             certificate = \"a.pem\"\nkey = \"a.key\"\n[intercept]",
            &["http.ports.1", "`tls_ports`"],
        ),
        (
            "[intercept]",
            "[http]\n[intercept]\nanswer = \"deferred\"",
            &["intercept.answer", "\"early\"", "before there is a connection"],
        ),
        ("[intercept]", "[dns]\nservers = [\"dns\"]\n[intercept]", &["dns.servers", "192.0.2.53"]),
        ("[intercept]", "[dns]\nreal = [\"a b\"]\n[intercept]", &["dns.real", "corp.example"]),
        (
            "[intercept]",
            "[dns]\ntls = [\"127.0.0.1:853\"]\n[intercept]",
            &["dns.certificate", "a PEM file"],
        ),
        (
            "[intercept]",
            "[dns]\nkey = \"dns.key\"\n[intercept]",
            &["dns.key = \"dns.key\"", "nothing without `tls` or `https`"],
        ),
        (
            "[intercept]",
            "[dns]\nhttps = [\"0.0.0.0:443\"]\ncertificate = \"a\"\nkey = \"b\"\n[intercept]",
            &["dns.clients", "10.1.0.0/16"],
        ),
        ("[intercept]", "[dns]\ncache = \"1 kB\"\n[intercept]", &["dns.cache", "64 kB"]),
        ("[intercept]", "[dns]\nprefetch = -1\n[intercept]", &["dns.prefetch", "0 to 1000"]),
        ("[intercept]", "[dns]\nstale = \"200 h\"\n[intercept]", &["dns.stale", "0 s to 168 h"]),
        ("[intercept]", "[dns]\npool_time = \"1 s\"\n[intercept]", &["dns.pool_time", "24 h"]),
        ("[intercept]", "[dns]\npool = [\"::/64\"]\n[intercept]", &["dns.pool", "IPv4"]),
        (
            "[intercept]",
            "[dns]\npool = [\"198.18.0.0/30\"]\n[intercept]",
            &["dns.pool.0", "198.18.0.0/30", "/24"],
        ),
        (
            "[intercept]",
            "[dns]\npool = [\"198.18.0.0/16\", \"198.19.0.0/16\"]\n[intercept]",
            &["dns.pool.1", "one prefix of each"],
        ),
        (INTERCEPT, "[proxy]\nlisten = \"1080\"", &["proxy.listen", "\"1080\"", "127.0.0.1:1080"]),
        (
            INTERCEPT,
            "[proxy]\nlisten = \"[::]:1080\"",
            &["proxy.clients is missing", "10.1.0.0/16"],
        ),
        (
            INTERCEPT,
            "[proxy]\nlisten = \"[::1]:1080\"\nanswer = \"late\"",
            &["proxy.answer", "late", "deferred"],
        ),
        (
            INTERCEPT,
            "[proxy]\nlisten = \"[::1]:1080\"\nnames = \"there\"",
            &["proxy.names", "there", "hub", "here"],
        ),
    ];
    for (from, to, expected) in cases {
        let error = terminal(&terminal_with(from, to)).unwrap_err().to_string();
        assert!(!error.contains('\n'), "more than one line: {error}");
        assert!(error.contains("terminal.toml"), "no file name: {error}");
        for part in *expected {
            assert!(error.contains(part), "{part:?} is not in: {error}");
        }
    }
}

#[test]
fn no_error_shows_a_private_key() {
    let inline = format!("private_key = \"{PRIVATE}\"");
    for wrong in [
        inline.trim_end_matches('"').to_owned(),
        inline.replace('=', "= ="),
        format!("{inline}\n{inline}"),
    ] {
        let text = terminal_with(&inline, &wrong);
        let error = terminal(&text).unwrap_err().to_string();
        assert!(!error.contains(&PRIVATE[..8]), "{error}");
    }
}

#[test]
fn a_bad_tunnel_or_class_is_a_one_line_error() {
    let class = |key: &str| format!("[[class]]\nname = \"a\"\nports = [1]\n{key}\n");
    let twice = class("") + &class("");
    let many: String = (0..40).map(|n| class("").replace("\"a\"", &format!("\"{n}\""))).collect();
    let cases: &[(&str, &[&str])] = &[
        ("[tunnel]\nname = \"a/b\"", &["tunnel.name", "a/b", "1 to 15 letters"]),
        ("[tunnel]\nname = \"a-name-far-too-long\"", &["tunnel.name", "1 to 15 letters"]),
        ("[tunnel]\ndevice = \"tap\"", &["tunnel.device", "tap", "veth"]),
        ("[tunnel]\npool = \"10.9.0.0/16\"", &["tunnel.pool", "10.9.0.0/16", "from the hub"]),
        ("[tunnel]\nmtu = 1000", &["tunnel.mtu = 1000", "1280 to 9216"]),
        ("[tunnel]\nrate = 1", &["unknown key `rate` in tunnel", "move it up"]),
        ("[[class]]\nports = [1]", &["class.0.name is missing"]),
        ("[[class]]\nname = \"a\"", &["class.0.name", "no traffic", "ports"]),
        ("[[class]]\nname = \"default\"\nports = [1]", &["class.0.name", "default", "neither"]),
        (&twice, &["class.1.name", "\"a\"", "no earlier"]),
        (&many, &["class.31.name", "\"31\"", "at most 31"]),
        (&class("dscp = [\"EG\"]"), &["class.0.dscp.0 = \"EG\"", "AF41"]),
        (&class("dscp = [64]"), &["class.0.dscp.0 = 64", "0 to 63"]),
        (&class("protocols = [\"quic\"]"), &["class.0.protocols.0 = \"quic\"", "esp"]),
        ("[[class]]\nname = \"a\"\nports = [\"2-1\"]", &["class.0.ports.0 = \"2-1\"", "5060-5061"]),
        (&class("weight = 0"), &["class.0.weight = 0", "1 to 1000"]),
        (&class("mark = 64"), &["class.0.mark = 64", "0 to 63"]),
        (&class("weight = 70000"), &["class.0.weight = 70000", "1 to 1000"]),
        (&class("guaranteed = \"0 bit/s\""), &["class.0.guaranteed", "0 bit/s", "10 Mbit/s"]),
        (&class("maximum = \"fast\""), &["class.0.maximum", "fast", "Mbit/s"]),
        (&class("channel = \"udp\""), &["class.0.channel", "udp", "fec-arq"]),
        (&class("queue = \"1 kB\""), &["class.0.queue", "1 kB", "2 kB to 100 MB"]),
        (&class("queue_time = \"2 min\""), &["class.0.queue_time", "5 ms to 1 min"]),
        (&class("aqm = \"red\""), &["class.0.aqm", "red", "codel"]),
        (&class("gather = \"1 s\""), &["class.0.gather", "1 s", "0 s to 200 ms"]),
        (&class("compress = 1"), &["class.0.compress"]),
    ];
    for (section, expected) in cases {
        let text = terminal_with("", "") + section;
        let error = terminal(&text).unwrap_err().to_string();
        assert!(!error.contains('\n'), "more than one line: {error}");
        for part in *expected {
            assert!(error.contains(part), "{part:?} is not in: {error}");
        }
    }
    let transparent = hub_with("rate", "transparent = true\nrate") + "[tunnel]\n";
    let error = hub(&transparent).unwrap_err().to_string();
    for part in ["terminal.0.networks", "ship-1", "`transparent`"] {
        assert!(error.contains(part), "{part:?} is not in: {error}");
    }
}

#[test]
fn policies_come_in_order_and_the_bypass_before_them() {
    let sections = "bypass = [\"10.9.0.0/16\"]\n[tunnel]\n\
                    [[policy]]\nto = [\"192.0.2.0/24\", \"2001:db8::/32\"]\n\
                    from = [\"10.1.0.7\"]\nports = [22, \"tcp/8000-8010\"]\ndscp = [\"EF\"]\n\
                    action = \"tunnel\"\n\
                    [[policy]]\nname = \"rest\"\naction = \"bypass\"\n";
    let config = terminal(&(terminal_with("", "") + sections)).unwrap();
    let [bypass, first, rest] = &config.policies[..] else { panic!("{:?}", config.policies) };
    assert_eq!((bypass.name.as_str(), bypass.action), ("intercept.bypass", PolicyAction::Bypass));
    assert_eq!(bypass.to, ["10.9.0.0/16".parse().unwrap()]);
    assert_eq!((first.name.as_str(), first.action), ("1", PolicyAction::Tunnel));
    assert_eq!((first.to.len(), first.from.len(), first.ports.len()), (2, 1, 2));
    assert_eq!(first.dscp, [46]);
    assert!(rest.name == "rest" && rest.fits_all());

    let networks = format!("key = \"{PUBLIC}\"\nnetworks = [\"10.1.0.0/16\"]\n");
    let tunnel = "[tunnel]\n[[policy]]\nports = [22]\naction = \"tunnel\"\n";
    let text = hub_with(&format!("key = \"{PUBLIC}\"\n"), &(networks + tunnel));
    assert_eq!(hub(&text).unwrap().policies.len(), 1);
    let text = INTERCEPT.to_owned() + "[[policy]]\nports = [22]\naction = \"bypass\"\n";
    assert_eq!(solo(&text).unwrap().policies.len(), 1);
}

#[test]
fn the_treatment_of_quic_is_the_last_policy() {
    let with = |quic: &str, sections: &str| {
        let text = format!("quic = {quic:?}\n{}{sections}", terminal_with("", ""));
        terminal(&text).map_err(|error| error.to_string())
    };
    let exempt = "[[policy]]\nto = [\"192.0.2.0/24\"]\naction = \"bypass\"\n";
    for (quic, action) in [("tcp", PolicyAction::Refuse), ("pass", PolicyAction::Bypass)] {
        let config = with(quic, exempt).unwrap();
        let [first, last] = &config.policies[..] else { panic!("{:?}", config.policies) };
        assert_eq!((&*first.name, &*last.name, last.action), ("1", "quic", action));
        assert!(last.only_quic && !first.only_quic);
    }
    let carried = with("carry", "[tunnel]\n").unwrap();
    assert_eq!(carried.policies, [], "as without the key");
    for (quic, sections, expected) in [
        ("carry", "", "section [tunnel]"),
        ("udp", "", "carry"),
        ("tcp", "[[policy]]\nname = \"all\"\naction = \"bypass\"\n", "policy \"all\""),
        ("pass", "[[policy]]\nname = \"quic\"\nports = [1]\naction = \"bypass\"\n", "\"quic\""),
    ] {
        let error = with(quic, sections).unwrap_err();
        assert!(error.contains("quic") && error.contains(expected), "{error}");
    }
}

#[test]
fn where_quic_is_refused_names_have_no_http_3() {
    for (quic, hides) in [("quic = \"tcp\"\n", true), ("quic = \"pass\"\n", false), ("", false)] {
        let config = terminal(&format!("{quic}{}[dns]\n", terminal_with("", ""))).unwrap();
        assert_eq!(config.dns.unwrap().names.hides_http_3, hides, "{quic}");
    }
}

#[test]
fn what_is_not_intercepted_cannot_be_refused() {
    let proxy = terminal_with(INTERCEPT, "[proxy]\nlisten = \"127.0.0.1:1080\"\n");
    let error = terminal(&(String::from("quic = \"tcp\"\n") + &proxy)).unwrap_err().to_string();
    assert!(error.contains("quic = \"tcp\"") && error.contains("[intercept]"), "{error}");
    let networks = format!("key = \"{PUBLIC}\"\nnetworks = [\"10.1.0.0/16\"]\n");
    let refuse = "[tunnel]\n[[policy]]\nports = [22]\naction = \"refuse\"\n";
    let text = hub_with(&format!("key = \"{PUBLIC}\"\n"), &(networks + refuse));
    let error = hub(&text).unwrap_err().to_string();
    assert!(error.contains("action = \"refuse\"") && error.contains("[intercept]"), "{error}");
    let text = INTERCEPT.to_owned() + "[[policy]]\nports = [22]\naction = \"refuse\"\n";
    assert_eq!(solo(&text).unwrap().policies[0].action, PolicyAction::Refuse);
}

#[test]
fn a_bad_policy_is_a_one_line_error() {
    let policy = |keys: &str| format!("[[policy]]\naction = \"bypass\"\n{keys}\n");
    let all_first = policy("") + &policy("ports = [22]");
    let twice = policy("name = \"2\"\nports = [1]") + &policy("ports = [2]");
    let hosts: Vec<String> = (0..40).map(|host| format!("\"10.0.0.{host}\"")).collect();
    let many = format!("to = [{0}]\nfrom = [{0}]", hosts.join(", "));
    let cases: &[(&str, &[&str])] = &[
        ("[[policy]]\nports = [1]", &["policy.0.action is missing", "\"tunnel\""]),
        ("[[policy]]\naction = \"drop\"", &["policy.0.action = \"drop\"", "\"bypass\""]),
        ("[[policy]]\naction = \"tunnel\"", &["policy.0.action = \"tunnel\"", "section [tunnel]"]),
        (&policy("to = [\"10.1.0.0/8\"]"), &["policy.0.to", "10.1.0.0/8", "10.0.0.0/8"]),
        (&policy("from = [\"lan\"]"), &["policy.0.from.0 = \"lan\"", "prefix"]),
        (&policy("ports = [\"2-1\"]"), &["policy.0.ports.0 = \"2-1\"", "5060-5061"]),
        (&policy("dscp = [64]"), &["policy.0.dscp.0 = 64", "AF41"]),
        (&policy("protocols = [\"udp\"]"), &["protocols", "unknown key"]),
        (
            "[[policy]]\nports = [\"udp/443\"]\naction = \"split\"",
            &["policy.0.action = \"split\"", "only TCP"],
        ),
        ("[[policy]]\naction = \"reject\"", &["policy.0.action = \"reject\"", "\"refuse\""]),
        (&twice, &["policy.1.name = \"2\"", "no earlier"]),
        (&all_first, &["policy.1.name = \"2\"", "\"1\", which matches everything"]),
        (&policy(&many), &["policy = 1600 rules", "at most 1000"]),
    ];
    for (section, expected) in cases {
        let error = terminal(&(terminal_with("", "") + section)).unwrap_err().to_string();
        assert!(!error.contains('\n'), "more than one line: {error}");
        for part in *expected {
            assert!(error.contains(part), "{part:?} is not in: {error}");
        }
    }
    let proxy = terminal_with(INTERCEPT, "[proxy]\nlisten = \"127.0.0.1:1080\"\n") + &policy("");
    let error = terminal(&proxy).unwrap_err().to_string();
    assert!(error.contains("intercept.interfaces is missing"), "{error}");
    let text = INTERCEPT.to_owned() + "[[policy]]\naction = \"tunnel\"\n";
    let error = solo(&text).unwrap_err().to_string();
    assert!(error.contains("policy.0.action = \"tunnel\""), "{error}");
}

#[test]
fn a_bad_hub_configuration_is_a_one_line_error() {
    let section = format!("[[terminal]]\nname = \"ship-1\"\nkey = \"{PUBLIC}\"\n");
    let same_name = format!("{section}{section}");
    let same_key = format!("{section}[[terminal]]\nname = \"ship-2\"\nkey = \"{PUBLIC}\"\n");
    let network = |network: &str| format!("{section}networks = [\"{network}\"]\n");
    let (wide, narrow) = (network("10.0.0.0/8"), network("10.1.0.0/16"));
    let overlap = format!("{wide}{}", narrow.replace("ship-1", "ship-2").replace(PUBLIC, PRIVATE));
    let etcd = |keys: &str| format!("[etcd]\nmembers = [\"127.0.0.1:2379\"]\n{keys}\n");
    let cases: &[(&str, &str, &[&str])] = &[
        (&section, &network("10.1.0.0/8"), &["terminal.0.networks", "10.1.0.0/8", "10.0.0.0/8"]),
        (&section, &network("lan"), &["terminal.0.networks", "lan", "prefix"]),
        (
            &section,
            &overlap,
            &["terminal.1.networks.0", "10.1.0.0/16", "ship-1 already has 10.0.0.0/8"],
        ),
        (&section, "", &["[[terminal]]"]),
        (&section, &same_name, &["hub.toml:7: terminal.1.name", "ship-1", "no earlier"]),
        (&section, &same_key, &["hub.toml:8: terminal.1.key", "ship-1 has the same key"]),
        (PUBLIC, &own_key(), &["terminal.0.key", "the hub itself has the same key"]),
        ("name = \"ship-1\"", "", &["terminal.0.name is missing"]),
        ("rate", "transparent = true\nrate", &["terminal.0.networks is missing", "transparent"]),
        (&section, &format!("[intercept]\ninterfaces = [\"lan0\"]\n{section}"), &["networks"]),
        (
            "name = \"ship-1\"",
            "nam = 1",
            &["unknown key `nam` in terminal.0, did you mean `name`?"],
        ),
        ("rate", "hub = \"x:1\"\nrate", &["hub", "unknown key"]),
        ("rate", "shared_address = \"3 of 2\"\nrate", &["shared_address", "3 of 2", "1 of 2"]),
        ("rate", "listen_tcp_certificate = \"a\"\nrate", &["listen_tcp_key is missing"]),
        ("rate", "listen_tcp_key = \"a\"\nrate", &["listen_tcp_certificate is missing"]),
        (
            "rate",
            "listen_tcp_certificate = \"a\"\nlisten_tcp_key = \"b\"\nrate",
            &["listen_tcp is missing"],
        ),
        (&section, "[etcd]\nmembers = []\n", &["etcd.members = 0", "127.0.0.1:2379"]),
        (&section, &etcd("authorities = \"ca\""), &["etcd.tls is missing"]),
        (&section, &etcd("tls = true\ncertificate = \"c\""), &["etcd.key is missing"]),
        (&section, &etcd("tls = true\nkey = \"k\""), &["etcd.certificate is missing"]),
        (&section, &etcd("user = \"hub\""), &["etcd.password_file is missing"]),
        (&section, &etcd("password_file = \"p\""), &["etcd.user is missing"]),
    ];
    for (from, to, expected) in cases {
        let error = hub(&hub_with(from, to)).unwrap_err().to_string();
        assert!(!error.contains('\n'), "more than one line: {error}");
        for part in *expected {
            assert!(error.contains(part), "{part:?} is not in: {error}");
        }
    }
}

#[test]
fn an_etcd_is_asked_as_its_section_says() {
    let text = hub_with(
        "rate",
        "etcd = { members = [\"[::1]:2379\", \"etcd-2:2379\"], tls = true, authorities = \"ca.pem\", \
         certificate = \"hub.pem\", key = \"/keys/hub.pem\", user = \"hub\", password_file = \"secret\" }\nrate",
    );
    let etcd = hub(&text).unwrap().etcd.unwrap();
    assert_eq!(etcd.members.len(), 2);
    assert_eq!(etcd.prefix, EtcdConfig::PREFIX);
    let (certificate, key) = ("/site/hub.pem".into(), "/keys/hub.pem".into());
    let authorities = Some("/site/ca.pem".into());
    let identity = Some(TlsFiles { certificate, key });
    assert_eq!(etcd.tls, Some(EtcdTls { authorities, identity }));
    let (user, password_file) = ("hub".to_owned(), "/site/secret".into());
    assert_eq!(etcd.login, Some(EtcdLogin { user, password_file }));
    let plain = hub_with("rate", "etcd = { members = [\"127.0.0.1:2379\"] }\nrate");
    let etcd = hub(&plain).unwrap().etcd.unwrap();
    assert_eq!((etcd.tls, etcd.login), (None, None));
}

#[test]
fn a_solo_gateway_needs_one_way_in_and_takes_every_key_of_its_sides() {
    let config = solo(INTERCEPT).unwrap();
    assert_eq!(config.intercept.unwrap().interfaces, ["lan0"]);
    assert_eq!((config.lan, config.wan), (SideConfig::default(), SideConfig::default()));
    assert!(!config.transparent && !config.allow_loopback && config.proxy.is_none());

    let text = "transparent = true\nallow_loopback = true\nconnect_timeout = \"5 s\"\n\
                [proxy]\nlisten = \"[::1]:1080\"\n\
                [lan]\nreceive_buffer = \"64 kB\"\n\
                [wan]\ncongestion_control = \"bbr\"\nsend_buffer = \"8 MB\"\n\
                pacing_rate = \"10 Mbit/s\"\nquick_ack = true\n";
    let config = solo(text).unwrap();
    assert!(config.intercept.is_none() && config.transparent && config.allow_loopback);
    assert_eq!(config.connect_timeout, Duration::from_secs(5));
    assert_eq!(config.lan.receive_buffer, Some(ByteCount::new(64_000)));
    assert_eq!(config.wan.congestion_control.as_deref(), Some("bbr"));
    assert_eq!(config.wan.send_buffer, Some(ByteCount::new(8_000_000)));
    assert_eq!(config.wan.pacing_rate, Some(BitRate::from_mbit(10)));
    assert!(config.wan.quick_ack && !config.lan.quick_ack);
}

#[test]
fn a_solo_gateway_may_use_our_own_tcp_towards_servers() {
    let minimal = solo(&format!("[wan]\nstack = \"skyhop\"\n{INTERCEPT}")).unwrap();
    let stack = minimal.stack.unwrap();
    assert_eq!((stack.device.name.as_str(), stack.device.mtu), ("skyhop-wan", 1500));
    assert!(stack.interfaces.is_empty() && stack.tcp.snack && stack.tcp.sack);
    assert_eq!(stack.tcp.controller.to_string(), "cubic");
    assert_eq!(minimal.wan, SideConfig::default());
    // It needs no other way in than the WAN side.
    let whole = solo(
        "[wan]\nstack = \"skyhop\"\ninterfaces = [\"sat0\"]\nname = \"w\"\ndevice = \"tun\"\n\
         mtu = 1400\n[wan.tcp]\nprofile = \"scps\"\ncc = \"hybla:rtt0=50ms\"\nmax-rate = \"10 Mbit/s\"\n\
         pacing = true\ninitial-window = 32\n",
    );
    let stack = whole.unwrap().stack.unwrap();
    assert_eq!((stack.interfaces, stack.device.device), (vec!["sat0".into()], TunnelDevice::Tun));
    let tcp = &stack.tcp;
    assert!(tcp.snack && tcp.assume_corruption && tcp.pacing && !tcp.sack && !tcp.nagle);
    assert_eq!(tcp.controller.to_string(), "hybla:rtt0=50ms");
    assert_eq!((tcp.max_rate, tcp.initial_window), (Some(BitRate::from_mbit(10)), 32));
    assert!(solo(&format!("[wan]\nstack = \"kernel\"\n{INTERCEPT}")).unwrap().stack.is_none());
    let plain =
        format!("[wan]\nstack = \"skyhop\"\ntcp.snack = false\ntcp.nagle = true\n{INTERCEPT}");
    let tcp = solo(&plain).unwrap().stack.unwrap().tcp;
    assert!(!tcp.snack && tcp.nagle);
}

#[test]
fn a_bad_solo_configuration_is_a_one_line_error() {
    for (text, expected) in [
        ("", &["intercept.interfaces is missing"][..]),
        ("[wan]\npace = 1\n", &["solo.toml:2: unknown key `pace` in wan"]),
        ("[wan]\npacing_rate = \"0 bit/s\"\n", &["wan.pacing_rate", "10 Mbit/s"]),
        ("[lan]\nsend_buffer = \"1 kB\"\n", &["lan.send_buffer", "4.096 kB to 1 GB"]),
        ("[lan]\ncongestion_control = \"\"\n", &["lan.congestion_control", "cubic"]),
        ("[lan]\ncongestion_control = \"a/b\"\n", &["lan.congestion_control", "a/b"]),
        ("rate = \"1 Mbit/s\"\n", &["rate", "unknown key"]),
        ("[wan]\nstack = \"own\"\n", &["solo.toml:2", "kernel", "skyhop"]),
        ("[wan]\nmtu = 1400\n", &["wan.mtu", "no such key without stack = \"skyhop\""]),
        ("[wan]\ntcp.cc = \"bbr\"\n", &["wan.tcp", "no such key without stack"]),
        (
            "[wan]\nstack = \"skyhop\"\nsend_buffer = \"1 MB\"\n",
            &["solo.toml:3: wan.send_buffer", "[wan.tcp]"],
        ),
        (
            "[wan]\nstack = \"skyhop\"\ntcp.cc = \"hyblaa\"\n",
            &["solo.toml:3: wan.tcp.cc", "hyblaa", "hybla"],
        ),
        ("[wan]\nstack = \"skyhop\"\ntcp.snak = true\n", &["unknown key", "snak"]),
        ("[wan]\nstack = \"skyhop\"\ntcp.mss = 1\n", &["wan.tcp.mss = 1", "64 to 9000"]),
        (
            "[wan]\nstack = \"skyhop\"\ntcp.syn-data = \"t-tcp\"\n",
            &["wan.tcp.syn-data", "expected off"],
        ),
        ("[wan]\nstack = \"skyhop\"\nname = \"a b\"\n", &["wan.name", "device name"]),
    ] {
        let whole = if text.is_empty() { String::new() } else { format!("{text}{INTERCEPT}") };
        let error = solo(&whole).unwrap_err().to_string();
        assert!(!error.contains('\n'), "more than one line: {error}");
        for part in expected {
            assert!(error.contains(part), "{part:?} is not in: {error}");
        }
    }
}

/// The `reach` and `deny` lists of a terminal, given the lines before the first section of a hub's
/// file and the lines of the terminal's own section.
fn lists(top: &str, of_terminal: &str) -> Result<[String; 2], String> {
    let text = hub_with("", "").replace("[[terminal]]", &format!("{top}[[terminal]]"));
    let config = hub(&format!("{text}{of_terminal}"));
    let egress = config.map_err(|error| error.to_string())?.terminals[0].egress.clone();
    let shown = |targets: Vec<EgressTarget>| {
        targets.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
    };
    Ok([shown(egress.reach), shown(egress.deny)])
}

#[test]
fn a_terminal_reaches_what_its_section_says_or_what_all_do_but_for_what_either_denies() {
    const ALL: &str = "[egress]\nreach = [\"10.0.0.0/8\"]\ndeny = [\"10.9.0.0/16\"]\n";
    const OWN: &str = "reach = [\"192.0.2.0/24:443\"]\ndeny = [\"192.0.2.1:udp/53\"]\n";
    for (top, of_terminal, expected) in [
        ("", "", ["0.0.0.0/0 ::/0", ""]),
        (ALL, "", ["10.0.0.0/8", "10.9.0.0/16"]),
        ("", OWN, ["192.0.2.0/24:443", "192.0.2.1/32:udp/53"]),
        (ALL, OWN, ["192.0.2.0/24:443", "10.9.0.0/16 192.0.2.1/32:udp/53"]),
        (ALL, "reach = []\n", ["", "10.9.0.0/16"]),
    ] {
        assert_eq!(lists(top, of_terminal).unwrap(), expected, "{top}{of_terminal}");
    }
}

#[test]
fn a_terminal_accepts_what_its_section_lists_and_without_one_nothing() {
    let accept = |section: &str| {
        let text = terminal_with("[intercept]", &format!("{section}[intercept]"));
        terminal(&text).map(|config| config.accept)
    };
    assert_eq!(accept("").unwrap(), EgressRules::nowhere());
    let listed = accept("[accept]\nto = [\"10.1.0.0/16:22\"]\ndeny = [\"10.1.0.1\"]\n").unwrap();
    assert_eq!(listed.reach, ["10.1.0.0/16:22".parse().unwrap()]);
    assert_eq!(listed.deny, ["10.1.0.1".parse().unwrap()]);
    let error = accept("[accept]\ndeny = []\n").unwrap_err().to_string();
    assert!(error.contains("accept.to is missing"), "{error}");
}

#[test]
fn a_bad_list_of_destinations_is_an_error_with_its_key_and_what_is_accepted() {
    for (top, of_terminal, parts) in [
        (
            "[egress]\nreach = [\"lan\"]\n",
            "",
            ["hub.toml:4: egress.reach.0 = \"lan\"", "\"0.0.0.0/0:443\""],
        ),
        ("[egress]\ndeny = [\"::/0:443\"]\n", "", ["egress.deny", "[2001:db8::/32]:8000-8080"]),
        ("", "reach = [\"10.1.0.0/8\"]\n", ["terminal.0.reach", "expected 10.0.0.0/8"]),
        ("allow_loopback = true\n", "", ["allow_loopback = true", "\"127.0.0.0/8\", \"::1\""]),
    ] {
        let error = lists(top, of_terminal).unwrap_err();
        assert!(!error.contains('\n') && error.contains("hub.toml"), "{error}");
        parts.iter().for_each(|part| assert!(error.contains(part), "{part} is not in {error}"));
    }
}

#[test]
fn a_terminal_takes_what_its_section_says_or_what_all_do() {
    let quota = |top: &str, of_terminal: &str| {
        let text = hub_with("", "").replace("[[terminal]]", &format!("{top}[[terminal]]"));
        let config = hub(&format!("{text}{of_terminal}"));
        config.map(|config| config.terminals[0].quota).map_err(|error| error.to_string())
    };
    const ALL: &str = "[limits]\nmax_connections = 500\nlookups = 4\n";
    assert_eq!(quota("", "").unwrap(), TerminalQuota::default());
    let all = TerminalQuota { connections: Some(500), lookups: 4, ..TerminalQuota::default() };
    assert_eq!(quota(ALL, "").unwrap(), all);
    let memory = Some(ByteCount::new(8_000_000));
    let rate = |kbit: u64| Some(BitRate::from_bits_per_second(kbit * 1000));
    let share = SessionShare { weight: 3, guaranteed: rate(500), maximum: rate(2000) };
    let one = TerminalQuota { share, connections: Some(9), per_second: 50, memory, ..all };
    let own = "weight = 3\nguaranteed = \"500 kbit/s\"\nmaximum = \"2 Mbit/s\"\nmax_connections = 9\nconnections_per_second = 50\nmemory = \"8 MB\"\n";
    assert_eq!(quota(ALL, own).unwrap(), one);
    for (top, of_terminal, parts) in [
        ("[limits]\nlookups = 0\n", "", ["limits.lookups = 0", "expected 1 to 128"]),
        ("", "memory = \"1 kB\"\n", ["terminal.0.memory = \"1 kB\"", "at least 64 kB"]),
        ("", "weight = 0\n", ["terminal.0.weight = 0", "expected 1 to 1000"]),
        ("", "maximum = \"0 bit/s\"\n", ["terminal.0.maximum = \"0 bit/s\"", "above 0"]),
        (
            "",
            "guaranteed = \"60 Mbit/s\"\n",
            ["terminal.0.guaranteed", "at most 50 Mbit/s for ship-1"],
        ),
        (
            "",
            "guaranteed = \"2 Mbit/s\"\nmaximum = \"1 Mbit/s\"\n",
            ["terminal.0.guaranteed = \"2 Mbit/s\"", "at most its maximum, 1 Mbit/s"],
        ),
        ("", "max_connections = -1\n", ["terminal.0.max_connections = -1", "1 to 65536"]),
    ] {
        let error = quota(top, of_terminal).unwrap_err();
        parts.iter().for_each(|part| assert!(error.contains(part), "{part} is not in {error}"));
    }
}

#[test]
fn guarantees_fit_into_a_rate_that_is_known() {
    let class = |name: &str, rate: &str| {
        format!("[[class]]\nname = \"{name}\"\ndscp = [\"{name}\"]\nguaranteed = \"{rate}\"\n")
    };
    let classes = format!("{}{}", class("EF", "30 Mbit/s"), class("AF41", "30 Mbit/s"));
    let with = |rate: &str, end: &str| {
        let text = hub_with("rate = \"50 Mbit/s\"", rate);
        hub(&format!("{text}{end}")).map(|_| ()).map_err(|error| error.to_string())
    };
    let error = with("rate = \"50 Mbit/s\"", &classes).unwrap_err();
    assert!(error.contains("class.1.guaranteed = \"30 Mbit/s\""), "{error}");
    assert!(error.contains("at most 20 Mbit/s for AF41"), "{error}");
    assert_eq!(with("rate = \"60 Mbit/s\"", &classes), Ok(()));
    assert_eq!(with("rate = \"auto\"", &classes), Ok(()));
    let terminal = "guaranteed = \"1 Mbit/s\"\n";
    assert_eq!(with("rate = \"modem\"", terminal), Ok(()));
    let error = with("rate = \"auto\"", terminal).unwrap_err();
    assert!(error.contains("terminal.0.guaranteed") && error.contains("a `carrier`"), "{error}");
    let on_carrier = format!("{terminal}carrier = \"ku-1\"\n");
    assert_eq!(with("rate = \"auto\"", &on_carrier), Ok(()));
}

#[test]
fn a_terminal_may_have_its_own_rates_of_classes() {
    let class = "[[class]]\nname = \"voice\"\ndscp = [\"EF\"]\nmaximum = \"1 Mbit/s\"\n";
    let with = |of_terminal: &str| {
        let text = format!("{}{of_terminal}\n{class}", hub_with("", ""));
        let config = hub(&text).map_err(|error| error.to_string());
        config.map(|config| config.terminals[0].classes.clone())
    };
    assert_eq!(with(""), Ok(BTreeMap::new()));
    let rate = |kbit: u64| Some(BitRate::from_bits_per_second(kbit * 1000));
    let voice = ClassRates { guaranteed: rate(64), maximum: None };
    let default = ClassRates { guaranteed: None, maximum: rate(2000) };
    let own = "classes.voice = { guaranteed = \"64 kbit/s\" }\n\
               classes.default = { maximum = \"2 Mbit/s\" }\n";
    let wanted = [("voice".to_owned(), voice), ("default".to_owned(), default)];
    assert_eq!(with(own), Ok(wanted.into()));
    for (own, parts) in [
        ("classes.vioce = {}", ["terminal.0.classes.vioce", "\"voice\", \"default\""]),
        (
            "classes.voice = { guaranteed = \"2 Mbit/s\" }",
            ["terminal.0.classes.voice.guaranteed", "at most its maximum, 1 Mbit/s"],
        ),
        ("classes.voice = { weight = 2 }", ["unknown key `weight`", "guaranteed, maximum"]),
    ] {
        let error = with(own).unwrap_err();
        parts.iter().for_each(|part| assert!(error.contains(part), "{part} is not in {error}"));
    }
}

#[test]
fn a_terminal_has_a_quota_of_volume_of_its_own_or_that_of_all() {
    let volume = |top: &str, of_terminal: &str| {
        let text = hub_with("", "").replace("[[terminal]]", &format!("{top}[[terminal]]"));
        let config = hub(&format!("{text}{of_terminal}"));
        config.map(|config| config.terminals[0].volume.clone()).map_err(|error| error.to_string())
    };
    const ALL: &str = "[limits]\nquota = \"50 GB\"\nquota_then = \"256 kbit/s\"\n";
    assert_eq!(volume("", "").unwrap(), None);
    assert_eq!(volume("", "quota_period = \"day\"\n").unwrap(), None, "no volume, no quota");
    let rate = ExhaustedAction::Rate(BitRate::from_bits_per_second(256_000));
    let all = VolumeQuota {
        volume: ByteCount::new(50_000_000_000),
        period: RenewalPeriod::Month,
        then: rate.clone(),
    };
    assert_eq!(volume(ALL, "").unwrap().unwrap(), all);
    let own = "quota = \"2 GB\"\nquota_period = \"168 h\"\nquota_then = \"bulk\"\n";
    let one = VolumeQuota {
        volume: ByteCount::new(2_000_000_000),
        period: RenewalPeriod::Every(Duration::from_secs(7 * 86_400)),
        then: ExhaustedAction::Class("bulk".to_owned()),
    };
    assert_eq!(volume(ALL, own).unwrap().unwrap(), one);
    let only = VolumeQuota { then: ExhaustedAction::Block, ..all };
    assert_eq!(volume(ALL, "quota_then = \"block\"\n").unwrap().unwrap(), only);
    for (top, of_terminal, parts) in [
        ("[limits]\nquota = \"0 B\"\n", "", ["limits.quota", "above 0"]),
        (ALL, "quota_then = \"nice\"\n", ["terminal.0.quota_then = \"nice\"", "\"bulk\""]),
        (ALL, "quota_then = \"0 bit/s\"\n", ["terminal.0.quota_then", "a rate above 0"]),
        (ALL, "quota_period = \"week\"\n", ["quota_period", "\"168 h\""]),
    ] {
        let error = volume(top, of_terminal).unwrap_err();
        parts.iter().for_each(|part| assert!(error.contains(part), "{part} is not in {error}"));
    }
}

#[test]
fn names_are_resolved_with_a_section_dns_on_both_sides() {
    assert_eq!(terminal(&terminal_with("lan0", "lan0")).unwrap().dns, None);
    let with = |text: &str| {
        let text = terminal_with("[intercept]", &format!("[dns]\n{text}\n[intercept]"));
        terminal(&text).unwrap().dns.unwrap()
    };
    let usual = with("");
    assert!(usual.intercept && usual.keys.listen.is_empty() && usual.names.pool.is_none());
    assert_eq!((usual.names.stale.as_secs(), usual.names.prefetch), (86_400, 1));
    assert_eq!(usual.names.cache.bytes, ByteCount::new(16_000_000));
    assert!(!usual.names.canary && with("canary = true").names.canary);
    let instant = with("answer = \"instant\"\nreal = [\"corp.example\"]");
    let pool = instant.names.pool.unwrap();
    let prefixes: Vec<String> = pool.prefixes.iter().map(ToString::to_string).collect();
    assert_eq!(prefixes, ["198.18.0.0/15", "fd7a:5be2:91c4:53::/64"]);
    assert_eq!((pool.time.as_secs(), instant.names.real.len()), (3600, 1));
    let listening = with(
        "intercept = false\nlisten = [\"10.1.0.1:53\"]\nclients = [\"10.1.0.0/16\"]\n\
         servers = [\"192.0.2.53\", \"[::1]:5353\"]",
    );
    assert!(!listening.intercept && listening.serves([10, 1, 0, 9].into()));
    assert!(!listening.serves([10, 2, 0, 9].into()));
    let servers: Vec<String> = listening.keys.servers.iter().map(ToString::to_string).collect();
    assert_eq!(servers, ["192.0.2.53:53", "[::1]:5353"]);
    let within_tls = with(
        "intercept = false\ntls = [\"127.0.0.1:853\"]\nhttps = [\"127.0.0.1:443\"]\n\
         certificate = \"dns.pem\"\nkey = \"dns.key\"",
    );
    let secure = within_tls.secure.unwrap();
    assert_eq!([secure.tls[0].port(), secure.https[0].port()], [853, 443]);
    assert!(secure.files.certificate.ends_with("dns.pem") && secure.files.key.ends_with("dns.key"));
    assert!(within_tls.keys.listen.is_empty());

    let bare = hub(&hub_with("ship", "ship")).unwrap();
    assert!(bare.dns.is_none() && !bare.link.questions);
    let with_dns = hub_with("[[terminal]]", "[dns]\nservers = [\"192.0.2.53\"]\n[[terminal]]");
    let config = hub(&with_dns).unwrap();
    let dns = config.dns.unwrap();
    assert!(config.link.questions);
    assert_eq!(
        (dns.servers[0].to_string(), dns.questions.get()),
        ("192.0.2.53:53".to_owned(), 128)
    );
}

#[test]
fn cleartext_http_is_cached_with_a_section_http() {
    assert_eq!(terminal(&terminal_with("lan0", "lan0")).unwrap().http, None);
    let with = |text: &str| {
        let text = terminal_with("[intercept]", &format!("[http]\n{text}\n[intercept]"));
        terminal(&text).unwrap().http.unwrap()
    };
    let usual = with("");
    assert!(
        usual.takes(80)
            && !usual.takes(8080)
            && usual.keys.offline.get()
            && usual.keys.directory.is_none()
    );
    let limits = usual.cache.limits;
    assert_eq!(
        [limits.memory, limits.disk, limits.object].map(ByteCount::get),
        [64_000_000, 0, 16_000_000]
    );
    let kept =
        with("ports = [8080]\ndirectory = \"/var/cache/skyhop\"\nstale = \"0 s\"\noffline = false");
    assert_eq!(kept.cache.limits.disk, ByteCount::new(2_000_000_000));
    assert!(
        kept.takes(8080)
            && !kept.takes(80)
            && !kept.keys.offline.get()
            && kept.cache.stale.is_zero()
    );

    let site = with(
        "[[http.site]]\nhosts = [\"Mirror.example\"]\ncertificate = \"a.pem\"\nkey = \"a.key\"",
    );
    assert_eq!(site.sites[0].hosts, ["mirror.example"]);
    assert_eq!((site.tls_ports, site.keys.authorities), (vec![443], None));

    let bare = hub(&hub_with("ship", "ship")).unwrap();
    assert!(bare.http.is_none() && !bare.link.exchanges);
    let with =
        |text: &str| hub(&hub_with("[[terminal]]", &format!("[http]\n{text}\n[[terminal]]")));
    let fetches = with("").unwrap();
    assert!(fetches.link.exchanges && fetches.http.unwrap().cache.is_none());
    let cache = with("cache = true\nmemory = \"1 MB\"").unwrap().http.unwrap().cache.unwrap();
    assert_eq!(cache.limits.memory, ByteCount::new(1_000_000));
    let error = with("memory = \"1 MB\"").unwrap_err().to_string();
    assert!(error.contains("http.cache is missing"), "{error}");
}

#[test]
fn removed_keys_are_ignored_with_a_warning_each() {
    let keys = "[http]\ncache = true\nhour = \"never\"\npush = true\n[[terminal]]";
    let config = hub(&hub_with("[[terminal]]", keys)).unwrap();
    let warning = |line: u32, key: &str| {
        format!(
            "/site/hub.toml:{line}: {key} has no effect: a hub no longer pushes the objects that pages name"
        )
    };
    assert_eq!(config.operation.warnings, [warning(5, "http.hour"), warning(6, "http.push")]);
    assert!(config.http.unwrap().cache.is_some(), "the other keys are read");
    let windows =
        "[lan]\ninitial_receive_window = 8\n[wan]\nquick_ack = true\ninitial_window = 0\n";
    let config = solo(&format!("{INTERCEPT}{windows}")).unwrap();
    let found = config.operation.warnings.iter().map(|it| it.split_once(" has").unwrap().0);
    assert_eq!(
        found.collect::<Vec<_>>(),
        ["/site/solo.toml:4: lan.initial_receive_window", "/site/solo.toml:7: wan.initial_window"]
    );
    assert!(config.wan.quick_ack);
    // What was never a key of this file is still a mistake.
    let error = hub(&hub_with("[[terminal]]", "push = true\n[[terminal]]")).unwrap_err();
    assert!(error.to_string().contains("unknown key `push`"), "{error}");
    let keys = format!("[http]\npush = true\n{INTERCEPT}");
    let error = terminal(&terminal_with(INTERCEPT, &keys)).unwrap_err();
    assert!(error.to_string().contains("unknown key `push`"), "{error}");
}

#[test]
fn bundles_have_a_section_on_both_sides() {
    let bare = terminal(&terminal_with("lan0", "lan0")).unwrap();
    assert!(bare.bundles.is_none() && !bare.link.bundles);
    let section = "[bundles]\nnode = \"ipn:2.0\"\nhub = \"ipn:1.0\"\nstore = \"b\"\n";
    let text = terminal_with("[intercept]", &format!("{section}[intercept]"));
    let config = terminal(&text).unwrap();
    assert!(config.link.bundles);
    let class = config.classes.of_connection(4556, None);
    assert_eq!(config.classes.id_of("bundles"), Some(class));
    assert_eq!(bare.classes.id_of("bundles"), None);
    let bundles = config.bundles.unwrap();
    assert_eq!(bundles.agent.node.to_string(), "ipn:2.0");
    let only = terminal(&terminal_with(INTERCEPT, section)).unwrap();
    assert!(only.intercept.is_none() && only.bundles.is_some(), "nothing else is needed");
    assert!(bundles.agent.peers[0].everything && bundles.reach == [NodeReach::Hub]);
    assert_eq!((bundles.listen, &bundles.keys.inbox), (None, &None), "nothing listens by default");
    let limits = bundles.agent.limits;
    assert_eq!((limits.bytes.get(), limits.largest.get()), (1_000_000_000, 16_000_000));
    assert_eq!((limits.bundles, limits.remembered, limits.window), (10_000, 100_000, 16));

    let section = "[bundles]\nnode = \"dtn://hub/\"\nstore = \"/b\"\ninbox = \"in\"\n\
                   listen = \"10.0.0.1:4556\"\nclients = [\"10.0.0.0/8\"]\n\
                   [[bundles.peer]]\nnode = \"ipn:2.0\"\nterminal = \"ship-1\"\n\
                   [[bundles.peer]]\nnode = \"ipn:7.0\"\nbehind = [\"dtn://far/\"]\n\
                   address = \"10.0.0.9:4556\"\nfragment = \"64 kB\"\n[[bundles.peer]]\nnode = \"ipn:9.0\"\n";
    let with = |from: &str, to: &str| {
        hub(&hub_with("[[terminal]]", &format!("{}[[terminal]]", section.replace(from, to))))
    };
    let bundles = with("", "").unwrap().bundles.unwrap();
    let address = "10.0.0.9:4556".parse().unwrap();
    let ship = NodeReach::Terminal("ship-1".to_owned());
    assert_eq!(bundles.reach, [ship, NodeReach::Connect(address), NodeReach::Listen]);
    assert!(bundles.serves([10, 9, 9, 9].into()) && !bundles.serves([11, 0, 0, 1].into()));
    assert!(bundles.keys.inbox.is_some() && bundles.file_service() == "files");
    assert_eq!(bundles.fragment, [None, Some(ByteCount::new(64_000)), None]);
    assert_eq!(bundles.tls, None);
    let files = "certificate = \"c\"\nkey = \"k\"\nauthorities = \"/a\"\nstore";
    let named =
        section.replace("store", files).replace("address", "certificate_name = \"far\"\naddress");
    let tls = hub(&hub_with("[[terminal]]", &format!("{named}[[terminal]]"))).unwrap().bundles;
    let tls = tls.and_then(|bundles| bundles.tls).unwrap();
    assert!(tls.files.certificate.ends_with("c") && tls.files.key.ends_with("k"));
    assert_eq!(tls.authorities, Path::new("/a"));
    assert_eq!(tls.names, [None, Some("far".to_owned()), None]);
    for (from, to, told) in [
        ("node = \"dtn://hub/\"\n", "", &["bundles.node is missing", "dtn://ship/"][..]),
        ("dtn://hub/", "hub", &["bundles.node", "ipn:2.0"]),
        ("store = \"/b\"\n", "", &["bundles.store is missing"]),
        ("store", "hub = \"ipn:1.0\"\nstore", &["bundles.hub", "this is a hub"]),
        ("store", "size = \"1 kB\"\nstore", &["bundles.size", "at least 1 MB"]),
        ("store", "largest = \"300 MB\"\nstore", &["bundles.largest", "quarter"]),
        ("store", "window = 0\nstore", &["bundles.window", "1 to 256"]),
        ("store", "fragment = \"9 kB\"\nstore", &["bundles.fragment", "at least 10 kB"]),
        ("store", "longest_lifetime = \"1 s\"\nstore", &["longest_lifetime", "8784 h"]),
        ("clients = [\"10.0.0.0/8\"]\n", "", &["bundles.clients is missing"]),
        ("\"ship-1\"", "\"boat\"", &["bundles.peer.0.terminal", "boat", "of this file"]),
        ("\"ipn:9.0\"", "\"ipn:2.0\"", &["bundles.peer", "ipn:2.0", "nowhere else"]),
        ("address", "terminal = \"ship-1\"\naddress", &["bundles.peer.1", "either"]),
        ("store", "key = \"k\"\nstore", &["bundles.certificate is missing", "PEM"]),
        ("store", "certificate = \"c\"\nkey = \"k\"\nstore", &["bundles.authorities is missing"]),
        ("address", "certificate_name = \"far.example\"\naddress", &["without `certificate`"]),
        ("address", "certificate_name = \"a b\"\naddress", &["certificate_name", "host name"]),
        (
            "terminal = \"ship-1\"",
            "terminal = \"ship-1\"\ncertificate_name = \"10.0.0.9\"",
            &["bundles.peer.0.certificate_name", "nothing with `terminal`"],
        ),
        (
            "\"ipn:9.0\"",
            "\"ipn:9.0\"\neverything = true\n[[bundles.peer]]\nnode = \"ipn:4.0\"\neverything = true",
            &["bundles.peer", "2 nodes"],
        ),
    ] {
        let error = with(from, to).unwrap_err().to_string();
        told.iter().for_each(|part| assert!(error.contains(part), "{part}: {error}"));
    }
}

#[test]
fn a_hub_may_have_a_next_key_and_a_time_for_the_present_one() {
    let with = |keys: &str| hub(&hub_with("rate =", &format!("{keys}rate =")));
    let at = |text: &str| text.parse::<units::UnixTime>().unwrap();
    assert_eq!(with("").unwrap().identities(at("2027-01-01T00:00:00Z")).len(), 1);
    let keys = "next_key_file = \"next.key\"\nkey_until = \"2027-01-31T00:00:00Z\"\n";
    let replaced = with(keys).unwrap();
    for (time, count) in [("2027-01-30T23:59:59Z", 2), ("2027-01-31T00:00:00Z", 1)] {
        assert_eq!(replaced.identities(at(time)).len(), count, "{time}");
    }
    let alone = with("key_until = \"2027-01-31T00:00:00Z\"\n").unwrap_err().to_string();
    assert!(alone.contains("next_key_file"), "{alone}");
}

#[test]
fn no_terminal_has_a_key_of_its_hub_wherever_it_is_permitted() {
    const SAID: &str = "the hub itself has the same key";
    let key = |source: KeySource| match source {
        KeySource::File(_) => Ok(KeyPair::from_private([9; 32])),
        KeySource::Inline(_) => any_key(source),
    };
    let with = |public: &str| {
        let text = hub_with("rate =", "next_key_file = \"next.key\"\nrate =");
        file("/site/hub.toml", &text.replace(PUBLIC, public)).hub(key)
    };
    let config = with(PUBLIC).unwrap();
    let next = format_public_key(&KeyPair::from_private([9; 32]).public());
    for own in [own_key(), next] {
        let in_file = with(&own).unwrap_err().to_string();
        assert!(in_file.contains(SAID), "{in_file}");
        // Permits in a directory and in etcd are read in the same way.
        for name in ["key", "invite"] {
            let permit = format!("{name} = \"{own}\"\n");
            let permits = [file("/site/permits/ship-2.toml", &permit)];
            let permits = PermittedTerminals::read(&config, &permits);
            let [(_, error)] = &permits.refused[..] else { panic!("{permits:?}") };
            assert!(error.to_string().contains(SAID), "{error}");
            assert_eq!(permits.terminals.len(), 1);
        }
    }
}

#[test]
fn links_have_names_rates_and_a_way_out() {
    let geo = "[[link]]\nname = \"geo\"\ninterface = \"wan0\"\n";
    let leo = "[[link]]\nname = \"leo\"\nsource = \"192.0.2.7\"\nrate = \"auto\"\n";
    let class = "[[class]]\nname = \"voice\"\ndscp = [\"EF\"]\nlink = \"leo\"\n";
    let with = |more: &str| terminal(&(terminal_with("", "") + more));
    let config = with(&format!("{geo}{leo}{class}")).unwrap();
    let [first, second] = &config.links[..] else { panic!("{:?}", config.links) };
    assert_eq!((first.name.as_str(), first.interface.as_deref()), ("geo", Some("wan0")));
    assert_eq!(first.rate, slacp::Rate::Fixed(BitRate::from_mbit(10)));
    assert_eq!(second.source, Some([192, 0, 2, 7].into()));
    assert_eq!(second.rate, slacp::Rate::Auto { ceiling: None, probe: false });
    assert_eq!(config.link.links.len(), 2);
    let classes = config.classes.definitions();
    assert!(classes.iter().any(|class| class.name == "voice" && class.share.link == Some(1)));
    for (more, expected) in [
        (geo.to_owned(), "2 to 4 links"),
        (geo.repeat(5), "2 to 4 links"),
        (geo.repeat(2), "no earlier link"),
        (format!("{geo}[[link]]\nname = \"leo\"\n"), "link.1.interface"),
        (format!("{geo}{leo}").replace("auto", "modem"), "link.1.rate"),
        (format!("{geo}{leo}").replace("wan0", ""), "the name of an interface"),
        (format!("{geo}{leo}{class}").replace("link = \"leo\"", "link = \"meo\""), "class.0.link"),
    ] {
        let error = with(&more).unwrap_err().to_string();
        assert!(error.contains(expected), "{more}: {error}");
    }
    let with_tcp = terminal_with("rate", "hub_tcp = \"b:443\"\nrate") + geo + leo;
    let config = terminal(&with_tcp).unwrap();
    assert!(config.hubs[0].tcp.is_some() && config.links.len() == 2);
    let plain = "[[link]]\nname = \"geo\"\n[[link]]\nname = \"leo\"\nrate = \"20 Mbit/s\"\n";
    let config = hub(&(hub_with("", "") + plain)).unwrap();
    assert_eq!(config.links[1].rate, slacp::Rate::Fixed(BitRate::from_mbit(20)));
    let error = hub(&(hub_with("", "") + geo + leo)).unwrap_err().to_string();
    assert!(error.contains("link.0.interface"), "{error}");
}

#[test]
fn a_terminal_may_have_its_own_rates_of_links() {
    let links = "[[link]]\nname = \"geo\"\n[[link]]\nname = \"leo\"\n";
    let read = |own: &str, links: &str| hub(&format!("{}{own}\n{links}", hub_with("", "")));
    let config = read("links = { leo = \"5 Mbit/s\", geo = \"auto\" }", links).unwrap();
    let (leo, geo) = (
        slacp::Rate::Fixed(BitRate::from_mbit(5)),
        slacp::Rate::Auto { ceiling: None, probe: false },
    );
    let rates = link_rates(&config.terminals, &config.links);
    assert_eq!(rates[&config.terminals[0].key], [(0, geo), (1, leo)].into());
    for (own, links, expected) in [
        ("links.meo = \"auto\"", links, ["terminal.0.links.meo", "\"geo\", \"leo\""]),
        ("links.leo = \"modem\"", links, ["terminal.0.links.leo", "\"auto\""]),
        ("links.leo = \"0 Mbit/s\"", links, ["terminal.0.links.leo", "Mbit/s"]),
        ("links.leo = \"auto\"", "", ["terminal.0.links.leo", "none here"]),
    ] {
        let error = read(own, links).unwrap_err().to_string();
        assert!(expected.iter().all(|part| error.contains(part)), "{own}: {error}");
    }
}
