//! Handshakes with good and bad messages.

use super::*;
use crate::wire::packet::RESPONSE_BODY;

fn params(present: Option<u64>) -> HandshakeParams {
    HandshakeParams {
        limits: PeerLimits {
            channels: 0x8000_0005,
            contexts: 12,
            decompressors: 9,
            dictionary: true,
            openings: OpeningFeatures(3),
            ..PeerLimits::new(1000, 500, 7)
        },
        rate: BitRate::from_mbit(3),
        present,
        times: Some(true),
        aes: true,
        ecn: true,
        link_layer: true,
        leaving: true,
        successor: true,
        links: Some(3),
        join: present,
        succeeds: present.map(|name| name ^ 1),
        address: present.map(|name| name ^ 2),
    }
}

fn identity(seed: u8) -> KeyPair {
    KeyPair::from_private([seed; 32])
}

/// An initiator for terminal 2, to hub 3.
fn initiator(rng: &mut ChaCha20Rng, params: &HandshakeParams) -> Initiator {
    let hub = KnockKey::new(identity(3).public());
    Initiator::new(Instant::ZERO, &identity(2), &hub, 7, params, rng)
}

#[test]
fn both_sides_learn_each_other_and_share_keys() {
    let mut rng = ChaCha20Rng::from_seed([1; 32]);
    let (terminal, hub) = (identity(2), identity(3));
    let mut initiator = initiator(&mut rng, &params(Some(5)));
    let first = initiator.poll(Instant::ZERO).unwrap();
    let responder = Responder::read(&hub, &first, &mut rng).unwrap();
    assert_eq!(responder.peer, terminal.public());
    assert_eq!(responder.params, Ok(params(Some(5))));
    let (second, hub_keys) = responder.answer(9, 7, &params(None), PacketCipher::Aes256Gcm);
    assert!(second.len() <= first.len());

    let mut forged = second[RESPONSE_BODY..].to_vec();
    forged[3] ^= 1;
    assert!(initiator.answer(&forged).is_err());
    assert_eq!(initiator.answer(&second[RESPONSE_BODY..]).unwrap(), params(None));
    let keys = initiator.into_keys(PacketCipher::Aes256Gcm);
    assert_eq!((keys.name, keys.token), (hub_keys.name, hub_keys.token));
    assert_eq!(keys.chain, hub_keys.chain);
    assert_ne!(keys.name, keys.token);
    let mut packet = b"hdata".to_vec();
    keys.send.seal(0, 0..1, &mut packet);
    assert_eq!(hub_keys.recv.open(0, 1, &mut packet.clone()), Some(&b"data"[..]));
    assert_eq!(hub_keys.send.open(0, 1, &mut packet), None);
}

#[test]
fn the_wrong_hub_cannot_read_the_first_message() {
    let mut rng = ChaCha20Rng::from_seed([1; 32]);
    let mut initiator = initiator(&mut rng, &params(None));
    let first = initiator.poll(Instant::ZERO).unwrap();
    assert!(Responder::read(&identity(4), &first, &mut rng).is_err());
    for length in 0..first.len() {
        assert!(Responder::read(&identity(3), &first[..length], &mut rng).is_err());
    }
}

#[test]
fn an_old_message_cannot_be_given_a_cookie() {
    let mut rng = ChaCha20Rng::from_seed([1; 32]);
    let mut initiator = initiator(&mut rng, &params(None));
    let mut first = initiator.poll(Instant::ZERO).unwrap();
    first[INITIATION_COOKIE].copy_from_slice(&[5; MAC]);
    assert!(Responder::read(&identity(3), &first, &mut rng).is_err());
}

#[test]
fn cookies_are_taken_a_few_times() {
    let mut rng = ChaCha20Rng::from_seed([1; 32]);
    let hub = KnockKey::new(identity(3).public());
    let mut initiator = initiator(&mut rng, &params(None));
    for count in 0..9 {
        let sent = initiator.poll(initiator.due()).unwrap();
        assert!(Responder::read(&identity(3), &sent, &mut rng).is_ok());
        assert_eq!(cookie_of(&sent), Some(&[count.min(MAX_COOKIES) as u8; MAC]));
        let cookie = [count as u8 + 1; MAC];
        let params = params(None);
        initiator.take_cookie(Instant::ZERO, &identity(2), &hub, &params, &cookie, &mut rng);
    }
}

#[test]
fn unknown_parameters_are_skipped_unless_they_are_mandatory() {
    let with = |name: u64| {
        let mut payload = params(Some(5)).encode();
        varint::write(&mut payload, name);
        varint::write(&mut payload, 1);
        HandshakeParams::decode(&payload)
    };
    for name in [30, 31, 64, 64 + 31, 1 << 40] {
        assert_eq!(with(name).unwrap(), params(Some(5)), "{name}");
    }
    for name in [32, 33, 63, 96, 1 << 40 | MANDATORY] {
        let Err(HandshakeError::Unsupported(UnsupportedParameter { parameter })) = with(name)
        else {
            panic!("{name} was taken");
        };
        assert_eq!(parameter, name);
    }
}

#[test]
fn a_refusal_names_the_parameter() {
    let mut rng = ChaCha20Rng::from_seed([1; 32]);
    let mut initiator = initiator(&mut rng, &params(None));
    let first = initiator.poll(Instant::ZERO).unwrap();
    let responder = Responder::read(&identity(3), &first, &mut rng).unwrap();
    let refusal = responder.refusal(7, UnsupportedParameter { parameter: 77 });
    assert!(refusal.len() <= first.len());
    let Err(HandshakeError::Refused { parameter: 77 }) =
        initiator.answer(&refusal[RESPONSE_BODY..])
    else {
        panic!("not a refusal");
    };
}

#[test]
fn pauses_begin_anew_with_a_cookie() {
    let mut rng = ChaCha20Rng::from_seed([1; 32]);
    let params = params(None);
    let mut initiator = initiator(&mut rng, &params);
    assert!(initiator.poll(Instant::ZERO).is_some());
    let again = initiator.due();
    assert!(initiator.poll(again).is_some());
    let hub = KnockKey::new(identity(3).public());
    initiator.take_cookie(again, &identity(2), &hub, &params, &[7; MAC], &mut rng);
    assert!(initiator.poll(again).is_some());
    let pause = initiator.due().saturating_since(again);
    assert_eq!(pause, again.saturating_since(Instant::ZERO), "the first pause");
}

#[test]
fn the_message_is_sent_again_with_growing_pauses() {
    let mut rng = ChaCha20Rng::from_seed([1; 32]);
    let mut initiator = initiator(&mut rng, &params(None));
    let mut at = Vec::new();
    while !initiator.is_stale(initiator.due()) {
        at.push(initiator.due().saturating_since(Instant::ZERO));
        assert!(initiator.poll(initiator.due()).is_some());
    }
    let pauses: Vec<f64> = at.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64()).collect();
    let longer = pauses[0];
    assert!(longer > 1.0 && longer < 1.25, "{longer}");
    for (pause, plain) in pauses.iter().zip([1.0, 2.0, 4.0, 5.0, 5.0]) {
        assert!((pause / plain - longer).abs() < 1e-6, "{pauses:?}");
    }
}
