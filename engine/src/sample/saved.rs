//! Serializes numbers so that all of them can be read back. JSON has no NaN and no infinities: serde_json writes null
//! for them, which does not read back as a number. Human-readable formats get them as text, binary formats as they are.
//!
//! Parameters that are not finite are refused when they are used, not when they are saved: a conversation whose
//! temperature is NaN can be saved, read, and corrected.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A number in a human-readable format.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(untagged, expecting = "expected a number")]
enum Kept {
    Finite(f32),
    Other(Other),
    /// What older versions wrote for every [`Other`].
    Null(()),
}

/// A number that is not finite.
#[derive(Clone, Copy, Serialize, Deserialize)]
enum Other {
    #[serde(rename = "NaN")]
    Nan,
    #[serde(rename = "inf")]
    Infinity,
    #[serde(rename = "-inf")]
    NegativeInfinity,
}

impl From<f32> for Kept {
    fn from(number: f32) -> Self {
        match number {
            f32::INFINITY => Self::Other(Other::Infinity),
            f32::NEG_INFINITY => Self::Other(Other::NegativeInfinity),
            number if number.is_nan() => Self::Other(Other::Nan),
            number => Self::Finite(number),
        }
    }
}

impl Kept {
    /// The number; a null stands for `null`.
    fn number(self, null: f32) -> f32 {
        match self {
            Self::Finite(number) => number,
            Self::Other(Other::Nan) => f32::NAN,
            Self::Other(Other::Infinity) => f32::INFINITY,
            Self::Other(Other::NegativeInfinity) => f32::NEG_INFINITY,
            Self::Null(()) => null,
        }
    }
}

/// For a number.
pub mod number {
    use super::{Deserialize, Deserializer, Kept, Serialize, Serializer};

    pub fn serialize<S: Serializer>(number: &f32, to: S) -> Result<S::Ok, S::Error> {
        if to.is_human_readable() { Kept::from(*number).serialize(to) } else { number.serialize(to) }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<f32, D::Error> {
        match from.is_human_readable() {
            true => Kept::deserialize(from).map(|kept| kept.number(f32::NAN)),
            false => f32::deserialize(from),
        }
    }
}

/// For logarithms of probabilities. Minus infinity, that of none, is written as null.
pub mod logarithm {
    use super::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<S: Serializer>(number: &f32, to: S) -> Result<S::Ok, S::Error> {
        number.serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<f32, D::Error> {
        match from.is_human_readable() {
            true => Ok(Option::deserialize(from)?.unwrap_or(f32::NEG_INFINITY)),
            false => f32::deserialize(from),
        }
    }
}

/// For logit biases, among which minus infinity is normal: it bans a token, and is written as null.
pub mod biases {
    use super::{Deserialize, Deserializer, Kept, Serialize, Serializer};

    pub fn serialize<S: Serializer>(biases: &[(u32, f32)], to: S) -> Result<S::Ok, S::Error> {
        if !to.is_human_readable() {
            return biases.serialize(to);
        }
        let kept = |&(token, bias): &(u32, f32)| match bias {
            f32::NEG_INFINITY => (token, Kept::Null(())),
            bias => (token, Kept::from(bias)),
        };
        biases.iter().map(kept).collect::<Vec<_>>().serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<(u32, f32)>, D::Error> {
        if !from.is_human_readable() {
            return Vec::deserialize(from);
        }
        let kept = Vec::<(u32, Kept)>::deserialize(from)?;
        Ok(kept.into_iter().map(|(token, bias)| (token, bias.number(f32::NEG_INFINITY))).collect())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use crate::sample::Logprob;

    #[test]
    fn a_probability_of_zero_is_saved() {
        for logprob in [-0.5, f32::NEG_INFINITY] {
            let saved = serde_json::to_string(&Logprob { token: 7, logprob }).unwrap();
            assert_eq!(serde_json::from_str::<Logprob>(&saved).unwrap(), Logprob { token: 7, logprob }, "{saved}");
        }
    }
}
