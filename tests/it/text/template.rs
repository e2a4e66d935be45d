//! Compares chat templates with Jinja2: `tests/fixtures/jinja/make_goldens.py` made the expected renderings, and
//! `tests/fixtures/chat_template.json` has those of the demonstration model's own template.

use super::calls::value;
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::{Map, Value, json};
use wglm::text::{ChatInput, ChatTemplate, FunctionCall, Message, ToolCall};
use wglm::{Error, Result};

fn read(path: &str) -> String {
    std::fs::read_to_string(std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

fn read_json(path: &str) -> Value {
    serde_json::from_str(&read(path)).unwrap()
}

/// Renders a golden's input: the fields of [`ChatInput`] by name, the rest as extra variables.
fn render(template: &ChatTemplate, input: &Value) -> Result<String> {
    let mut fields = input.as_object().unwrap().clone();
    let messages: Vec<Message> = serde_json::from_value(fields.remove("messages").unwrap()).unwrap();
    let tools = fields.remove("tools");
    let add_generation_prompt = fields.remove("add_generation_prompt").is_none_or(|value| value == true);
    let enable_thinking = fields.remove("enable_thinking").map(|value| value == true);
    let tools = tools.as_ref().and_then(Value::as_array).map(Vec::as_slice);
    template.render(&ChatInput { messages: &messages, tools, add_generation_prompt, enable_thinking, extra: fields })
}

fn render_source(source: &str) -> Result<String> {
    ChatTemplate::new(source)?.render(&ChatInput::new(&[]))
}

/// DeepSeek V3's template adds the arguments to a string, and asks whether the content is none. Others of this kind
/// convert the arguments to JSON themselves.
#[test]
fn templates_that_expect_calls_as_openai_writes_them() {
    let source = |arguments: &str| {
        format!(
            "{{% for m in messages %}}{{% if m['content'] is none %}}{{% set f = m['tool_calls'][0]['function'] %}}\
             {{{{ f['name'] + ' ' + {arguments} }}}}{{% else %}}{{{{ m['content'] + '. ' }}}}{{% endif %}}\
             {{% endfor %}}"
        )
    };
    let arguments = json!({"city": "Rome", "days": 2}).as_object().unwrap().clone();
    let call = Message {
        role: "assistant".to_owned(),
        tool_calls: vec![ToolCall::new("weather", arguments)],
        ..Message::default()
    };
    let messages = [Message::user("Hello"), call];
    let render = |arguments| ChatTemplate::new(&source(arguments)).unwrap().render(&ChatInput::new(&messages)).unwrap();
    assert_eq!(render("f['arguments']"), r#"Hello. weather {"city":"Rome","days":2}"#);
    assert_eq!(render("f['arguments'] | tojson"), r#"Hello. weather {"city": "Rome", "days": 2}"#);
}

/// What transformers marks as written by the assistant is rendered as usual.
#[test]
fn templates_that_mark_what_the_assistant_wrote() {
    let source = "{% for m in ['a', 'b'] %}\n  {%- generation %}\n{{ m }}\n{% endgeneration %}\n{% endfor %}\n";
    assert_eq!(render_source(source).unwrap(), "a\nb\n");
    let quoted = "{% generation %}{{ '{% generation %}' }}{% endgeneration %}.";
    assert_eq!(render_source(quoted).unwrap(), "{% generation %}.");
}

/// DeepSeek-V3.1's template calls the switch `thinking`. A variable of this name that a caller sets takes precedence.
#[test]
fn templates_that_call_the_switch_thinking() {
    let template = ChatTemplate::new("{{ thinking is defined }} {{ thinking }} {{ enable_thinking }}").unwrap();
    let render = |enable_thinking, extra: Value| {
        let extra = extra.as_object().unwrap().clone();
        template.render(&ChatInput { enable_thinking, extra, ..ChatInput::new(&[]) }).unwrap()
    };
    assert_eq!(render(None, json!({})), "False  ");
    assert_eq!(render(Some(true), json!({})), "True True True");
    assert_eq!(render(Some(false), json!({"thinking": true})), "True True False");
}

#[test]
fn small_cases_as_jinja2_renders_them() {
    let file = read_json("tests/fixtures/jinja/cases.json");
    let mut surprises = String::new();
    for case in file["cases"].as_array().unwrap() {
        let source = case["template"].as_str().unwrap();
        let extra = file["context"].as_object().unwrap().clone();
        let got = ChatTemplate::new(source).and_then(|it| it.render(&ChatInput { extra, ..ChatInput::new(&[]) }));
        let want = case["rendered"].as_str();
        // When a known difference disappears, it has to be removed from the documentation.
        if (got.as_deref().ok() == want) == (case["differs"] == true) {
            surprises += &format!("{source}\n  want {want:?}\n  got  {got:?}\n");
        }
    }
    assert!(surprises.is_empty(), "\n{surprises}");
}

#[test]
fn a_template_like_the_published_ones() {
    let template = ChatTemplate::new(&read("tests/fixtures/jinja/glm_like.jinja")).unwrap();
    for case in read_json("tests/fixtures/jinja/glm_like.json").as_array().unwrap() {
        let got = render(&template, &case["input"]);
        assert_eq!(got.as_deref().ok(), case["rendered"].as_str(), "{}: {got:?}", case["input"]);
    }
}

#[test]
fn the_demonstration_models_template() {
    let template = ChatTemplate::new(&read("models/training/chat_template.jinja")).unwrap();
    let goldens = read_json("tests/fixtures/chat_template.json");
    let cases = goldens["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 10);
    for case in cases {
        assert_eq!(render(&template, &case["input"]).unwrap(), case["rendered"].as_str().unwrap(), "{}", case["input"]);
    }
    let error = template.render(&ChatInput::new(&[Message::new("critic", "Boo")])).unwrap_err();
    let Error::Refused { reason } = error else { panic!("{error}") };
    assert_eq!(reason, "a message with the role critic");
    let named = ["tool", "critic", "too"].map(|role| template.names_role(role));
    assert_eq!(named, [true, false, false]);
}

/// A string that a template compares with something other than a role is not a role.
#[test]
fn errors_about_roles_name_roles() {
    let template = "{% if m.type == 'text' %}{% elif m['role'] in [\"critic\"] %}'poet' has no role{% endif %}";
    let template = ChatTemplate::new(template).unwrap();
    assert_eq!(["critic", "text", "poet"].map(|role| template.names_role(role)), [true, false, false]);
}

#[test]
fn errors_name_the_line() {
    for (source, line, word) in [
        ("a\nb {{ x", "line 2", "unexpected end"),
        ("\n\n{{ a.b.c }}", "line 3", "undefined"),
        ("{% if x %}", "line 1", "unexpected end"),
        ("\n{{ x|nosuch }}", "line 2", "nosuch"),
        ("{% include 'other' %}", "line 1", "other"),
    ] {
        let error = render_source(source).unwrap_err();
        let Error::Template { message } = &error else { panic!("{error}") };
        assert!(message.starts_with(line) && message.contains(word), "{source}: {message}");
    }
}

/// An error that a template raises is about the conversation, also from within a macro; other errors are not.
#[test]
fn a_refusal_is_not_a_broken_template() {
    for source in
        ["{{ raise_exception('because') }}", "{% macro m() %}{{ raise_exception('because') }}{% endmacro %}{{ m() }}"]
    {
        let error = render_source(source).unwrap_err();
        assert!(matches!(&error, Error::Refused { reason } if reason == "because"), "{source}: {error}");
    }
    let error = render_source("{{ raise_exception() }}").unwrap_err();
    assert!(matches!(error, Error::Template { .. }), "{error}");
}

/// An untrusted template must not hang the program, overflow the stack or print without end.
#[test]
fn extended_runaway_templates_are_stopped() {
    for source in [
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{% for a in range(99999) %}{% for b in range(99999) %}12345678901234567890{% endfor %}{% endfor %}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{% macro m(x) %}{{ m([x]) }}{% endmacro %}{{ m([]) }}",
        "{{ 'x' * 999999999 }}",
        "{{ range(999999999)|list }}",
        "{% set ns = namespace(l=[]) %}{% for a in range(5000) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l|tojson }}",
    ] {
        let error = render_source(source).unwrap_err();
        assert!(matches!(error, Error::Template { .. }), "{error}");
    }
    let deep = format!("{{{{ {}1{} }}}}", "(".repeat(10_000), ")".repeat(10_000));
    assert!(ChatTemplate::new(&deep).is_err());
}

#[test]
fn extended_a_very_long_conversation_is_not_a_runaway() {
    let turn = [Message::user("question"), Message::assistant("answer").with_reasoning("thought")];
    let messages: Vec<_> = turn.iter().cycle().take(20_000).cloned().collect();
    for path in ["models/training/chat_template.jinja", "tests/fixtures/jinja/glm_like.jinja"] {
        let prompt = ChatTemplate::new(&read(path)).unwrap().render(&ChatInput::new(&messages)).unwrap();
        assert_eq!(prompt.matches("<|user|>").count(), 10_000);
    }
}

#[test]
fn messages_leave_out_what_is_absent() {
    let arguments = json!({"city": "Rome"}).as_object().unwrap().clone();
    for (message, want) in [
        (Message::system("s"), json!({"role": "system", "content": "s"})),
        (Message::user("u"), json!({"role": "user", "content": "u"})),
        (
            Message::assistant("a").with_reasoning("r"),
            json!({"role": "assistant", "content": "a", "reasoning_content": "r"}),
        ),
        (Message::tool("c1", "t"), json!({"role": "tool", "content": "t", "tool_call_id": "c1"})),
        (
            Message::assistant("").with_tool_calls(vec![ToolCall::new("f", arguments)]),
            json!({"role": "assistant", "content": "",
                "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": {"city": "Rome"}}}]}),
        ),
    ] {
        assert_eq!(serde_json::to_value(&message).unwrap(), want);
        assert_eq!(serde_json::from_value::<Message>(want).unwrap(), message);
    }
}

#[test]
fn messages_read_openai_json() {
    let message: Message = serde_json::from_value(json!({
        "role": "assistant", "content": null, "tool_calls": [
            {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{\"b\": 1, \"a\": [2.5]}"}},
            {"id": "2", "type": "function", "function": {"name": "g", "arguments": ""}},
            {"function": {"name": "h"}},
        ], "refusal": null, "weight": 1
    }))
    .unwrap();
    let arguments: Vec<_> = message.tool_calls.iter().map(|call| call.function.arguments.to_string()).collect();
    assert_eq!(arguments, [r#"{"b":1,"a":[2.5]}"#, "{}", "{}"]);
    assert_eq!((message.content, message.extra["weight"].clone()), (None, json!(1)));
    let message: Message = serde_json::from_value(json!({"role": "assistant", "tool_calls": null})).unwrap();
    assert!(message.tool_calls.is_empty());
    let broken = json!({"role": "a", "tool_calls": [{"function": {"name": "f", "arguments": "{\"a\": b"}}]});
    let message: Message = serde_json::from_value(broken).unwrap();
    assert_eq!(message.tool_calls[0].function.arguments, json!({}));
}

/// A client may send a call back that was cut off or is malformed. The arguments that are complete are left of it.
#[test]
fn arguments_that_were_cut_off_are_those_that_are_complete() {
    let whole = r#"{"a":"x, \"y","b":[1,{"c":2}],"d":-1.5}"#;
    for (cut, wanted) in [
        (whole.len(), json!({"a": "x, \"y", "b": [1, {"c": 2}], "d": -1.5})),
        (whole.len() - 1, json!({"a": "x, \"y", "b": [1, {"c": 2}]})), // the number may have had more digits
        (whole.len() - 10, json!({"a": "x, \"y", "b": [1, {"c": 2}]})),
        (whole.len() - 6, json!({"a": "x, \"y", "b": [1, {"c": 2}]})),
        (24, json!({"a": "x, \"y"})),
        (8, json!({})),
        (1, json!({})),
        (0, json!({})),
    ] {
        let call = FunctionCall::from_json("f", &whole[..cut]);
        assert_eq!((call.name.as_str(), call.arguments), ("f", wanted), "{}", &whole[..cut]);
    }
    let deep = format!("{{\"a\":1,\"b\":{}", "[".repeat(1000));
    for (broken, wanted) in [
        ("a", json!({})),
        ("[1", json!({})),
        ("\"a", json!({})),
        ("null", json!({})),
        ("{\"a\" 1", json!({})),
        ("{'a': 1}", json!({})),
        ("{\"a\":1,\"b\":True}", json!({"a": 1})),
        ("{\"a\":1,\"b\":1e999}", json!({"a": 1})),
        ("{\"a\":1,\"b\":\"\\ud83d\"}", json!({"a": 1})),
        ("{\"a\":1,\"b2", json!({"a": 1})),
        ("{\"a\":{\"b\":1", json!({})),
        ("{\"a\":1}}", json!({"a": 1})),
        (&deep, json!({"a": 1})),
    ] {
        assert_eq!(FunctionCall::from_json("f", broken).arguments, wanted, "{broken}");
    }
}

/// The time does not depend on what could be a place where the arguments end.
#[test]
fn arguments_with_many_commas_that_were_cut_off() {
    let cut = format!("{{\"path\":\"a.py\",\"content\":\"{}", ",".repeat(8 << 20));
    assert_eq!(FunctionCall::from_json("f", &cut).arguments, json!({"path": "a.py"}));
    let list = format!("{{\"path\":\"a.py\",\"list\":[{}1", "1,".repeat(4 << 20));
    assert_eq!(FunctionCall::from_json("f", &list).arguments, json!({"path": "a.py"}));
}

proptest! {
    /// Arguments that are cut off anywhere are those that had ended.
    #[test]
    fn arguments_cut_off_anywhere(members in prop::collection::vec((any::<String>(), value()), 0..5), place: Index) {
        let whole: Map<String, Value> = members.into_iter().collect();
        let (mut json, mut ends) = ("{".to_owned(), Vec::new());
        for (key, value) in &whole {
            let comma = if json.len() > 1 { "," } else { "" };
            json += &format!("{comma}{}:{value}", Value::from(key.as_str()));
            ends.push(json.len() + usize::from(value.is_number()));
        }
        json.push('}');
        let cut = (place.index(json.len())..).find(|place| json.is_char_boundary(*place)).unwrap();
        let complete = ends.iter().filter(|end| **end <= cut).count();
        let wanted: Map<String, Value> = whole.into_iter().take(complete).collect();
        prop_assert_eq!(FunctionCall::from_json("f", &json[..cut]).arguments, Value::Object(wanted), "{}", &json[..cut]);
    }
}

/// Absent content is undefined and prints nothing, whereas none would print as `None`.
#[test]
fn absent_content_prints_nothing() {
    let template = ChatTemplate::new("{% for m in messages %}[{{ m.content }}]{% endfor %}").unwrap();
    let messages: Vec<Message> =
        serde_json::from_value(json!([{"role": "a", "content": null}, {"role": "b"}])).unwrap();
    assert_eq!(template.render(&ChatInput::new(&messages)).unwrap(), "[][]");
}

#[test]
fn extra_variables_cannot_replace_the_conversation() {
    let template = ChatTemplate::new("{{ messages|length }}{{ add_generation_prompt }}{{ more }}").unwrap();
    let extra = json!({"messages": [1, 2], "add_generation_prompt": 5, "more": "!"}).as_object().unwrap().clone();
    let messages = [Message::user("x")];
    assert_eq!(template.render(&ChatInput { extra, ..ChatInput::new(&messages) }).unwrap(), "1True!");
}

#[test]
fn the_date_is_there() {
    let date = render_source("{{ strftime_now('%Y-%m-%d') }}").unwrap();
    assert!(date.len() == 10 && date.starts_with("20"), "{date}");
}
