//! JSON representation of times and rates, as numbers of seconds and of bits per second.

/// For `#[serde(with)]`: a duration as seconds.
pub(crate) mod seconds {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(time: &Duration, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_f64(time.as_secs_f64())
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Duration, D::Error> {
        Duration::try_from_secs_f64(f64::deserialize(d)?).map_err(serde::de::Error::custom)
    }
}

/// For `#[serde(with)]`: a number of bytes.
pub(crate) mod bytes {
    use serde::{Deserialize, Deserializer, Serializer};
    use units::ByteCount;

    pub(crate) fn serialize<S: Serializer>(bytes: &ByteCount, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_u64(bytes.get())
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<ByteCount, D::Error> {
        Ok(ByteCount::new(u64::deserialize(d)?))
    }
}

/// For `#[serde(with)]`: an optional duration as seconds or null.
pub(crate) mod maybe_seconds {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    struct Seconds(#[serde(with = "super::seconds")] Duration);

    pub(crate) fn serialize<S: Serializer>(
        time: &Option<Duration>,
        s: S,
    ) -> Result<S::Ok, S::Error> {
        time.map(Seconds).serialize(s)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        d: D,
    ) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<Seconds>::deserialize(d)?.map(|seconds| seconds.0))
    }
}

/// For `#[serde(with)]`: an optional rate as bits per second or null.
pub(crate) mod maybe_bits_per_second {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use units::BitRate;

    pub(crate) fn serialize<S: Serializer>(
        rate: &Option<BitRate>,
        s: S,
    ) -> Result<S::Ok, S::Error> {
        rate.map(BitRate::bits_per_second).serialize(s)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        d: D,
    ) -> Result<Option<BitRate>, D::Error> {
        Ok(Option::<u64>::deserialize(d)?.map(BitRate::from_bits_per_second))
    }
}
