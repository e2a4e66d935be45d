//! Tests templates that try to abort the process, or to exhaust its memory or its time.
//!
//! They run in a child process with limited memory, which runs this test again: an unbounded template ends the child,
//! whose last output is the name of the template.

use rand::prelude::*;
use rand_pcg::Pcg64;
use serde_json::{Map, Value, json};
use std::fmt::Write;
use std::process::Command;
use wglm::Error;
use wglm::text::{ChatInput, ChatTemplate, FunctionCall, Message, ReplyParser, StopStrings, ToolCall};

/// Set in the child.
const CHILD: &str = "WGLM_HOSTILE_TEMPLATES";

/// The address space of the child, in KiB: the program with its threads takes 0.5 GiB of it, a rendering the rest.
const ADDRESSES: usize = 1536 << 10;

/// The memory that a rendering may take, in KiB.
const PEAK: usize = 256 << 10;

/// Runs the test `name` again in a child with limited memory. False in the child, which then does the work.
fn in_a_child(name: &str) -> bool {
    if std::env::var_os(CHILD).is_some() {
        return false;
    }
    let script = format!("ulimit -v {ADDRESSES}; exec \"$0\" \"$@\"");
    let mut command = Command::new("sh");
    command.args(["-c", &script]).arg(std::env::current_exe().unwrap()).args(["--exact", name, "--nocapture"]);
    let output = command.env(CHILD, "1").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{}\n{text}", output.status);
    true
}

/// The most memory of this process since the last call, in KiB; `None` if the system does not report it.
fn peak() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?.trim().strip_suffix(" kB")?.parse().ok();
    std::fs::write("/proc/self/clear_refs", "5").ok()?;
    peak
}

fn render(source: &str) -> wglm::Result<String> {
    ChatTemplate::new(source)?.render(&ChatInput::new(&[Message::user("Hello")]))
}

/// A loop that runs a body a million times, with a namespace `ns` in which `l` is a list, `s` a string and `d` a
/// mapping.
fn repeated(body: &str) -> String {
    format!(
        "{{% set ns = namespace(l=[], s='0123456789abcdef', d={{}}) %}}{{% for i in range(1000) %}}\
         {{% for j in range(1000) %}}{body}{{% endfor %}}{{% endfor %}}"
    )
}

/// Templates that have to end with an error.
fn refused() -> Vec<(String, String)> {
    let mut all = Vec::new();
    let mut add = |name: &str, source: String| all.push((name.to_owned(), source));
    for (name, sign) in [("plus", "+1"), ("not", ""), ("and", " and x"), ("attributes", ".a"), ("filters", "|trim")] {
        add(
            name,
            format!("{{{{ {}x{} }}}}", if sign.is_empty() { "not " } else { "" }.repeat(20_000), sign.repeat(20_000)),
        );
    }
    add("minus", format!("{{{{ {}1 }}}}", "-".repeat(20_000)));
    add("elif", format!("{{% if x %}}{}{{% endif %}}", "{% elif x %}".repeat(9_000)));
    add("nested ifs with elif", "{% if x %}".to_owned() + &"{% elif x %}{% if y %}{% elif y %}".repeat(140 * 10));
    add("a long source", "x".repeat(200 << 10));
    for (name, value) in [("namespace", "ns"), ("namespace in a list", "[ns]"), ("namespace in a mapping", "{'a': ns}")]
    {
        for (use_name, used) in
            [("compared", "ns.a == ns.a"), ("printed", "ns"), ("dumped", "ns|tojson"), ("joined", "'' ~ ns")]
        {
            add(
                &format!("a {name} in itself, {use_name}"),
                format!("{{% set ns = namespace() %}}{{% set ns.a = {value} %}}{{{{ {used} }}}}"),
            );
        }
    }
    for value in [
        "[ns.l]",
        "(ns.l,)",
        "{'a': ns.l}",
        "[ns.l]|batch(1)|list",
        "dict(a=ns.l)",
        "{'a': ns.l}|items|list",
        "[[ns.l]]|map('list')|list",
        "[ns.l]|groupby('x')",
        "{'a': ns.l}.items()",
        "[ns.l]|zip([1])|list",
        "[ns.l] * 2",
        "[ns.l] + []",
        "[ns.l][0:]",
        "[ns.l]|reverse",
        "[ns.l]|chain([])",
        "{'a': ns.l}|dictsort",
        "namespace(a=ns.l)",
        "[ns.l]|slice(1)",
    ] {
        add(&format!("deep by {value}"), repeated(&format!("{{% set ns.l = {value} %}}")));
    }
    add("deep by a loop", repeated("{% for x in [ns.l] %}{% set ns.l = loop %}{% endfor %}"));
    add("deep by a loop in a list", repeated("{% for x in [ns.l] %}{% set ns.l = [loop] %}{% endfor %}"));
    add("deep by recursion", "{% for x in [[]] recursive %}{{ loop([[[[[x]]]]]) }}{% endfor %}".into());
    add("deep by a macro", "{% macro m(x) %}{{ m([[[[[[x]]]]]]) }}{% endmacro %}{{ m([]) }}".into());
    add("changed by itself", repeated("{% if loop.changed(loop) %}{% endif %}"));
    for value in [
        "ns.s ~ ns.s",
        "ns.s + ns.s",
        "ns.s * 2",
        "[ns.s, ns.s]|join",
        "ns.s|replace('', ns.s)",
        "ns.s.replace('', ns.s)",
        "ns.s.join([ns.s, ns.s])",
        "ns.s|replace('0', ns.s)",
        "[ns.s, ns.s]|string",
        "[ns.s, ns.s]|tojson",
        "[ns.s, ns.s]|pprint",
        "'{0}{0}'.format(ns.s)",
        "'%s%s'|format(ns.s, ns.s)",
        "ns.s|indent(1000, true)",
        "(ns.s ~ '\n')|indent(50000, true)",
        "ns.s ~ [ns.s]",
        "[1,2]|join(ns.s)",
        "[1, 2, 3]|tojson(indent=ns.s)",
        "[1, 2, 3]|tojson(separators=(ns.s, ns.s))",
        "ns.s.split('')|join('ab')",
        "[ns.s, ns.s]|sum(start='')",
    ] {
        add(&format!("growing by {value}"), repeated(&format!("{{% set ns.s = {value} %}}")));
    }
    for value in [
        "ns.l + ns.l + [1]",
        "(ns.l + [1]) * 2",
        "(ns.l + [1, 2])|batch(1)|list + ns.l",
        "[1]|batch(99999, 1)|first + ns.l",
        "range(100000)|list + ns.l",
        "ns.l + 'abc'|list",
        "(ns.l + [1])|map('string')|list + ns.l",
        "ns.l + [1, 2]|slice(9999)|list",
        "[ns.l, ns.l]|sum(start=[]) + [1]",
        "ns.l|chain(ns.l, [1])",
        "(ns.l + [1])|zip(ns.l + [1])|list + ns.l",
        "[range(100000)|list, ns.l|list][i % 2]|list + ns.l",
        "(ns.l + [[], []])[0:] + ns.l",
        "'a b c '.split() + ns.l + ns.l",
    ] {
        add(&format!("growing by {value}"), repeated(&format!("{{% set ns.l = {value} %}}")));
    }
    add("many lists", format!("{}{{% endfor %}}", repeated("{% for k in range(9) %}{% set ns.l = [[i, [j]], [i], [j], [k], ns.l[:100000]] %}{% endfor %}{% set ns.s = ns.s ~ ns.l %}").trim_end_matches("{% endfor %}").to_owned() + "{% endfor %}"));
    add("a string by capture", repeated("{% set ns.s %}{{ ns.s }}{{ ns.s }}{% endset %}"));
    add(
        "a string by raw text",
        repeated(&format!("{{% set x %}}{}{{% endset %}}{{% set ns.l = ns.l + [x] %}}", "raw text ".repeat(1000))),
    );
    add(
        "a string by a filter",
        repeated("{% set ns.s %}{% filter upper %}{{ ns.s }}{{ ns.s }}{% endfilter %}{% endset %}"),
    );
    add(
        "a string by a macro",
        "{% macro m() %}{{ ns.s }}{{ ns.s }}{% endmacro %}".to_owned()
            + &repeated("{% set ns.s = m() %}").replace(
                "{% set ns.s = m() %}",
                "{% macro n(s) %}{{ s }}{{ s }}{% endmacro %}{% set ns.s = n(ns.s) %}",
            ),
    );
    add("output", repeated(&"much output ".repeat(1000)));
    add("output of a value", repeated("{% if j == 0 %}{% set ns.s = ns.s * 2 %}{% endif %}{{ ns.s }}"));
    for used in [
        "{{ l }}",
        "{{ l|tojson }}",
        "{{ l ~ '' }}",
        "{{ l == m }}",
        "{{ l < m }}",
        "{{ l|string|length }}",
        "{{ l in [m] }}",
        "{{ [l, m]|unique|list|length }}",
        "{{ [l, m]|sort|length }}",
        "{{ l|pprint|length }}",
        "{{ l|e|length }}",
        "{{ l|upper }}",
        "{{ '{}'.format(l) }}",
        "{{ l in 'abc' }}",
        "{{ [l]|join }}",
        "{{ raise_exception(l) }}",
    ] {
        let doubled = |name: &str| {
            (0..100).fold(String::new(), |mut text, _| {
                let _ = write!(text, "{{% set {name} = [{name}, {name}] %}}");
                text
            })
        };
        add(
            &format!("2^100 items in {used}"),
            format!("{{% set l = [1] %}}{{% set m = [1] %}}{}{}{used}", doubled("l"), doubled("m")),
        );
    }
    add("products of literals", "{{ 'x' * 99999999 }}".repeat(5000));
    add("products of literals of lists", "{{ (1, 2) * 49999999 }}".repeat(5000));
    add("quotients of literals", "{{ 'x' * (1 / 0.00000001490116119384765625) }}".repeat(2500));
    add("truths of literals", format!("{{{{ 'x'{} }}}}", " * (True + (0 == 0))".repeat(26)).repeat(200));
    add(
        "a list of templates that are missing",
        "{% set l = ['x'] * 250000 %}{% for i in range(100000) %}{% include l ignore missing %}{% endfor %}".into(),
    );
    add(
        "a loop that calls itself over a long string",
        "{% set s = 'x' * 30000000 %}{% for i in range(100000) recursive %}{% if loop.depth == 1 %}{{ loop(s) }}{% else %}\
         {% break %}{% endif %}{% endfor %}"
            .into(),
    );
    add(
        "a long name",
        format!("{{% for i in range(1000000) %}}{{% if i.{} %}}{{% endif %}}{{% endfor %}}", "a".repeat(100_000)),
    );
    add("a cycle of nothing", "{% for i in range(3) %}{{ loop.cycle() }}{% endfor %}".into());
    add(
        "arguments of a macro",
        format!(
            "{{% macro m({}) %}}{{% endmacro %}}{{% for i in range(1000000) %}}{{% set x = m.arguments %}}{{% endfor %}}",
            (0..900).map(|number| format!("a{number}")).collect::<Vec<_>>().join(", ")
        ),
    );
    add("small products of literals", "{{ 'x' * 99999 }}".repeat(5000));
    add("powers of literals", "{{ 'x' * 10 ** 8 }}".into());
    add("a wide format", "{{ '{:>9999999999}'.format(1) }}".into());
    add("a wide printf", "{{ '%999999999d'|format(1) }}".into());
    add("a wide printf by an argument", "{{ '%*d'|format(999999999, 1) }}".into());
    add("a wide indentation", "{{ 'a\nb'|indent(9999999999) }}".into());
    add("a long batch", "{{ [1]|batch(999999999, 1)|list|length }}".into());
    add("many slices", "{{ [1]|slice(999999999)|list|length }}".into());
    add("arguments from a list", repeated("{{ range(*range(100000)) }}"));
    add("macros with variables", repeated("{% with %}{% macro m() %}{{ i }}{% endmacro %}{% endwith %}"));
    add(
        "a long name",
        "{% set s = '\\u0007' * 1000 %}{% for i in range(14) %}{% set s = s ~ s %}{% include s %}{% endfor %}".into(),
    );
    let long = |body: &str| {
        format!(
            "{{% set ns = namespace(s='0123456789abcdef', l=range(99999)|list, d={{'a': 1}}) %}}{{% for i in range(16) %}}{{% set ns.s = ns.s ~ ns.s %}}{{% endfor %}}{{% set t = ns.s ~ 'x' %}}{{% set u = ns.s ~ 'x' %}}{{% for i in range(1000) %}}{{% for j in range(1000) %}}{body}{{% endfor %}}{{% endfor %}}"
        )
    };
    for used in [
        "t == u",
        "t < u",
        "'y' in t",
        "t[-2]",
        "t[i:j]|length",
        "t|length",
        "t|upper|length",
        "t.find('y')",
        "t.split('y')|length",
        "t|trim",
        "t|reverse|first",
        "t is iterable",
        "t is upper",
        "t.strip('x') == 1",
        "t.strip(t) == 1",
        "t|trim(t)",
        "'y'.startswith(ns.l|map('string')|list)",
        "ns.l == ns.l|list",
        "200000 in ns.l",
        "ns.l[1:]|length",
        "ns.l|sort|length",
        "ns.l|unique|list|length",
        "ns.l|reverse|first",
        "ns.l|sum",
        "ns.l|max",
        "ns.l|tojson|length",
        "ns.l|select('gt', 5)|list|length",
        "ns.l|map('string')|list|length",
        "ns.l.count(3)",
        "t is eq(u)",
        "t.startswith(ns.s)",
        "(ns.l|select)[99998]",
        "[t]|select('eq', u)|list|length",
        "t|int(default=1)",
        "t|list|length",
        "(ns.l|items)",
        "u ~ t == t ~ u",
        "{t: 1}[u]",
        "{u: 1}",
        "ns.d[t]",
        "ns.d.get(t)",
        "ns.d.get((t, u))",
        "t in ns.d",
        "[t, u]|map(attribute=t)|list",
        "ns.l|selectattr(t)|list",
        "ns.l|map(attribute=t, default=1)|list",
    ] {
        add(&format!("work by {used}"), long(&format!("{{% if {used} %}}{{% endif %}}")));
    }
    add("work by a loop over a string", long("{% for c in t %}{% break %}{% endfor %}"));
    all
}

/// Sources within the bounds are compiled and rendered on the available stack.
fn accepted() -> Vec<(String, String)> {
    let expression = |text: String| format!("{{{{ {text} }}}}");
    [
        ("plus", expression("x".to_owned() + &" ~ 1".repeat(990))),
        ("not", expression("not ".repeat(1990) + "x")),
        ("and", expression("x".to_owned() + &" or x".repeat(990))),
        ("ternaries", expression("0 if x else ".repeat(490) + "x")),
        ("filters", expression("x".to_owned() + &"|trim".repeat(990))),
        ("minus", "{% if x %}".to_owned() + &expression("-".repeat(1990) + "1") + "{% endif %}"),
        ("attributes", "{% if x %}".to_owned() + &expression("x".to_owned() + &".a".repeat(990)) + "{% endif %}"),
        ("slices", expression("messages".to_owned() + &"[:]".repeat(490))),
        ("lists", expression("[".repeat(70) + &"]".repeat(70))),
        ("comparisons", expression("1".to_owned() + &" == 1".repeat(990))),
        (
            "elif",
            format!(
                "{{% if x %}}{}{{% else %}}{}{{% endif %}}",
                "{% elif x %}".repeat(499),
                expression("not ".repeat(1990) + "x")
            ),
        ),
        ("blocks", "{% if 1 %}".repeat(70) + &"{% endif %}".repeat(70)),
        ("calls", "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(15) }}".into()),
    ]
    .map(|(name, source)| (name.to_owned(), source))
    .into()
}

#[test]
fn extended_no_template_aborts_or_exhausts_memory() {
    if in_a_child("text::hostile::extended_no_template_aborts_or_exhausts_memory") {
        return;
    }
    peak();
    let base = peak().unwrap_or(0);
    let mut failures = String::new();
    let cases = refused().into_iter().map(|case| (true, case)).chain(accepted().into_iter().map(|case| (false, case)));
    for (wrong, (name, source)) in cases {
        println!("{name}");
        let start = std::time::Instant::now();
        let result = render(&source);
        let (time, peak) = (start.elapsed(), peak().unwrap_or(0).saturating_sub(base));
        let text = match &result {
            Ok(text) => format!("{} bytes", text.len()),
            Err(error) => error.to_string().chars().take(150).collect(),
        };
        println!("    {} ms, {} MiB: {text}", time.as_millis(), peak >> 10);
        if !matches!((&result, wrong), (Err(Error::Template { .. }), true) | (Ok(_), false)) {
            let _ = writeln!(failures, "{name}: {text}");
        }
        if peak > PEAK {
            let _ = writeln!(failures, "{name}: {} MiB", peak >> 10);
        }
    }
    assert!(failures.is_empty(), "\n{failures}");
}

/// Pieces of which random templates are made.
const VALUES: [&str; 24] = [
    "x",
    "ns",
    "ns.l",
    "ns.s",
    "ns.d",
    "messages",
    "messages[0]",
    "messages[0].content",
    "1",
    "0",
    "-1",
    "99999",
    "2.5",
    "'ab'",
    "''",
    "none",
    "true",
    "[]",
    "[1, 2]",
    "{'a': 1}",
    "(1,)",
    "range(99)",
    "loop",
    "missing",
];
const CHANGES: [&str; 46] = [
    "V + V",
    "V ~ V",
    "V * V",
    "V == V",
    "V in V",
    "V < V",
    "not V",
    "-V",
    "[V, V]",
    "{'a': V}",
    "(V, V)",
    "V[V]",
    "V[V:V]",
    "V[::V]",
    "V.a",
    "V|string",
    "V|tojson",
    "V|tojson(indent=V)",
    "V|list",
    "V|join(V)",
    "V|replace(V, V)",
    "V|batch(V, V)|list",
    "V|slice(V)|list",
    "V|indent(V)",
    "V|map('string')|list",
    "V|select|list",
    "V|sort",
    "V|unique|list",
    "V|reverse",
    "V|first",
    "V|last",
    "V|length",
    "V|items|list",
    "V|dictsort",
    "V|sum",
    "V.split(V)",
    "V.replace(V, V)",
    "V.join(V)",
    "V.items()",
    "V.format(V)",
    "dict(a=V)",
    "namespace(a=V)",
    "V if V else V",
    "V|default(V)",
    "V|e",
    "range(V)",
];
const STATEMENTS: [&str; 12] = [
    "{{ V }}",
    "{% set x = V %}",
    "{% set ns.l = V %}",
    "{% set ns.s = V %}",
    "{% set ns.d = V %}",
    "{% for x in V %}S{% endfor %}",
    "{% if V %}S{% elif V %}S{% else %}S{% endif %}",
    "{% set x %}S{% endset %}",
    "{% macro m(x) %}S{% endmacro %}{{ m(V) }}",
    "{% filter upper %}S{% endfilter %}",
    "{% with y = V %}S{% endwith %}",
    "text{{ V }}\n",
];

fn filled(random: &mut Pcg64, pattern: &str, depth: usize) -> String {
    pattern.chars().fold(String::new(), |mut text, char| {
        match char {
            'V' if depth == 0 => text += VALUES.choose(random).unwrap(),
            'V' => {
                let pattern = if random.random_bool(0.4) { "V" } else { CHANGES.choose(random).unwrap() };
                text += &format!("({})", filled(random, pattern, depth - 1));
            }
            'S' => (0..random.random_range(0..3usize.min(depth + 1))).for_each(|_| {
                let statement = STATEMENTS.choose(random).unwrap();
                text += &filled(random, statement, depth.saturating_sub(1));
            }),
            other => text.push(other),
        }
        text
    })
}

/// Three hundred random templates, and as many published ones with changed bytes, end with a text or an error.
#[test]
fn random_templates_end() {
    if in_a_child("text::hostile::random_templates_end") {
        return;
    }
    let random = &mut Pcg64::seed_from_u64(34);
    let glm = include_str!("../../fixtures/jinja/glm_like.jinja");
    let (mut good, mut bad) = (0, 0);
    for _ in 0..300 {
        let body: String = (0..4)
            .map(|_| {
                let statement = STATEMENTS.choose(random).unwrap();
                filled(random, statement, 3)
            })
            .collect();
        let body = format!(
            "{{% set x = 1 %}}{{% set ns = namespace(l=[1], s='a', d={{}}) %}}{{% for i in range(40) %}}{body}{{% endfor %}}"
        );
        let mut mutated = glm.as_bytes().to_vec();
        for _ in 0..random.random_range(1..4) {
            let (from, to) = (random.random_range(0..glm.len() - 40), random.random_range(0..glm.len() - 40));
            let len = random.random_range(1..40);
            match random.random_bool(0.5) {
                true => mutated.copy_within(from..from + len, to),
                false => drop(mutated.drain(from.min(mutated.len())..(from + len).min(mutated.len()))),
            }
        }
        for source in [body, String::from_utf8_lossy(&mutated).into_owned()] {
            println!("{source}\n");
            match render(&source) {
                Ok(_) => good += 1,
                Err(_) => bad += 1,
            }
        }
    }
    assert!(good > 20 && bad > 100, "{good} rendered, {bad} did not");
}

/// A value that is deeper than parsing allows, as an app may make it.
fn deep(levels: usize) -> Value {
    (0..levels).fold(json!(1), |value, _| Value::Array(vec![value]))
}

/// A conversation that is too deep is refused, wherever it is.
#[test]
fn deep_conversations_are_refused() {
    let source = "{% for m in messages %}{{ m }}{{ m|tojson }}{% endfor %}{{ tools|tojson }}{{ a }}";
    let template = ChatTemplate::new(source).unwrap();
    for (levels, well) in [(100, true), (10_000, false), (300_000, false)] {
        let value = || {
            let mut map = Map::new();
            map.insert("a".into(), deep(levels));
            map
        };
        let call = ToolCall {
            id: None,
            kind: "function".into(),
            function: FunctionCall { name: "f".into(), arguments: deep(levels) },
        };
        let parts = Message { content: Some(wglm::text::Content::Parts(vec![deep(levels)])), ..Message::user("") };
        let (tools, extra) = ([deep(levels)], value());
        let conversations = [
            vec![Message::assistant("").with_tool_calls(vec![call])],
            vec![parts],
            vec![Message { extra: value(), ..Message::user("") }],
        ];
        let inputs = [
            ChatInput { tools: Some(&tools), ..ChatInput::new(&[]) },
            ChatInput { extra, ..ChatInput::new(&[]) },
            ChatInput::new(&conversations[0]),
            ChatInput::new(&conversations[1]),
            ChatInput::new(&conversations[2]),
        ];
        for input in &inputs {
            match template.render(input) {
                Ok(_) => assert!(well),
                Err(Error::Refused { reason }) => assert!(!well && reason.contains("150 levels"), "{reason}"),
                Err(error) => panic!("{error}"),
            }
        }
        // They are leaked, because dropping them would recurse.
        std::mem::forget(inputs);
        std::mem::forget((conversations, tools));
    }
}

/// A megabyte that a parser holds back is read once, and not again for each piece: that took minutes.
#[test]
fn extended_long_replies_are_read_once() {
    let tools = [json!({"type": "function", "function": {"name": "f"}})];
    let blanks = " ".repeat(1 << 20);
    for begun in ["a", "<tool_call>f"] {
        let mut parser = ReplyParser::new(false).with_tools(&tools);
        parser.push(begun);
        for piece in blanks.as_bytes().chunks(16) {
            assert!(parser.push(std::str::from_utf8(piece).unwrap()).is_empty());
        }
        let text = format!("{:?}", [parser.push("x y"), parser.finish()].concat());
        assert!(text.len() > blanks.len() && text.contains("x y"), "{begun}");
    }
    let tags = "</think>".repeat(1 << 17);
    let mut parser = ReplyParser::new(false).with_tools(&tools);
    assert!([parser.push(&tags), parser.finish()].concat().len() < 2);
    let mut stops = StopStrings::new([blanks.clone() + "x"]);
    let text: String = (0..1 << 16).map(|_| stops.push("                 y ")).collect();
    assert_eq!(text.len() + stops.flush().len(), 19 << 16);
}
