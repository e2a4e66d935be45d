//! What happens to a conversation that outgrows its context.

use serde::{Deserialize, Serialize};

/// What happens when a conversation outgrows its context. Serialized as `"refuse"` or `{"drop_oldest": {"reserve":
/// 512}}`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Overflow {
    /// The reply is refused with [`Error::ContextFull`](crate::Error::ContextFull).
    #[default]
    Refuse,
    /// The oldest turns are dropped, each as a whole, as [`Chat::fit`](crate::Chat::fit) does: system messages, the
    /// descriptions of functions and the newest turn stay. The first event is then
    /// [`Event::Dropped`](crate::Event::Dropped). More are dropped than necessary, about a quarter of the context at a
    /// time, so that the next turns find the rest in the cache. If the newest turn alone leaves less than the reserve,
    /// the reply gets what it leaves; if it leaves nothing, the reply is refused.
    DropOldest {
        /// The tokens of the context that are kept free for the reply; `None` for a quarter of the context, or for
        /// [`max_tokens`](crate::GenerateOptions::max_tokens) if that is less.
        #[serde(default)]
        reserve: Option<usize>,
    },
}

impl Overflow {
    /// Drops the oldest turns.
    pub const DROP_OLDEST: Self = Self::DropOldest { reserve: None };
}
