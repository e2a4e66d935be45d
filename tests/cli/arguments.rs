//! What is understood on the command line, and what is not.

use crate::{succeed, wglm};

#[test]
fn help_and_version_go_to_stdout() {
    let commands =
        ["run", "chat", "inspect", "devices", "tokenize", "template", "logits", "plan", "bench", "profile", "selftest"];
    let help = succeed("--help");
    assert!(commands.iter().all(|name| help.out.contains(name)) && help.err.is_empty(), "{help:?}");
    for name in commands {
        let help = succeed(&format!("{name} --help"));
        assert!(help.out.contains("Usage: wglm") && help.err.is_empty(), "{help:?}");
    }
    assert_eq!(succeed("--version").out, concat!("wglm ", env!("CARGO_PKG_VERSION"), "\n"));
}

#[test]
fn wrong_usage_exits_with_2() {
    for (line, words) in [
        ("", "Usage: wglm"),
        ("nosuch", "unrecognized subcommand 'nosuch'"),
        ("run -p hi --nosuch", "unexpected argument '--nosuch'"),
        ("run -p", "a value is required for '--prompt <TEXT>'"),
        ("run one two", "unexpected argument 'two'"),
        ("run one -p two", "cannot be used with"),
        ("run -p one -f two", "cannot be used with"),
        ("run -p hi -m one -m two", "cannot be used multiple times"),
        ("run -p hi -c few", "invalid value 'few' for '--ctx-size <N>'"),
        ("run -p hi -n 5.5", "invalid value '5.5' for '--n-predict <N>'"),
        ("run -p hi -n 99999999999999999999", "number too large"),
        ("run -p hi --seed few", "invalid value 'few' for '--seed <N>'"),
        ("run -p hi --repeat-penalty much", "invalid value 'much' for '--repeat-penalty <N>'"),
        ("run -p hi --repeat-last-n 1.5", "invalid value '1.5' for '--repeat-last-n <N>'"),
        ("run -p hi --logit-bias 5", "expected a token and what to add, as 1234+2.5"),
        ("run -p hi -l five+5", "invalid value 'five+5' for '--logit-bias"),
        ("run -p hi -l 5+five", "invalid value '5+five' for '--logit-bias"),
        ("run -p hi -r", "a value is required for '--reverse-prompt <TEXT>'"),
        ("run -p hi --temp warm", "invalid value 'warm' for '--temp <T>'"),
        ("run -p hi --reasoning maybe", "possible values: on, off"),
        ("run -p hi -ub 0", "0 is not in 1..=4096"),
        ("run -p hi --ubatch-size 4097", "4097 is not in 1..=4096"),
        ("run -p hi --cache-type q8_0", "possible values: f16, f32"),
        ("run -p hi -ctk q8_0", "possible values: f16, f32"),
        ("run -p hi -sys", "a value is required for '--system-prompt <TEXT>'"),
        ("run -p hi --arithmetic f16", "possible values: auto, float, int"),
        ("tokenize", "required arguments were not provided"),
        ("template", "--messages <FILE>"),
        ("logits --tokens t.i32", "--out <FILE>"),
        ("logits --tokens t.i32 --out o.f32 --positions 0,-1", "invalid value '-1' for '--positions <LIST>'"),
        ("logits --tokens t.i32 --out o.f32 --positions 0,,1", "invalid value '' for '--positions <LIST>'"),
        ("plan -d few", "invalid value 'few'"),
        ("bench -r 0", "0 is not in 1.."),
        ("bench -o xml", "possible values: md, csv, json"),
        ("bench -p many", "invalid value 'many'"),
        ("profile -o xml", "possible values: md, csv, json"),
        ("selftest -o xml", "possible values: md, csv, json"),
        ("plan --device abacus", "possible values: m1-pro, m1-max, m1-ultra, m2, "),
    ] {
        let done = wglm(line);
        assert_eq!(done.code, Some(2), "{line}: {done:?}");
        assert!(done.out.is_empty() && done.err.contains(words), "{line}: expected {words:?}: {done:?}");
    }
}
