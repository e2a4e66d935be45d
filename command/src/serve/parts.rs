//! The parts of messages as text, for all interfaces: texts, documents and text files, and the sentence that replaces a
//! picture.

use super::body::is_sign;
use super::failure::{Failure, shown};
use super::fields::{at_most, at_most_in};
use super::unmet::Warnings;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

/// The maximum number of parts in a message, and of calls.
const PARTS: usize = 1024;

/// The maximum number of characters in all files of a request that are marked as not being part of a tag. While the
/// files are still encoded in base64, the memory for these marks cannot be counted with the body.
const SIGNS: usize = 64 << 10;

/// What the model reads in place of a picture.
const PICTURE: &str = "[An image was here; this model cannot see it.]";

/// Refuses a message with too many parts or calls.
pub fn check_parts(field: &str, what: &str, count: usize) -> Result<(), Failure> {
    at_most(field, count, PARTS, what)
}

pub fn not_text(kind: &str) -> Failure {
    Failure::unsupported(format!("a part of type {}: this model reads text only", shown(kind)))
}

/// Warns about the fields of parts that are not among the `known` ones. `place` says where the parts are. The model
/// gets a `tool_reference` unchanged, so all of its fields are read.
pub fn warn_of_parts(place: &str, parts: &[Value], known: &[&str], to: &mut Warnings) {
    for part in parts.iter().filter(|part| part["type"] != "tool_reference").filter_map(Value::as_object) {
        to.ignored_in(place, part.iter().filter(|(name, _)| !known.contains(&name.as_str())));
    }
}

/// Reads the parts of a request's messages. The fields of failures are relative to the message.
pub struct Parts {
    /// The last message of the user. Its pictures are what the model is asked about, so they are refused; those of
    /// other messages, and those that functions return, are only part of the history.
    last: Option<usize>,
    /// The number of characters in files that were marked so far.
    signs: usize,
}

impl Parts {
    /// A reader for messages, given the index of the user's last message.
    pub fn new(last: Option<usize>) -> Self {
        Self { last, signs: 0 }
    }

    /// The text of a message's content: text, a list of parts, or anything else as JSON.
    pub fn content(&mut self, message: usize, content: Option<&Value>) -> Result<String, Failure> {
        self.joined("content", self.last == Some(message), content)
    }

    /// The same for the result of a function, in this field. It may be in a message of the user.
    pub fn result(&mut self, field: &str, content: Option<&Value>) -> Result<String, Failure> {
        self.joined(field, false, content)
    }

    /// The text of one part of a message.
    pub fn part(&mut self, message: usize, part: &Value) -> Result<String, Failure> {
        self.text(self.last == Some(message), part)
    }

    fn joined(&mut self, field: &str, is_last: bool, content: Option<&Value>) -> Result<String, Failure> {
        let parts = match content {
            None | Some(Value::Null) => return Ok(String::new()),
            Some(Value::String(text)) => return Ok(text.clone()),
            Some(Value::Array(parts)) => parts,
            Some(other) => return Ok(other.to_string()),
        };
        check_parts(field, "parts", parts.len())?;
        let text =
            |(index, part)| self.text(is_last, part).map_err(|failure| failure.within(&format!("{field}[{index}]")));
        Ok(parts.iter().enumerate().map(text).collect::<Result<Vec<_>, _>>()?.join("\n"))
    }

    fn text(&mut self, is_last: bool, part: &Value) -> Result<String, Failure> {
        let field = |name: &str| part.get(name).and_then(Value::as_str);
        if let Some(text) = part.as_str().or_else(|| field("text")).or_else(|| field("refusal")) {
            return Ok(text.to_owned());
        }
        match field("type").unwrap_or("unknown") {
            // The name of a tool that a search found: the client sends its description as a function.
            "tool_reference" => Ok(part.to_string()),
            "image" | "image_url" | "input_image" | "computer_screenshot" if !is_last => Ok(PICTURE.into()),
            "document" => {
                let text = self.source(is_last, &part["source"]).map_err(|failure| failure.within("source"))?;
                Ok(tagged("document", &[("title", field("title")), ("context", field("context"))], &text))
            }
            "search_result" => {
                let text = self.joined("content", is_last, part.get("content"))?;
                Ok(tagged("search_result", &[("source", field("source")), ("title", field("title"))], &text))
            }
            "file" | "input_file" => {
                let file = part.get("file").unwrap_or(part);
                let text = self.file(file)?;
                Ok(tagged("document", &[("title", file["filename"].as_str())], &text))
            }
            kind @ ("text" | "input_text" | "output_text" | "refusal" | "unknown") => {
                Err(Failure::invalid(format!("a part of type {kind}: expected text")))
            }
            other => Err(not_text(other)),
        }
    }

    /// The text of a document.
    fn source(&mut self, is_last: bool, source: &Value) -> Result<String, Failure> {
        match (source["type"].as_str().unwrap_or("unknown"), source["data"].as_str()) {
            ("text", Some(text)) => Ok(text.to_owned()),
            ("content", _) => self.joined("content", is_last, source.get("content")),
            (kind, _) => {
                let of = match source["media_type"].as_str() {
                    Some(found) => format!("of type {}: this model reads text only", shown(found)),
                    None => format!("with a source of type {}: expected text with data, or content", shown(kind)),
                };
                let remedy = "send its text in a source of type text";
                Err(Failure::unsupported(format!("a document {of}; {remedy}")))
            }
        }
    }

    /// The text of a file, which comes as a data URL.
    fn file(&mut self, file: &Value) -> Result<String, Failure> {
        let place = "a file";
        let data = file["file_data"].as_str().ok_or_else(|| {
            let remedy = "send the file's text as a data URL in file_data";
            Failure::unsupported(format!("{place}: file IDs and URLs cannot be read; {remedy}"))
        })?;
        let form = "data:text/plain;base64,…";
        let (kind, data) = data.strip_prefix("data:").and_then(|url| url.split_once(";base64,")).ok_or_else(|| {
            Failure::invalid(format!("{place}: file_data is not a data URL in base64; send text as {form}"))
        })?;
        if !is_text(kind) {
            let wrong = format!("of type {}: only text can be read", shown(kind));
            return Err(Failure::unsupported(format!("{place} {wrong}; send it as {form}")));
        }
        let text = STANDARD.decode(data).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        let text = text.ok_or_else(|| Failure::invalid(format!("{place}: file_data is not UTF-8 text in base64")))?;
        self.signs += text.bytes().filter(|byte| is_sign(*byte)).count();
        at_most_in(place, self.signs, SIGNS, "characters <, >, [, ] and U+F000 to U+FFFF in all files together")?;
        Ok(text)
    }
}

/// Whether a media type, which may have parameters, is one of text.
fn is_text(kind: &str) -> bool {
    let kind = kind.split(';').next().unwrap_or_default();
    let own = ["javascript", "json", "toml", "x-ndjson", "x-yaml", "xml", "yaml"];
    kind.starts_with("text/")
        || ["+json", "+xml"].iter().any(|end| kind.ends_with(end))
        || kind.strip_prefix("application/").is_some_and(|name| own.contains(&name))
}

/// A text between tags, with what is known about it.
fn tagged(tag: &str, fields: &[(&str, Option<&str>)], text: &str) -> String {
    let field = |(name, value): &(&str, Option<&str>)| {
        value.filter(|value| !value.is_empty()).map(|value| format!("<{name}>{value}</{name}>\n"))
    };
    let fields: String = fields.iter().filter_map(field).collect();
    format!("<{tag}>\n{fields}{text}\n</{tag}>")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{PICTURE, Parts, STANDARD};
    use base64::Engine as _;
    use serde_json::{Value, json};

    fn read(part: Value) -> Result<String, String> {
        Parts::new(Some(1)).part(1, &part).map_err(|failure| failure.message)
    }

    fn file(kind: &str, text: &str) -> Value {
        json!({"type": "input_file", "filename": "a.txt",
            "file_data": format!("data:{kind};base64,{}", STANDARD.encode(text))})
    }

    #[test]
    fn documents_are_text_with_their_titles() {
        let source = json!({"type": "text", "media_type": "text/plain", "data": "Ants have six legs."});
        let document = json!({"type": "document", "source": source, "title": "Ants", "context": "biology"});
        let wanted = "<document>\n<title>Ants</title>\n<context>biology</context>\nAnts have six legs.\n</document>";
        assert_eq!(read(document).unwrap(), wanted);
        let content =
            json!({"type": "content", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]});
        let untitled = json!({"type": "document", "source": content, "title": null});
        assert_eq!(read(untitled).unwrap(), "<document>\na\nb\n</document>");
        let found = json!({"type": "search_result", "source": "http://a", "title": "A", "content": [{"text": "b"}]});
        let wanted = "<search_result>\n<source>http://a</source>\n<title>A</title>\nb\n</search_result>";
        assert_eq!(read(found).unwrap(), wanted);
    }

    #[test]
    fn files_of_text_are_documents() {
        let wanted = "<document>\n<title>a.txt</title>\né\n</document>";
        assert_eq!(read(file("text/plain", "é")).unwrap(), wanted);
        for kind in ["text/markdown;charset=utf-8", "application/json", "application/ld+json", "application/yaml"] {
            assert_eq!(read(file(kind, "é")).unwrap(), wanted, "{kind}");
        }
        assert_eq!(read(json!({"type": "file", "file": file("text/plain", "é")})).unwrap(), wanted);
    }

    #[test]
    fn other_documents_and_files_are_refused_by_name() {
        let document = |source: Value| json!({"type": "document", "source": source});
        for (part, reason) in [
            (document(json!({"type": "base64", "media_type": "application/pdf", "data": "eA=="})), "application/pdf"),
            (
                document(json!({"type": "url", "url": "http://a"})),
                "source of type url: expected text with data, or content",
            ),
            (document(json!({"type": "file", "file_id": "f"})), "type file"),
            (document(json!(3)), "type unknown"),
            (file("application/pdf", "x"), "a file of type application/pdf: only text can be read"),
            (file("application/octet-stream;x=y", "x"), "of type application/octet-stream;x=y: "),
            (json!({"type": "file", "file": {"file_id": "f"}}), "file IDs and URLs cannot be read"),
            (json!({"type": "input_file", "file_data": "eA=="}), "file_data is not a data URL"),
            (json!({"type": "input_file", "file_data": "data:text/plain,x"}), "file_data is not a data URL"),
            (json!({"type": "input_file", "file_data": "data:text/plain;base64,€"}), "not UTF-8 text"),
            (file("text/plain", &"<".repeat((64 << 10) + 1)), "at most 65536"),
            (json!({"type": "input_audio"}), "reads text only"),
            (json!({"type": "text"}), "expected text"),
        ] {
            let failure = read(part).unwrap_err();
            assert!(failure.contains(reason), "{failure}");
        }
    }

    #[test]
    fn a_picture_is_refused_only_where_the_user_asks_about_it() {
        let picture = json!([{"type": "image_url", "image_url": {"url": "data:"}}]);
        let mut parts = Parts::new(Some(2));
        assert_eq!(parts.content(1, Some(&picture)).unwrap(), PICTURE);
        assert_eq!(parts.result("content", Some(&picture)).unwrap(), PICTURE);
        let failure = parts.content(2, Some(&picture)).unwrap_err();
        assert_eq!((failure.message.contains("image_url"), failure.param.as_deref()), (true, Some("content[0]")));
    }
}
