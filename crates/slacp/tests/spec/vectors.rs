//! Recomputes the test vectors (`vectors/slacp-2.toml`) from `docs/slacp.md` without the crate:
//! Noise, keys, packets and the erasure code.

use crate::by_hand::crypto::{Noise, hkdf, mac, noise_ik, seal, x25519};
use crate::by_hand::{erasure, frames};
use toml::{Table, Value};

fn vectors() -> Table {
    include_str!("../vectors/slacp-2.toml").parse().unwrap()
}

/// A table of the file.
struct Section<'a>(&'a Table);

impl Section<'_> {
    fn bytes(&self, key: &str) -> Vec<u8> {
        unhex(self.0[key].as_str().unwrap())
    }

    fn key(&self, key: &str) -> [u8; 32] {
        self.bytes(key).try_into().unwrap()
    }

    fn number(&self, key: &str) -> u64 {
        self.0[key].as_integer().unwrap().try_into().unwrap()
    }

    fn flag(&self, key: &str) -> bool {
        self.0[key].as_bool().unwrap()
    }

    fn list(&self, key: &str) -> Vec<Vec<u8>> {
        let items = self.0[key].as_array().unwrap().iter();
        items.map(|item| unhex(item.as_str().unwrap())).collect()
    }
}

fn unhex(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

fn section<'a>(file: &'a Table, name: &str) -> Section<'a> {
    Section(file[name].as_table().unwrap())
}

fn sections<'a>(file: &'a Table, name: &str) -> impl Iterator<Item = Section<'a>> {
    file[name].as_array().unwrap().iter().map(|item| Section(Value::as_table(item).unwrap()))
}

fn handshake(file: &Table, name: &str) -> (Vec<u8>, Vec<u8>, Noise) {
    let (keys, section) = (section(file, "identities"), section(file, name));
    let prologue = [&b"SLACP\x02"[..], &section.bytes("initiation")[6..22]].concat();
    noise_ik(
        &prologue,
        [&keys.bytes("terminal_private"), &section.bytes("terminal_ephemeral")],
        [&keys.bytes("hub_private"), &section.bytes("hub_ephemeral")],
        [&section.bytes("terminal_parameters"), &section.bytes("hub_parameters")],
    )
}

fn index(section: &Section, key: &str) -> [u8; 4] {
    u32::try_from(section.number(key)).unwrap().to_be_bytes()
}

/// The tag that completes `message`.
fn tag(file: &Table, message: &[u8], knock: &[u8]) -> Vec<u8> {
    let hub = section(file, "identities").bytes("hub_public");
    let key = [b"SLACP knock", &hub[..]].concat();
    mac(&key, &[message, knock].concat())[..16].to_vec()
}

/// `head` followed by its knock or tag.
fn completed(file: &Table, head: &[u8], knock: &[u8]) -> Vec<u8> {
    [head, &tag(file, head, knock)].concat()
}

#[test]
fn the_handshake_is_noise_ik_with_a_knock() {
    let file = vectors();
    let section = section(&file, "handshake");
    let (first, second, noise) = handshake(&file, "handshake");
    let (terminal, hub) = (index(&section, "terminal_index"), index(&section, "hub_index"));
    let initiation = [&[1, 2], &terminal[..], &[0; 16], &first].concat();
    let initiation = completed(&file, &initiation, &[]);
    assert_eq!(initiation, section.bytes("initiation"));
    assert_eq!(initiation[initiation.len() - 16..], section.bytes("knock"));
    let response = [&[2, 2], &hub[..], &terminal, &second].concat();
    assert_eq!(response, section.bytes("response"));

    let [up, down] = noise.derive(&[]);
    let name = u64::from_be_bytes(*noise.hash.first_chunk().unwrap()) >> 2;
    assert_eq!((noise.hash, name), (section.key("hash"), section.number("name")));
    assert_eq!((up, down), (section.key("terminal_to_hub"), section.key("hub_to_terminal")));
    let chain = hkdf(&noise.hash, &[up, down].concat(), b"SLACP chain", 32);
    assert_eq!(chain, section.bytes("chain"));
}

#[test]
fn a_cookie_is_asked_for_and_vouched_for() {
    let file = vectors();
    let keys = section(&file, "identities");
    let (first, cookie) = (section(&file, "handshake"), section(&file, "cookie"));
    let terminal = index(&first, "terminal_index");
    let request = [&[3], &terminal[..], &cookie.bytes("cookie")].concat();
    assert_eq!(completed(&file, &request, &first.bytes("knock")), cookie.bytes("request"));
    let (message, ..) = noise_ik(
        &[b"SLACP\x02", &cookie.bytes("cookie")[..]].concat(),
        [&keys.bytes("terminal_private"), &cookie.bytes("terminal_ephemeral")],
        [&keys.bytes("hub_private"), &[1; 32]],
        [&first.bytes("terminal_parameters"), &[]],
    );
    let initiation = [&[1, 2], &terminal[..], &cookie.bytes("cookie"), &message].concat();
    assert_eq!(completed(&file, &initiation, &[]), cookie.bytes("initiation"));
}

#[test]
fn refusals_are_complete() {
    let file = vectors();
    let versions = section(&file, "versions");
    let initiation = versions.bytes("initiation");
    let (head, knock) = initiation.split_at(initiation.len() - 16);
    assert_eq!(tag(&file, head, &[]), knock);
    let answer = [&[4], &initiation[2..4], &[2]].concat();
    assert_eq!(completed(&file, &answer, knock), versions.bytes("versions"));

    let unknown = section(&file, "unknown");
    let answer = [&[5], &unknown.bytes("header")[1..]].concat();
    assert_eq!(completed(&file, &answer, &[]), unknown.bytes("unknown"));

    let (first, second, _) = handshake(&file, "refusal");
    let refusal = section(&file, "refusal");
    let terminal = index(&section(&file, "handshake"), "terminal_index");
    let initiation = [&[1, 2], &terminal[..], &[0; 16], &first].concat();
    assert_eq!(completed(&file, &initiation, &[]), refusal.bytes("initiation"));
    let response = [&[2, 2, 0, 0, 0, 0], &terminal[..], &second].concat();
    assert_eq!(response, refusal.bytes("response"));
}

#[test]
fn new_keys_come_from_a_fresh_exchange_and_the_chain() {
    let file = vectors();
    let section = section(&file, "rekey");
    let halves = [section.bytes("terminal_public"), section.bytes("hub_public")];
    let (shared, terminal) = x25519(&section.bytes("terminal_private"), &halves[1]);
    let (same, hub) = x25519(&section.bytes("hub_private"), &halves[0]);
    assert_eq!((&terminal, &hub, &shared), (&halves[0], &halves[1], &same));
    assert_eq!(shared, section.bytes("shared"));
    for (frame, half) in [("terminal_frame", &halves[0]), ("hub_frame", &halves[1])] {
        assert_eq!([&[0x0a, 1], &half[..]].concat(), section.bytes(frame));
    }
    let input = [shared, terminal, hub].concat();
    let keys = hkdf(&section.bytes("chain_before"), &input, b"SLACP keys", 96);
    assert_eq!(keys[..32], section.bytes("terminal_to_hub"));
    assert_eq!(keys[32..64], section.bytes("hub_to_terminal"));
    assert_eq!(keys[64..], section.bytes("chain_after"));
    let packet = section.bytes("first_packet");
    let (header, _) = packet.split_at(6);
    assert_eq!(seal("AES-256-GCM", &keys[..32], 9, header, &[1]), packet);
}

#[test]
fn packets_are_sealed_under_their_numbers() {
    let file = vectors();
    let hub = index(&section(&file, "handshake"), "hub_index");
    for packet in sections(&file, "packet") {
        let number = packet.number("number");
        let span = 2 * (number + 1 - packet.number("acknowledged"));
        let length = (1..4).find(|length| span < 1 << (8 * length)).unwrap_or(4);
        let flags = u8::from(packet.flag("source")) << 5 | u8::from(packet.flag("phase")) << 4;
        let first = 0x40 | flags | (length as u8 - 1);
        let header = [&[first], &hub[..], &number.to_be_bytes()[8 - length..]].concat();
        assert_eq!(header, packet.bytes("header"));
        let cipher = packet.0["cipher"].as_str().unwrap();
        let key = packet.bytes("key");
        let sealed = seal(cipher, &key, number, &header, &packet.bytes("frames"));
        assert_eq!(sealed, packet.bytes("datagram"), "{cipher} {number}");
    }
    assert_eq!(sections(&file, "packet").count(), 12);
}

#[test]
fn frames_are_encoded_as_specified() {
    let file = vectors();
    for frame in sections(&file, "frame") {
        let fields = frame.0["fields"].as_str().unwrap();
        assert_eq!(frames::encode(fields, frame.flag("last")), frame.bytes("bytes"), "{fields}");
    }
    assert!(sections(&file, "frame").count() > 25);
}

#[test]
fn blocks_are_repaired_as_specified() {
    let file = vectors();
    for block in sections(&file, "block") {
        let packets = block.list("packets");
        let longest = packets.iter().map(Vec::len).max().unwrap();
        let size = (2 + longest).next_multiple_of(2);
        let shard = |packet: &Vec<u8>| {
            let mut shard = [&(packet.len() as u16).to_be_bytes()[..], packet].concat();
            shard.resize(size, 0);
            shard
        };
        let shards: Vec<Vec<u8>> = packets.iter().map(shard).collect();
        let total = block.number("repairs") as usize;
        let repairs = erasure::repairs(&shards, total);
        assert_eq!(repairs, block.list("repair_shards"));
        for (at, frame) in block.list("repair_frames").iter().enumerate() {
            let distance = block.number("number") - block.number("base") + at as u64;
            let sizes =
                [distance as u8, block.number("stride") as u8, packets.len() as u8, total as u8];
            assert_eq!(frame[..6], [&[9], &sizes[..], &[at as u8]].concat());
            assert_eq!(frame[6..], repairs[at]);
        }
        let lost = block.0["lost"].as_array().unwrap().iter();
        let lost: Vec<usize> = lost.map(|n| n.as_integer().unwrap() as usize).collect();
        let kept = |i: usize| (!lost.contains(&i)).then(|| shards[i].clone());
        let kept: Vec<_> = (0..shards.len()).map(kept).collect();
        let used: Vec<_> = repairs.into_iter().enumerate().skip(total - lost.len()).collect();
        let expected: Vec<_> = lost.iter().map(|i| shards[*i].clone()).collect();
        assert_eq!(erasure::restore(&kept, &used, total), expected);
    }
}
