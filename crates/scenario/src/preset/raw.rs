//! Preset files as written.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Preset;
use crate::dama::raw::RawDama;
use crate::link_spec::raw::RawLink;

/// A link preset of skyhop's lab: a satellite hop (docs/presets.md).
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "skyhop link preset")]
pub(crate) struct RawPreset {
    /// One line.
    pub(super) description: String,
    /// The longest IP packet on the hop, in bytes.
    #[schemars(range(min = 1280, max = 9216))]
    pub(super) mtu: u16,
    /// Number of terminals, which share the forward link and have a return link each.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 32))]
    pub(super) terminals: u8,
    /// Hub to terminal.
    pub(super) forward: RawLink,
    /// Terminal to hub.
    #[serde(rename = "return")]
    pub(super) ret: RawLink,
    /// Capacity on demand on the return link; without it each terminal has the whole link.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) dama: Option<RawDama>,
    /// Between hub and server, in both directions; a LAN if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) terrestrial: Option<RawLink>,
    /// Between each terminal and its client, in both directions; a LAN if there is none.
    #[serde(rename = "client-side", skip_serializing_if = "Option::is_none")]
    pub(super) client_side: Option<RawLink>,
}

fn one() -> u8 {
    1
}

impl From<&Preset> for RawPreset {
    fn from(preset: &Preset) -> Self {
        Self {
            description: preset.description.clone(),
            mtu: preset.mtu,
            forward: (&preset.forward).into(),
            ret: (&preset.ret).into(),
            terminals: preset.terminals,
            dama: preset.dama.as_ref().map(Into::into),
            terrestrial: preset.terrestrial.as_ref().map(Into::into),
            client_side: preset.client_side.as_ref().map(Into::into),
        }
    }
}
