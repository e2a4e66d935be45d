//! Which keys and values of a template's input are fixed by its format, and not chosen by a user or a model.
//!
//! A template looks for them, as in `message.tool_calls` and `message.role == 'user'`, so nothing may be added to them.
//! They come from the lists below, so nobody can put a token's name there.

/// A place in the input of a template.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place<'a> {
    /// The value under this key of an object in a known form, or an item of a list there; "" under no known key.
    Known(&'a str),
    /// An object whose keys are given freely, and whose values are in a known form: the properties of a schema.
    Named,
    /// A value that is given freely as a whole: the arguments of a call, or an example.
    Free,
}

impl<'a> Place<'a> {
    /// Whether a key of an object at this place is fixed.
    pub(super) fn fixes_key(self, key: &str) -> bool {
        matches!(self, Self::Known(_)) && (MESSAGE_KEYS.contains(&key) || SCHEMA_KEYS.contains(&key))
    }

    /// Whether a string at this place is fixed.
    pub(super) fn fixes_value(self, text: &str) -> bool {
        match self {
            Self::Known("role") => ROLES.contains(&text),
            Self::Known("type") => TYPES.contains(&text),
            _ => false,
        }
    }

    /// The place under a key of an object at this place.
    pub(super) fn under(self, key: &'a str) -> Self {
        match (self, key) {
            (Self::Free, _) | (Self::Known(_), "arguments" | "const" | "default" | "enum" | "example" | "examples") => {
                Self::Free
            }
            (Self::Named, _) => Self::Known(""),
            (
                Self::Known(_),
                "$defs" | "definitions" | "dependencies" | "dependentRequired" | "dependentSchemas"
                | "patternProperties" | "properties",
            ) => Self::Named,
            (Self::Known(_), key) => Self::Known(key),
        }
    }
}

/// The speakers that templates distinguish.
const ROLES: [&str; 10] = [
    "assistant",
    "developer",
    "function",
    "ipython",
    "latest_reminder",
    "model",
    "observation",
    "system",
    "tool",
    "user",
];

/// The types of parts of a content, of tools and calls, and of JSON Schema.
const TYPES: [&str; 24] = [
    "array",
    "audio",
    "boolean",
    "custom",
    "document",
    "file",
    "function",
    "image",
    "image_url",
    "input_audio",
    "input_image",
    "input_text",
    "integer",
    "null",
    "number",
    "object",
    "output_text",
    "reasoning",
    "string",
    "text",
    "thinking",
    "tool_result",
    "tool_use",
    "video",
];

/// The keys of messages, of their parts and calls, of tools, and of documents.
const MESSAGE_KEYS: [&str; 41] = [
    "arguments",
    "audio",
    "content",
    "contents",
    "data",
    "description",
    "detail",
    "documents",
    "file",
    "function",
    "functions",
    "id",
    "image",
    "image_url",
    "index",
    "input",
    "input_audio",
    "name",
    "output",
    "parameters",
    "partial",
    "prefix",
    "reasoning",
    "reasoning_content",
    "refusal",
    "response",
    "result",
    "return",
    "returns",
    "role",
    "strict",
    "text",
    "thinking",
    "title",
    "tool_call_id",
    "tool_calls",
    "tool_name",
    "tools",
    "type",
    "url",
    "video",
];

/// The keywords of JSON Schema and of OpenAPI's dialect of it.
const SCHEMA_KEYS: [&str; 62] = [
    "$anchor",
    "$comment",
    "$defs",
    "$dynamicAnchor",
    "$dynamicRef",
    "$id",
    "$recursiveAnchor",
    "$recursiveRef",
    "$ref",
    "$schema",
    "additionalItems",
    "additionalProperties",
    "allOf",
    "anyOf",
    "const",
    "contains",
    "contentEncoding",
    "contentMediaType",
    "contentSchema",
    "default",
    "definitions",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "deprecated",
    "discriminator",
    "else",
    "enum",
    "example",
    "examples",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "format",
    "if",
    "items",
    "maxContains",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minContains",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "multipleOf",
    "not",
    "nullable",
    "oneOf",
    "optional",
    "pattern",
    "patternProperties",
    "prefixItems",
    "properties",
    "propertyNames",
    "readOnly",
    "required",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
    "uniqueItems",
    "writeOnly",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_form_is_fixed() {
        let message = Place::Known("").under("messages");
        assert!(message.fixes_key("tool_calls") && !message.fixes_key("mood") && !message.fixes_value("user"));
        assert!(message.under("role").fixes_value("user") && !message.under("role").fixes_value("EOS"));
        assert!(!message.under("content").fixes_value("user"));
        let function = message.under("tool_calls").under("function");
        assert!(function.fixes_key("arguments") && !function.under("name").fixes_value("user"));
        let arguments = function.under("arguments");
        assert!(!arguments.fixes_key("type") && !arguments.under("type").fixes_value("string"));
        let schema = function.under("parameters");
        assert!(schema.fixes_key("properties") && schema.under("type").fixes_value("object"));
        assert!(!schema.under("dependencies").fixes_key("type"));
        let properties = schema.under("properties");
        assert!(!properties.fixes_key("type") && properties.under("type").fixes_key("type"));
        assert!(!properties.under("type").fixes_value("string") && !schema.under("enum").fixes_value("string"));
    }

    #[test]
    fn the_lists_are_sorted() {
        assert!(ROLES.is_sorted() && TYPES.is_sorted() && MESSAGE_KEYS.is_sorted() && SCHEMA_KEYS.is_sorted());
    }
}
