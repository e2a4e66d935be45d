//! The tags that structure a reply.

/// A tag that opens or closes a part of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tag {
    Think,
    ThinkEnd,
    Call,
    CallEnd,
    Key,
    KeyEnd,
    Value,
    ValueEnd,
}

impl Tag {
    pub(super) const ALL: [Self; 8] =
        [Self::Think, Self::ThinkEnd, Self::Call, Self::CallEnd, Self::Key, Self::KeyEnd, Self::Value, Self::ValueEnd];

    /// The text of the tag.
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Think => "<think>",
            Self::ThinkEnd => "</think>",
            Self::Call => "<tool_call>",
            Self::CallEnd => "</tool_call>",
            Self::Key => "<arg_key>",
            Self::KeyEnd => "</arg_key>",
            Self::Value => "<arg_value>",
            Self::ValueEnd => "</arg_value>",
        }
    }

    /// Whether the tag belongs to a call of a function.
    pub(super) fn is_of_call(self) -> bool {
        !matches!(self, Self::Think | Self::ThinkEnd)
    }
}

/// A part of a reply, as the parser sees it.
#[derive(Debug, Clone, Copy)]
pub(super) enum ReplyPart<'a> {
    /// Text in which no tag is recognized.
    Text(&'a str),
    Tag(Tag),
}

impl<'a> ReplyPart<'a> {
    /// The text of the part.
    pub(super) fn as_str(&self) -> &'a str {
        match self {
            Self::Text(text) => text,
            Self::Tag(tag) => tag.text(),
        }
    }
}

/// The first of `tags` in a text, and its position. No tag can begin inside another.
pub(super) fn first(text: &str, tags: &[Tag]) -> Option<(usize, Tag)> {
    tags.iter().filter_map(|&tag| Some((text.find(tag.text())?, tag))).min_by_key(|(place, _)| *place)
}

/// The number of bytes at the end of a text that may be the beginning of one of `tags`.
pub(super) fn begun(text: &str, tags: &[Tag]) -> usize {
    let begun = |tag: &Tag| (1..tag.text().len()).rev().find(|&len| text.ends_with(&tag.text()[..len]));
    tags.iter().filter_map(begun).max().unwrap_or(0)
}
