//! The tags `{% generation %}` and `{% endgeneration %}`. Templates mark with them what the assistant wrote, for
//! transformers, which renders the text between them as usual. The engine does not know them.

/// The source with these tags replaced by those of a condition that always holds.
pub fn as_condition(source: &str) -> String {
    let (mut made, mut copied, mut at) = (String::new(), 0, 0);
    while let Some(open) = source[at..].find('{').map(|found| at + found) {
        at = match source.as_bytes().get(open + 1) {
            Some(b'#') => source[open + 2..].find("#}").map_or(source.len(), |found| open + found + 4),
            Some(b'{') => end_of_tag(source, open + 2, b"}}"),
            Some(b'%') => end_of_tag(source, open + 2, b"%}"),
            _ => open + 1,
        };
        if source.as_bytes().get(open + 1) != Some(&b'%') {
            continue;
        }
        let (start, word) = word(source, open + 2, at);
        let condition = match word {
            "generation" => "if true",
            "endgeneration" => "endif",
            "raw" => {
                at = end_of_raw(source, at);
                continue;
            }
            _ => continue,
        };
        made.push_str(&source[copied..start]);
        made.push_str(condition);
        copied = start + word.len();
    }
    made + &source[copied..]
}

/// The end of a tag that `close` closes, and whose strings may contain `close`.
fn end_of_tag(source: &str, start: usize, close: &[u8; 2]) -> usize {
    let (bytes, mut at, mut quote) = (source.as_bytes(), start, None);
    while let Some(&byte) = bytes.get(at) {
        match quote {
            Some(_) if byte == b'\\' => at += 1,
            Some(open) if byte == open => quote = None,
            Some(_) => {}
            None if bytes[at..].starts_with(close) => return at + 2,
            None if byte == b'\'' || byte == b'"' => quote = Some(byte),
            None => {}
        }
        at += 1;
    }
    source.len()
}

/// The only word of a tag, without the signs that control whitespace, and where it is.
fn word(source: &str, start: usize, end: usize) -> (usize, &str) {
    let tag = source.get(start..end).and_then(|tag| tag.strip_suffix("%}")).unwrap_or_default();
    let signs = ['-', '+'];
    let inner = tag.strip_prefix(signs).unwrap_or(tag).trim_start();
    let word = inner.strip_suffix(signs).unwrap_or(inner).trim_end();
    (start + tag.len() - inner.len(), word)
}

/// The end of the closing tag of raw text, which begins at the end of its opening tag.
fn end_of_raw(source: &str, start: usize) -> usize {
    let mut at = start;
    while let Some(open) = source[at..].find("{%").map(|found| at + found + 2) {
        let end = source[open..].find("%}").map_or(source.len(), |found| open + found + 2);
        if word(source, open, end).1 == "endraw" {
            return end;
        }
        at = open;
    }
    source.len()
}

#[cfg(test)]
mod tests {
    use super::as_condition;

    #[test]
    fn only_tags_are_replaced() {
        for (source, replaced) in [
            ("a{% generation %}b{% endgeneration %}c", "a{% if true %}b{% endif %}c"),
            ("{%- generation -%}\n{%+endgeneration+%}", "{%- if true -%}\n{%+endif+%}"),
            ("{%generation%}é{%\n  endgeneration\n-%}", "{%if true%}é{%\n  endif\n-%}"),
        ] {
            assert_eq!(as_condition(source), replaced);
        }
        for same in [
            "generation {% if add_generation_prompt %}{% endif %}",
            "{{ '{% generation %}' }}{% set a = \"\\\"{% generation %}\" %}",
            "{# {% generation %} #}",
            "{% raw %}{% generation %}{% if %}{%- endraw -%}",
            "{% set generation = 1 %}{{ generation }}",
            "{% generation",
            "{% generation 'a %}",
            "{",
            "{%",
            "{%%}{%-%}{%-+%}",
            "{#",
            "{{ {'a': {}}} }}",
            "{% raw %}{% raw",
        ] {
            assert_eq!(as_condition(same), same);
        }
        let after = "{% raw %}{% generation %}{% endraw %}{{ '}}' }}{# ' #}{% generation %}";
        assert_eq!(as_condition(after), after.replace("# ' #}{% generation", "# ' #}{% if true"));
    }
}
