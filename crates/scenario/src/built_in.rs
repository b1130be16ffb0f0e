//! The built-in presets.

/// Names and files of the built-in presets.
pub(crate) const BUILT_IN: [(&str, &str); 17] = [
    ("geo", include_str!("../presets/geo.toml")),
    ("geo-ka", include_str!("../presets/geo-ka.toml")),
    ("geo-fade", include_str!("../presets/geo-fade.toml")),
    ("geo-rain", include_str!("../presets/geo-rain.toml")),
    ("geo-burst", include_str!("../presets/geo-burst.toml")),
    ("vsat-dama-cra", include_str!("../presets/vsat-dama-cra.toml")),
    ("vsat-dama-rbdc", include_str!("../presets/vsat-dama-rbdc.toml")),
    ("vsat-dama-vbdc", include_str!("../presets/vsat-dama-vbdc.toml")),
    ("vsat-dama-cra-vbdc", include_str!("../presets/vsat-dama-cra-vbdc.toml")),
    ("vsat-dama-voice", include_str!("../presets/vsat-dama-voice.toml")),
    ("star-one", include_str!("../presets/star-one.toml")),
    ("star-one-assigned", include_str!("../presets/star-one-assigned.toml")),
    ("t1", include_str!("../presets/t1.toml")),
    ("itu-45m", include_str!("../presets/itu-45m.toml")),
    ("atm-155m", include_str!("../presets/atm-155m.toml")),
    ("meo", include_str!("../presets/meo.toml")),
    ("leo", include_str!("../presets/leo.toml")),
];

/// The traces that the presets refer to: path in the preset, and contents.
pub(crate) const TRACES: &[(&str, &str)] = &[
    ("traces/geo-fade.rate", include_str!("../presets/traces/geo-fade.rate")),
    ("traces/geo-rain.attenuation", include_str!("../presets/traces/geo-rain.attenuation")),
    ("traces/meo.delay", include_str!("../presets/traces/meo.delay")),
    ("traces/leo.delay", include_str!("../presets/traces/leo.delay")),
];
