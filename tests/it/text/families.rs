//! Tests the families of templates: which one a template belongs to, and calls in the form of each, in any pieces.

use super::calls::value;
use super::cuts::{cut, every_way, places};
use super::tokenizer::tiny;
use proptest::prelude::*;
use serde_json::{Map, Value, json};
use wglm::text::{
    ChatInput, ChatTemplate, Family, Message, ReplyParser, ReplyPiece, TokenType, Tokenizer, ToolCall, Vocab,
};

/// Small templates with the tags of published ones.
const TEMPLATES: [(&str, &str); 8] = [
    (
        "glm",
        "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% for c in m.tool_calls or [] %}<tool_call>\
         {{ c.function.name }}{% for k, v in c.function.arguments.items() %}<arg_key>{{ k }}</arg_key><arg_value>\
         {{ v if v is string else v | tojson }}</arg_value>{% endfor %}</tool_call>{% endfor %}{% endfor %}\
         {% if add_generation_prompt %}<|assistant|><think>{% endif %}",
    ),
    (
        "hermes",
        "{{ bos_token }}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}{% for c in m.tool_calls or [] %}\n\
         <tool_call>\n{\"name\": \"{{ c.function.name }}\", \"arguments\": {{ c.function.arguments | tojson }}}\n\
         </tool_call>{% endfor %}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n\
         {% endif %}",
    ),
    (
        "gigachat",
        "{{ bos_token }}{% for m in messages %}{{ m.role }}<|role_sep|>\n{{ m.content }}{% if m.tool_calls %}\
         <|function_call|>{% set f = m.tool_calls[0].function %}{\"name\": \"{{ f.name }}\", \"arguments\": \
         {{ f.arguments | tojson(ensure_ascii=False) }}}{% endif %}<|message_sep|>\n\n{% endfor %}\
         {% if add_generation_prompt %}assistant<|role_sep|>\n{% endif %}",
    ),
    (
        "gigachat-3.0",
        "{{ bos_token }}{% for m in messages %}{{ m.role }}<|role_sep|>\n{{ m.content }}<|message_sep|>\n\n\
         {% if m.tool_calls %}{% set f = m.tool_calls[0].function %}function call<|role_sep|>\n{\"name\": \"{{ f.name }}\", \
         \"arguments\": {{ f.arguments | tojson(ensure_ascii=False) }}}<|message_sep|>\n\n{% endif %}{% endfor %}\
         {% if add_generation_prompt %}assistant<|role_sep|>\n{% endif %}",
    ),
    (
        "kimi",
        "{% for m in messages %}<|im_{{ m.role }}|>{{ m.role }}<|im_middle|>{{ m.content }}{% if m.tool_calls %}\
         <|tool_calls_section_begin|>{% for c in m.tool_calls %}<|tool_call_begin|>functions.{{ c.function.name }}:\
         {{ loop.index0 }}<|tool_call_argument_begin|>{{ c.function.arguments | tojson }}<|tool_call_end|>{% endfor %}\
         <|tool_calls_section_end|>{% endif %}<|im_end|>{% endfor %}\
         {% if add_generation_prompt %}<|im_assistant|>assistant<|im_middle|>{% endif %}",
    ),
    (
        "deepseek",
        "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}{{ 'User: ' + m.content + '\n\n' }}\
         {% elif m.role == 'assistant' %}{{ 'Assistant: ' + m.content + eos_token }}{% endif %}{% endfor %}\
         {% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}",
    ),
    (
        "deepseek-v3.1",
        "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}{{ '<｜User｜>' + m.content }}\
         {% elif m.tool_calls is defined %}{{ m.content + '<｜tool▁calls▁begin｜>' }}{% for c in m.tool_calls %}\
         {{ '<｜tool▁call▁begin｜>' + c.function.name + '<｜tool▁sep｜>' + c.function.arguments + '<｜tool▁call▁end｜>' }}\
         {% endfor %}{{ '<｜tool▁calls▁end｜><｜end▁of▁sentence｜>' }}{% endif %}{% endfor %}\
         {% if add_generation_prompt %}{{ '<｜Assistant｜></think>' }}{% endif %}",
    ),
    ("glm", "{% for m in messages %}{{ m.content }}{% endfor %}"),
];

/// Lines of published templates that show how their models call functions, and the family of each; the last ones have
/// none.
const PUBLISHED: [(&str, &[&str], Option<&str>); 8] = [
    ("GLM-4.7-Flash", &["<tool_call>{function-name}<arg_key>{arg-key-1}</arg_key>"], Some("glm")),
    ("Qwen3-0.6B", &[r#"{{- '<tool_call>\n{"name": "' }}"#], Some("hermes")),
    (
        "GigaChat3.1",
        &[
            r#"role_sep="<|role_sep|>\n", "#,
            r#"message_sep="<|message_sep|>\n\n","#,
            r#"function_call="<|function_call|>""#,
        ],
        Some("gigachat"),
    ),
    (
        "GigaChat3",
        &[r#"role_sep="<|role_sep|>\n", "#, r#"message_sep="<|message_sep|>\n\n""#, "'role': 'function call',"],
        Some("gigachat-3.0"),
    ),
    (
        "Kimi-K2-Instruct",
        &["<|im_assistant|>{{role_name}}<|im_middle|>", "{{render_content(message)}}<|tool_calls_section_begin|>"],
        Some("kimi"),
    ),
    (
        "DeepSeek-V3.1",
        &["{{'<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>'+ tool['function']['name'] + '<｜tool▁sep｜>'"],
        Some("deepseek-v3.1"),
    ),
    (
        "DeepSeek-R1",
        &[
            "{{'<｜Assistant｜><｜tool▁calls▁begin｜><｜tool▁call▁begin｜>' + tool['type'] + '<｜tool▁sep｜>'",
            r"+ tool['function']['name'] + '\n' + '```json' + '\n'",
        ],
        None,
    ),
    ("Qwen3-Coder", &[r"{{- '\n<tool_call>\n<function=' + tool_call.name + '>\n' }}"], None),
];

fn template(name: &str) -> ChatTemplate {
    let (_, source) = TEMPLATES.iter().find(|(known, _)| *known == name).unwrap();
    ChatTemplate::new(source).unwrap()
}

#[test]
fn a_template_determines_its_family() {
    for (name, source) in TEMPLATES {
        assert_eq!(Family::of(source).name, name, "{source}");
    }
}

#[test]
fn published_templates_have_their_families() {
    for (model, lines, family) in PUBLISHED {
        let lines = lines.join("\n");
        assert_eq!(Family::known(&lines).map(|family| family.name), family, "{model}");
        assert_eq!(Family::of(&lines).name, family.unwrap_or("glm"), "{model}");
    }
}

fn tools() -> Vec<Value> {
    let function =
        json!({"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}});
    vec![json!({"type": "function", "function": function})]
}

fn parser(family: &str) -> ReplyParser {
    ReplyParser::new(false).with_family(template(family).family()).with_tools(&tools())
}

/// The reply as thinking, text, calls, and calls that failed, each with its kind. The pieces of a call have to add up
/// to its arguments, and those of a call that failed to the beginning of JSON.
fn parse<S: AsRef<str>>(family: &str, chunks: &[S]) -> Vec<(char, String)> {
    let mut parser = parser(family);
    let mut pieces: Vec<_> = chunks.iter().flat_map(|chunk| parser.push(chunk.as_ref())).collect();
    pieces.extend(parser.finish());
    let mut parts: Vec<(char, String)> = Vec::new();
    let mut begun: Option<(String, String)> = None;
    for piece in pieces {
        let part = match piece {
            ReplyPiece::Text(text) => ('t', text),
            ReplyPiece::Thinking(text) => ('?', text),
            ReplyPiece::ToolCallStart { id, name } => {
                assert_eq!(id.is_some(), family == "kimi");
                assert!(begun.replace((name, String::new())).is_none());
                continue;
            }
            ReplyPiece::ToolCallPiece(piece) => {
                begun.as_mut().expect("a call that began").1 += &piece;
                continue;
            }
            ReplyPiece::ToolCall(ToolCall { id, function, .. }) => {
                let (name, json) = begun.take().expect("a call that began");
                let read: Value = serde_json::from_str(&json).unwrap();
                assert_eq!((name, &read), (function.name.clone(), &function.arguments));
                ('c', json!([function.name, function.arguments, id]).to_string())
            }
            ReplyPiece::ToolCallFailed { text, cut } => {
                let (name, json) = begun.take().unwrap_or_default();
                let error = serde_json::from_str::<Value>(&json).unwrap_err();
                // A number may be out of the range of those that are read here.
                let is_begun = error.is_eof() || error.to_string().contains("out of range");
                assert!(text.contains(&name) && is_begun, "{text}: {name}, {json}: {error}");
                (if cut { '-' } else { '!' }, text)
            }
            other => panic!("{other:?}"),
        };
        match parts.last_mut() {
            Some(last) if last.0 == part.0 && "t?".contains(part.0) => last.1 += &part.1,
            _ => parts.push(part),
        }
    }
    parts
}

/// The result does not depend on how the reply is cut into pieces.
fn check(family: &str, reply: &str, want: &[(char, &str)]) {
    let want: Vec<_> = want.iter().map(|(kind, text)| (*kind, (*text).to_owned())).collect();
    every_way(reply).for_each(|chunks| assert_eq!(parse(family, &chunks), want, "{family}: {chunks:?}"));
}

#[test]
fn extended_objects_between_tags() {
    let rome = r#"["weather",{"city":"Rome"},null]"#;
    let call = "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Rome\"}}\n</tool_call>";
    check("hermes", call, &[('c', rome)]);
    check(
        "hermes",
        &format!("<think>So.</think>\n\nI look.\n{call}\n{call}"),
        &[('?', "So."), ('t', "I look."), ('c', rome), ('c', rome)],
    );
    check("hermes", &format!("{call}\nDone."), &[('c', rome), ('t', "Done.")]);
    // Other forms that models write: other orders and names, JSON within JSON, only a name, no closing tag.
    check("hermes", r#"<tool_call>{"arguments":{"city":"Rome"},"name":"weather"}</tool_call>"#, &[('c', rome)]);
    check("hermes", r#"<tool_call>{"name":"weather","arguments":{"city":"Rome"}}"#, &[('c', rome)]);
    let late = r#"<tool_call>{"arguments":{"city":"Rome"},"name":"weather"}"#;
    check("hermes", late, &[('c', rome)]);
    check("hermes", &format!("{late}<tool_call>{{"), &[('c', rome), ('t', "<tool_call>{")]);
    check("hermes", r#"<tool_call>{"name":"weather","parameters":{"city":"Rome"}}</tool_call>"#, &[('c', rome)]);
    check("hermes", r#"<tool_call>{"name":"weather","arguments":"{\"city\":\"Rome\"}"}</tool_call>"#, &[('c', rome)]);
    check("hermes", r#"<tool_call>{"name":"weather"}</tool_call>"#, &[('c', r#"["weather",{},null]"#)]);
    let open = call.strip_suffix("\n</tool_call>").unwrap();
    check("hermes", open, &[('c', rome)]);
    check("hermes", &format!("{open}{call}"), &[('c', rome), ('c', rome)]);
    // Faults that leave no doubt: line ends and tabs in strings, and blanks anywhere else.
    let line = "<tool_call>{ \"name\" :\"weather\",\n\"arguments\": {\"city\": \"a\n\\\n\tb\\\\\" , \"n\":[ 1 ,2 ] }\t}</tool_call>";
    check("hermes", line, &[('c', &json!(["weather", {"city": "a\n\n\tb\\", "n": [1, 2]}, null]).to_string())]);
    let two = r#"<tool_call>{"name":"weather","arguments":{"n":1 2}}</tool_call>"#;
    check("hermes", two, &[('!', two)]);
    // The first name and the first arguments count.
    let nested = r#"{"x":{"name":"y","arguments":{"z":1}},"l":[",","name"],"parameters":{"city":"Rome"},"arguments":{},"name":"weather","name":"y"}"#;
    check("hermes", &format!("<tool_call>{nested}</tool_call>"), &[('c', rome)]);
    check(
        "hermes",
        r#"<tool_call>{"arguments":null,"name":"weather"}</tool_call>"#,
        &[('c', r#"["weather",{},null]"#)],
    );
    // A string may contain braces and tags.
    let text = r#"<tool_call>{"name":"weather","arguments":{"city":"} \"</tool_call> {"}}</tool_call>"#;
    check("hermes", text, &[('c', r#"["weather",{"city":"} \"</tool_call> {"},null]"#)]);
}

#[test]
fn objects_that_fail() {
    for bad in [
        r#"<tool_call>{"name":"weather","arguments":{"city":}}</tool_call>"#,
        r#"<tool_call>{"name":"weather","arguments":{}} and</tool_call>"#,
        r#"<tool_call>{"name":"weather","arguments":[1]}</tool_call>"#,
        r#"<tool_call>{"name":"weather","arguments":{}</tool_call>"#,
        r#"<tool_call>{"name":"weather","arguments":{'city':'Rome'}}</tool_call>"#,
        r#"<tool_call>{"name":"weather","arguments":{"city":"Rome","now":True}}</tool_call>"#,
        r#"<tool_call>{"name":"weather","arguments":{"city":"Rome","now":tru}}</tool_call>"#,
        r#"<tool_call>{"name":"weather","arguments":{"city":"\ud83d"}}</tool_call>"#,
        r#"<tool_call>{"name":"weather","arguments":{"city":"Rome","n":1e999}}</tool_call>"#,
        r#"<tool_call>{"arguments":{"city":"Rome" "n":1},"name":"weather"}</tool_call>"#,
    ] {
        check("hermes", &format!("a {bad} b"), &[('t', "a"), ('!', bad), ('t', "  b")]);
    }
    let cut = r#"<tool_call>{"name":"weather","arguments":{"city":"Ro"#;
    check("hermes", cut, &[('-', cut)]);
    for text in [
        "<tool_call>weather</tool_call>",
        "<tool_call>[1]</tool_call>x",
        "<tool_call>{}</tool_call>",
        "<tool_call>{\"na",
    ] {
        check("hermes", text, &[('t', text)]);
    }
    // Without functions a tag is text.
    let mut parser = ReplyParser::new(false).with_family(template("hermes").family());
    assert_eq!(parser.push("<tool_call>{}"), [ReplyPiece::Text("<tool_call>{}".into())]);
}

/// The token that closes a call may stand in a string, or the string may lack its end. Once that turns out, what
/// followed is read again, whether the name of the function was read before or not.
#[test]
fn a_call_after_a_string_without_an_end_is_found() {
    let (good, rome) = (r#"{"name":"weather","arguments":{"city":"Rome"}}"#, json!({"city": "Rome"}));
    let close = "</tool_call>";
    let tokenizer = Tokenizer::new(tiny(&[(close, TokenType::UserDefined)], &[])).unwrap();
    let token = tokenizer.special(close).unwrap();
    for bad in [r#"{"arguments":{"city":"Ro}}"#, r#"{"name":"weather","arguments":{"city":"Ro}}"#] {
        let mut parser = parser("hermes").with_tokenizer(&tokenizer);
        let first = [parser.push(&format!("<tool_call>{bad}")), parser.push_tag(token)];
        let second = [parser.push(&format!("<tool_call>{good}")), parser.push_tag(token), parser.finish()];
        let pieces = [first.concat(), second.concat()].concat();
        let calls: Vec<_> = pieces.iter().filter(|piece| matches!(piece, ReplyPiece::ToolCall(_))).collect();
        let weather = ToolCall::new("weather", rome.as_object().cloned().unwrap());
        assert_eq!(calls, [&ReplyPiece::ToolCall(weather)], "{bad}: {pieces:?}");
    }
}

/// The beginning of a reply is encoded as the family writes it, and everything after it is the answer.
#[test]
fn a_reply_that_has_begun() {
    let tags = ["<think>", "</think>", "<|user|>"].map(|name| (name, TokenType::Control));
    let tokenizer = Tokenizer::new(tiny(&tags, &[])).unwrap();
    let begun = Message::assistant("No <|user|></think>").with_reasoning("why");
    for (family, thought, lead) in [
        ("glm", "why</think>", ""),
        ("hermes", "why</think>", ""),
        ("kimi", "", ""),
        ("gigachat", "", ""),
        ("gigachat-3.0", "", ""),
        ("deepseek", "", " "),
        ("deepseek-v3.1", "", ""),
    ] {
        let messages = [Message::user("Is it?")];
        let prompt = template(family).prompt(&ChatInput::new(&messages), &tokenizer).unwrap();
        let parser = ReplyParser::new(prompt.opens_thinking).with_family(prompt.family).with_tools(&tools());
        let tokens = parser.beginning(&begun, &tokenizer).unwrap();
        assert_eq!(tokenizer.decode(&tokens, true).unwrap(), format!("{thought}{lead}No <|user|></think>"), "{family}");
        let control = tokens.iter().filter(|token| tokenizer.is_reserved(**token)).count();
        assert_eq!(control, usize::from(prompt.opens_thinking), "{family}: only the end of thinking is a tag");
        let mut rest = parser.in_answer();
        let mut pieces = rest.push("  and <think>no</think>");
        pieces.extend(rest.finish());
        let text = |piece| if let ReplyPiece::Text(text) = piece { text } else { panic!("{piece:?}") };
        assert_eq!(pieces.into_iter().map(text).collect::<String>(), "  and <think>no</think>", "{family}");
    }
}

#[test]
fn an_object_without_a_closing_tag() {
    let call = r#"<|function_call|>{"name": "weather", "arguments": {"city": "Ро{м"}}"#;
    let rome = r#"["weather",{"city":"Ро{м"},null]"#;
    check("gigachat", call, &[('c', rome)]);
    check("gigachat", &format!("Смотрю.{call}"), &[('t', "Смотрю."), ('c', rome)]);
    check("gigachat", &format!("{call} и всё"), &[('c', rome), ('t', "и всё")]);
    check("gigachat", "<think>no tag here</think>", &[('t', "<think>no tag here</think>")]);
    let cut = r#"<|function_call|>{"name": "weather", "arguments": {"#;
    check("gigachat", cut, &[('-', cut)]);
    let wrong = r#"<|function_call|>{"name": "weather", "arguments": 5}"#;
    check("gigachat", wrong, &[('!', wrong)]);
    // The braces of a malformed call still show its end.
    let wrong = r#"<|function_call|>{"name": "weather", "arguments": {"city": "}", "now": True}}"#;
    check("gigachat", &format!("{wrong} Done."), &[('!', wrong), ('t', "Done.")]);
    let deep = format!(
        "<|function_call|>{{\"name\":\"weather\",\"arguments\":{{\"a\":{}{}}}}}",
        "[".repeat(130),
        "]".repeat(130)
    );
    assert_eq!(parse("gigachat", &[&deep]), [('!', deep)]);
}

/// A call is a separate message after the answer's. Any other role means that the reply has ended.
#[test]
fn a_message_that_is_a_call() {
    let call = "<|message_sep|>\n\nfunction call<|role_sep|>\n\
                {\"name\": \"weather\", \"arguments\": {\"city\": \"Rome\"}}";
    let rome = r#"["weather",{"city":"Rome"},null]"#;
    let family = "gigachat-3.0";
    check(family, call, &[('c', rome)]);
    check(family, &format!("I look. {call}"), &[('t', "I look."), ('c', rome)]);
    check(family, &format!("I look.{call}<|message_sep|>\n\n"), &[('t', "I look."), ('c', rome)]);
    check(family, &format!("{call}\n<|message_sep|>\n\nfunction result<|role_sep|>\nrain"), &[('c', rome)]);
    check(family, &format!("{call}{call}"), &[('c', rome), ('c', rome)]);
    for rest in ["", "user<|role_sep|>\nAnd now?", "function", "function call", "function call<|message_sep|>\n\n"] {
        check(family, &format!("Yes.<|message_sep|>\n\n{rest}"), &[('t', "Yes.")]);
    }
    let text = "Yes.<|message_sep|> function call<|role_sep|>";
    check(family, text, &[('t', text)]);
    let cut = call.strip_suffix("\"}}").unwrap();
    check(family, cut, &[('-', cut)]);
    check(family, &format!("{cut}\"<|message_sep|>\n\nuser"), &[('!', &format!("{cut}\""))]);
    let wrong = call.replace("{\"city\": \"Rome\"}", "5");
    check(family, &wrong, &[('!', &wrong)]);
}

/// The same with the published tokens, which contain the line ends and are hidden from readers.
#[test]
fn messages_by_their_tokens() {
    let names = ["<|message_sep|>\n\n", "<|role_sep|>\n", "</s>"];
    let vocab = Vocab { pre: "gigachat".into(), ..tiny(&names.map(|name| (name, TokenType::Control)), &[]) };
    let tokenizer = Tokenizer::new(vocab).unwrap();
    let [end, role, over] = names.map(|name| tokenizer.special(name).unwrap());
    assert_eq!(tokenizer.end_tokens(), [end, over]);
    let without = ReplyParser::new(false).with_family(template("gigachat-3.0").family());
    assert!(!without.with_tokenizer(&tokenizer).is_tag(end));
    assert!(!parser("gigachat").with_tokenizer(&tokenizer).is_tag(end));

    let mut reply = parser("gigachat-3.0").with_tokenizer(&tokenizer);
    assert!(reply.is_tag(end) && reply.is_tag(role) && !reply.is_tag(over));
    let mut pieces = reply.push("I look.");
    pieces.extend(reply.push_tag(end));
    pieces.extend(reply.push("function "));
    pieces.extend(reply.push("call"));
    assert!(!reply.has_ended());
    pieces.extend(reply.push_tag(role));
    pieces.extend(reply.push("{\"name\": \"weather\"}"));
    pieces.extend(reply.push_tag(end));
    assert!(!reply.has_ended());
    pieces.extend(reply.push("user"));
    assert!(reply.has_ended());
    pieces.extend(reply.push_tag(role));
    pieces.extend(reply.push("Thanks"));
    pieces.extend(reply.finish());
    assert_eq!(pieces.len(), 4, "{pieces:?}");
    assert_eq!(pieces[0], ReplyPiece::Text("I look.".into()));
    assert!(matches!(&pieces[3], ReplyPiece::ToolCall(call) if call.function.name == "weather"));

    // The letters of a tag that has a token are text.
    let mut reply = parser("gigachat-3.0").with_tokenizer(&tokenizer);
    let letters = "<|message_sep|>\n\nuser<|role_sep|>\n!";
    assert_eq!(reply.push(letters), [ReplyPiece::Text(letters.into())]);
}

/// If the end of a string is missing, what follows a closing tag that is a token is not lost, although a string may
/// contain one.
#[test]
fn a_string_that_does_not_end() {
    let names = ["<tool_call>", "</tool_call>", "</think>"];
    let vocab = tiny(&names.map(|name| (name, TokenType::UserDefined)), &[]);
    let tokenizer = Tokenizer::new(vocab).unwrap();
    let [call, call_end, think_end] = names.map(|name| tokenizer.special(name).unwrap());
    let open = r#"{"name": "weather", "arguments": {"city": "Rome}}"#;
    let failed = |text: String| ReplyPiece::ToolCallFailed { text, cut: false };
    let start = ReplyPiece::ToolCallStart { id: None, name: "weather".into() };
    let piece = ReplyPiece::ToolCallPiece(r#"{"city":"Rome}}"#.into());

    let mut reply = parser("hermes").with_tokenizer(&tokenizer);
    assert!(reply.push_tag(call).is_empty());
    assert_eq!(reply.push(open), [start.clone(), piece.clone()]);
    let more = |text: &str| ReplyPiece::ToolCallPiece(text.into());
    assert_eq!(reply.push_tag(call_end), [more("</tool_call>")]);
    assert_eq!(reply.push(" It rains."), [more(" It rains.")]);
    assert_eq!(
        reply.finish(),
        [failed(format!("<tool_call>{open}</tool_call>")), ReplyPiece::Text("It rains.".into())]
    );
    // Another call shows that the first one has ended, at once or when it is complete.
    for between in ["\n", " \"And\" now: "] {
        let mut reply = parser("hermes").with_tokenizer(&tokenizer);
        let mut pieces = Vec::new();
        for text in [open, r#"{"name": "weather", "arguments": {}}"#] {
            pieces.extend(reply.push_tag(call));
            pieces.extend(reply.push(text));
            pieces.extend(reply.push_tag(call_end));
            pieces.extend(reply.push(between));
        }
        pieces.extend(reply.finish());
        let ends: Vec<_> = pieces.iter().filter(|piece| !matches!(piece, ReplyPiece::ToolCallPiece(_))).collect();
        let [one, fail, rest @ .., _] = &ends[..] else { panic!("{ends:?}") };
        assert_eq!((*one, *fail), (&start, &failed(format!("<tool_call>{open}</tool_call>"))));
        assert!(rest.iter().any(|piece| **piece == start), "{between}: {ends:?}");
        assert!(ends.iter().any(|piece| matches!(piece, ReplyPiece::ToolCall(_))), "{between}: {ends:?}");
    }

    // In thinking, the end of thinking ends the call too.
    let mut reply = ReplyParser::new(true).with_family(template("hermes").family()).with_tools(&tools());
    reply = reply.with_tokenizer(&tokenizer);
    assert!(reply.push_tag(call).is_empty());
    assert_eq!(reply.push(open), [start.clone(), piece]);
    assert_eq!(reply.push_tag(think_end), [failed(format!("<tool_call>{open}"))]);
    assert_eq!(reply.push("It rains."), [ReplyPiece::Text("It rains.".into())]);

    // Tags may stand in a string, as letters and as tokens.
    let mut reply = parser("hermes").with_tokenizer(&tokenizer);
    reply.push_tag(call);
    reply.push(r#"{"name": "weather", "arguments": {"city": "</tool_call>"#);
    assert_eq!(reply.push_tag(think_end), [more("</think>")]);
    assert_eq!(reply.push_tag(call), [more("<tool_call>")]);
    assert_eq!(reply.push_tag(call_end), [more("</tool_call>")]);
    reply.push("\"}}");
    let pieces = reply.push_tag(call_end);
    let Some(ReplyPiece::ToolCall(read)) = pieces.last() else { panic!("{pieces:?}") };
    assert_eq!(read.function.arguments["city"], "</tool_call></think><tool_call></tool_call>");
}

/// The kinds of a reply's parts, of which a tag is one that a vocabulary has: the texts and the ends of calls.
fn parse_tokens(reply: &str) -> Vec<(char, String)> {
    let names = ["<tool_call>", "</tool_call>"];
    let tokenizer = Tokenizer::new(tiny(&names.map(|name| (name, TokenType::UserDefined)), &[])).unwrap();
    let mut parser = parser("hermes").with_tokenizer(&tokenizer);
    let mut pieces = Vec::new();
    for part in reply.split_inclusive('>').flat_map(|part| match names.iter().find(|name| part.ends_with(*name)) {
        Some(name) => [&part[..part.len() - name.len()], name],
        None => [part, ""],
    }) {
        pieces.extend(match tokenizer.special(part) {
            Some(tag) => parser.push_tag(tag),
            None => parser.push(part),
        });
    }
    pieces.extend(parser.finish());
    let part = |piece| match piece {
        ReplyPiece::Text(text) => Some(('t', text)),
        ReplyPiece::ToolCall(call) => Some(('c', call.function.name)),
        ReplyPiece::ToolCallFailed { text, .. } => Some(('!', text)),
        _ => None,
    };
    pieces.into_iter().filter_map(part).collect()
}

/// A call that follows one with a string that does not end is found, whatever shows that.
#[test]
fn no_call_after_a_string_that_does_not_end_is_lost() {
    let open = r#"<tool_call>{"name": "weather", "arguments": {"city": "Rome}}</tool_call>"#;
    let ends = |between: &str, next: &str| {
        let parts = parse_tokens(&format!("{open}{between}<tool_call>{next}</tool_call> Done."));
        parts
            .into_iter()
            .map(|(kind, text)| if kind == '!' { "!".to_owned() + &text } else { text })
            .collect::<Vec<_>>()
    };
    let failed = format!("!{open}");
    // Its braces may balance with those of the first.
    let quoted = r#"{"name": "weather", "arguments": {"city": "a \" b"}}"#;
    assert_eq!(ends(" And ", quoted), [&failed, "And", "weather", "  Done."]);
    // The same tag ends both.
    let bad = format!("!<tool_call>{}</tool_call>", r#"{"name": weather}"#);
    assert_eq!(ends(" And ", r#"{"name": weather}"#)[..2], [&failed, "And"]);
    assert!(!ends(" And ", r#"{"name": weather}"#).contains(&bad), "it has no name");
}

/// What follows a failed call is only read again a few times, and then it is text. None of it is lost.
#[test]
fn a_reply_of_calls_that_fail_is_not_read_again_for_each() {
    let calls = 300;
    let reply = r#"<tool_call>{"name":"f","a":"\"</tool_call>x"#.repeat(calls);
    let parts = parse_tokens(&reply);
    let failed = parts.iter().filter(|(kind, _)| *kind == '!').count();
    assert!(
        (9..calls).contains(&failed) && parts.iter().any(|(kind, text)| *kind == 't' && text.contains("<tool_call>"))
    );
    let text: String = parts.into_iter().map(|(_, text)| text).collect();
    assert_eq!((text.matches('x').count(), text.matches("<tool_call>").count()), (calls, calls));
}

#[test]
fn extended_a_section_of_calls_with_ids() {
    let call = |n| {
        format!(
            "<|tool_call_begin|>functions.weather:{n}<|tool_call_argument_begin|>{{\"city\": \"Rome\"}}<|tool_call_end|>"
        )
    };
    let rome = |n| format!(r#"["weather",{{"city":"Rome"}},"functions.weather:{n}"]"#);
    let section = format!("<|tool_calls_section_begin|>{}{}<|tool_calls_section_end|>", call(0), call(1));
    check("kimi", &section, &[('c', &rome(0)), ('c', &rome(1))]);
    check("kimi", &format!("I look. {section}"), &[('t', "I look."), ('c', &rome(0)), ('c', &rome(1))]);
    check("kimi", &format!("<think>So.</think>Yes.{}", call(3)), &[('?', "So."), ('t', "Yes."), ('c', &rome(3))]);
    // Text between the tags around calls is dropped, unless the section does not end.
    let noisy =
        section.replace("_section_begin|>", "_section_begin|> now: ").replacen("_call_end|>", "_call_end|>, ", 1);
    check(
        "kimi",
        &format!("I look. {noisy} Done."),
        &[('t', "I look."), ('c', &rome(0)), ('c', &rome(1)), ('t', "  Done.")],
    );
    check("kimi", "Yes.<|tool_calls_section_begin|><|tool_calls_section_end|> No.", &[('t', "Yes. No.")]);
    check("kimi", "Yes.<|tool_calls_section_begin|> No.", &[('t', "Yes. No.")]);
    check("kimi", "<think>So<|tool_calls_section_begin|> it is.</think>Yes.", &[('?', "So it is."), ('t', "Yes.")]);
    let bad = "<|tool_call_begin|>functions.weather:0<|tool_call_argument_begin|>Rome";
    check("kimi", &format!("{bad}<|tool_call_end|>!"), &[('!', &format!("{bad}<|tool_call_end|>")), ('t', "!")]);
    let cut = "<|tool_call_begin|>functions.weather:0<|tool_call_argument_begin|>{\"ci";
    check("kimi", cut, &[('-', cut)]);
    check("kimi", "<|tool_call_begin|>what is this", &[('t', "<|tool_call_begin|>what is this")]);
}

/// DeepSeek-V3.1's calls have a name where Kimi's have an id. A name has no other parts.
#[test]
fn extended_a_section_of_calls_with_names() {
    let family = "deepseek-v3.1";
    let of = |name: &str| format!("<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>{{\"city\": \"Rome\"}}<｜tool▁call▁end｜>");
    let section = |calls: &str| format!("<｜tool▁calls▁begin｜>{calls}<｜tool▁calls▁end｜>");
    let rome = |name: &str| json!([name, {"city": "Rome"}, null]).to_string();
    let one = section(&of("weather"));
    check(family, &one, &[('c', &rome("weather"))]);
    let two = section(&(of("functions.weather:0") + &of("time\n")));
    check(
        family,
        &format!("I look.{two}"),
        &[('t', "I look."), ('c', &rome("functions.weather:0")), ('c', &rome("time"))],
    );
    check(family, &format!("<think>So.</think>{one}"), &[('?', "So."), ('c', &rome("weather"))]);
    let bad = "<｜tool▁call▁begin｜>weather<｜tool▁sep｜>Rome<｜tool▁call▁end｜>";
    check(family, &format!("{bad}!"), &[('!', bad), ('t', "!")]);
    let cut = "<｜tool▁call▁begin｜>weather<｜tool▁sep｜>{\"ci";
    check(family, cut, &[('-', cut)]);
    for text in ["<｜tool▁call▁begin｜>what is this", "<｜tool▁call▁begin｜><｜tool▁sep｜>{}"] {
        check(family, text, &[('t', text)]);
    }
}

#[test]
fn a_family_without_tags() {
    let text = "<think>a</think><tool_call>{\"name\": \"weather\"}</tool_call>";
    check("deepseek", text, &[('t', text)]);
    // The template writes one blank before a reply, which a prompt leaves to the model.
    check("deepseek", " Yes. ", &[('t', "Yes. ")]);
    check("deepseek", "  indented", &[('t', " indented")]);
    check("glm", " Yes.", &[('t', " Yes.")]);
}

/// Where the message ends that a template wrote.
fn end_of(reply: &str) -> usize {
    let ends = ["<|im_end|>", "<|message_sep|>", "<｜end▁of▁sentence｜>"];
    ends.iter().find_map(|end| reply.rfind(end)).unwrap_or(reply.len())
}

/// A call that a template writes is parsed as the same call.
#[test]
fn calls_survive_their_template() {
    let arguments = json!({"city": "Köln \"<b>\" }{", "days": 3, "tags": ["a", {"b": null}]});
    let call = ToolCall::new("weather", arguments.as_object().unwrap().clone());
    let messages = [Message::assistant("I look.").with_tool_calls(vec![call.clone()])];
    for name in ["glm", "hermes", "gigachat", "gigachat-3.0", "kimi", "deepseek-v3.1"] {
        let input = ChatInput { add_generation_prompt: false, ..ChatInput::new(&messages) };
        let written = template(name).render(&input).unwrap();
        let reply = &written[written.find("I look.").unwrap()..];
        let read = parse(name, &[&reply[..end_of(reply)]]);
        let id = if name == "kimi" { json!("functions.weather:0") } else { Value::Null };
        let want = [('t', "I look.".to_owned()), ('c', json!(["weather", arguments, id]).to_string())];
        assert_eq!(read, want, "{name}: {written}");
    }
}

proptest! {
    /// Any arguments that a template writes come back, however the reply is cut.
    #[test]
    fn any_arguments_survive(
        family in prop::sample::select(vec!["glm", "hermes", "gigachat", "gigachat-3.0", "kimi", "deepseek-v3.1"]),
        arguments in prop::collection::vec((any::<String>(), value()), 0..5),
        places in places(),
        typed: bool,
    ) {
        // GLM's form has no escapes: blanks around a key are not part of it, and a value ends at the first closing tag.
        let arguments: Map<_, _> = arguments.into_iter().map(|(key, value)| (key.trim().to_owned(), value)).collect();
        let types = arguments.iter().map(|(key, value)| {
            let schema = match value {
                Value::String(_) => json!({"type": "string"}),
                _ if !typed => json!({}),
                Value::Null => json!({"type": ["string", "null"]}),
                Value::Bool(_) => json!({"type": ["boolean", "string"]}),
                Value::Number(_) => json!({"anyOf": [{"type": "number"}, {"type": "string"}]}),
                Value::Array(_) => json!({"type": "array"}),
                Value::Object(_) => json!({"type": ["object", "null"]}),
            };
            (key.clone(), schema)
        });
        let tools = [json!({"function": {"name": "weather", "parameters": {"properties": types.collect::<Map<_, _>>()}}})];
        prop_assume!(family != "glm" || !Value::Object(arguments.clone()).to_string().contains("</arg"));
        let messages = [Message::assistant("I look.").with_tool_calls(vec![ToolCall::new("weather", arguments.clone())])];
        let input = ChatInput { add_generation_prompt: false, ..ChatInput::new(&messages) };
        let written = template(family).render(&input).unwrap();
        let reply = &written[written.find("I look.").unwrap()..];
        let mut parser = ReplyParser::new(false).with_family(template(family).family()).with_tools(&tools);
        let reply = &reply[..end_of(reply)];
        let mut pieces: Vec<_> = cut(reply, &places).into_iter().flat_map(|piece| parser.push(piece)).collect();
        pieces.extend(parser.finish());
        let json: String = pieces.iter().map(|piece| if let ReplyPiece::ToolCallPiece(piece) = piece { piece } else { "" }).collect();
        let Some(ReplyPiece::ToolCall(call)) = pieces.last() else { panic!("{pieces:?}: {written}") };
        prop_assert_eq!(&call.function.arguments, &Value::Object(arguments), "{}", written);
        prop_assert_eq!(&serde_json::from_str::<Value>(&json).unwrap(), &call.function.arguments, "{}", json);
    }
}

/// Templates get the names of the tokens at the beginning and the end of texts, and a prompt begins with one such
/// token, whether the template or the tokenizer adds it.
#[test]
fn the_names_of_tokens() {
    let mut vocab = tiny(&[("<s>", TokenType::Control), ("</s>", TokenType::Control)], &[]);
    (vocab.bos, vocab.eos, vocab.add_bos) = (Some(256), Some(257), true);
    let messages = [Message::user("a<s>"), Message::assistant("b"), Message::user("c")];
    let input = ChatInput::new(&messages);
    let deepseek = template("deepseek").with_vocab(&vocab);
    assert_eq!(deepseek.render(&input).unwrap(), "<s>User: a<s>\n\nAssistant: b</s>User: c\n\nAssistant:");
    let count = |tokens: &[u32], id: u32| tokens.iter().filter(|token| **token == id).count();
    for add_bos in [true, false] {
        vocab.add_bos = add_bos;
        let tokenizer = Tokenizer::new(vocab.clone()).unwrap();
        let prompt = deepseek.prompt(&input, &tokenizer).unwrap();
        assert_eq!((prompt.tokens[0], count(&prompt.tokens, 256), count(&prompt.tokens, 257)), (256, 1, 1));
        assert_eq!((prompt.family.name, prompt.opens_thinking), ("deepseek", false));
        let kimi = template("kimi").with_vocab(&vocab).prompt(&input, &tokenizer).unwrap();
        assert_eq!(count(&kimi.tokens, 256), usize::from(add_bos));
    }
    let hermes = template("hermes").with_vocab(&vocab);
    assert!(hermes.prompt(&input, &Tokenizer::new(vocab).unwrap()).unwrap().opens_thinking);
}
