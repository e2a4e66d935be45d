//! Serializes logit biases. JSON has no minus infinity, so a ban is written as null.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub fn serialize<S: Serializer>(bias: &[(u32, f32)], to: S) -> Result<S::Ok, S::Error> {
    let kept = |&(token, bias): &(u32, f32)| (token, Some(bias).filter(|bias| bias.is_finite()));
    bias.iter().map(kept).collect::<Vec<_>>().serialize(to)
}

pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<(u32, f32)>, D::Error> {
    let kept = Vec::<(u32, Option<f32>)>::deserialize(from)?;
    Ok(kept.into_iter().map(|(token, bias)| (token, bias.unwrap_or(f32::NEG_INFINITY))).collect())
}
