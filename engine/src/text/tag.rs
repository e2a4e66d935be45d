//! The tags that structure a reply. The [`Family`](super::Family) determines how they are written.

/// A tag that opens or closes a part of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tag {
    Think,
    ThinkEnd,
    /// Around all calls of a reply. These tags mean nothing by themselves.
    Section,
    SectionEnd,
    Call,
    CallEnd,
    Key,
    KeyEnd,
    Value,
    ValueEnd,
    /// Between the name of a function and its arguments.
    Arguments,
    /// Between a message and the next one, where calls are messages of their own.
    MessageEnd,
    /// Between the role of such a message and its text.
    RoleEnd,
}

impl Tag {
    /// Whether the tag belongs to a function call.
    pub(super) fn is_of_call(self) -> bool {
        !matches!(self, Self::Think | Self::ThinkEnd)
    }

    /// Whether the tag ends a call even within a string.
    pub(super) fn ends_call(self, in_thinking: bool) -> bool {
        match self {
            Self::CallEnd | Self::SectionEnd | Self::MessageEnd => true,
            Self::ThinkEnd => in_thinking,
            _ => false,
        }
    }
}

/// A part of a reply, as the parser sees it.
#[derive(Debug, Clone, Copy)]
pub(super) enum ReplyPart<'a> {
    /// Text in which no tag is recognized.
    Text(&'a str),
    /// A tag, and how it is written.
    Tag(Tag, &'static str),
}

impl<'a> ReplyPart<'a> {
    /// The text of the part.
    pub(super) fn as_str(&self) -> &'a str {
        match self {
            Self::Text(text) | Self::Tag(_, text) => text,
        }
    }
}

/// The first of `tags` in a text, and its position. No tag can begin inside another.
pub(super) fn first(text: &str, tags: &[(Tag, &'static str)]) -> Option<(usize, (Tag, &'static str))> {
    tags.iter().filter_map(|&tag| Some((text.find(tag.1)?, tag))).min_by_key(|(place, _)| *place)
}

/// The number of bytes at the end of a text that may be the beginning of one of `tags`.
pub(super) fn begun(text: &str, tags: &[(Tag, &'static str)]) -> usize {
    let begun =
        |(_, tag): &(Tag, &str)| (1..tag.len()).rev().find(|&len| text.as_bytes().ends_with(&tag.as_bytes()[..len]));
    tags.iter().filter_map(begun).max().unwrap_or(0)
}
