//! Tests which arguments the command line accepts and which it refuses.

use super::{ANSWER, QUESTION, command, json, outcome, refuses, run_prompt, succeed, wglm};
use wglm::SamplerParams;

#[test]
fn extended_help_and_version_go_to_stdout() {
    let help = succeed("--help");
    assert!(help.err.is_empty(), "{help:?}");
    let (_, listed) = help.out.split_once("Commands:\n").unwrap();
    let listed = listed.lines().take_while(|line| !line.is_empty());
    let commands: Vec<&str> = listed
        .filter_map(|line| line.strip_prefix("  ")?.split_once(' '))
        .map(|(name, _)| name)
        .filter(|name| !name.is_empty() && *name != "help")
        .collect();
    assert!(commands.len() > 10 && commands.contains(&"tune"), "{commands:?}");
    // ./run treats a word that is not a command as a prompt.
    let script = include_str!("../../../run");
    let known = script.lines().find(|line| line.contains("| completions |")).unwrap();
    for name in &commands {
        assert!(known.split(['|', ' ', ')']).any(|word| word == *name), "`{name}` is not in ./run: {known}");
    }
    for name in commands {
        let help = succeed(&format!("{name} --help"));
        assert!(help.out.contains("Usage: wglm") && help.err.is_empty(), "{help:?}");
    }
    assert_eq!(succeed("--version").out, concat!("wglm ", env!("CARGO_PKG_VERSION"), "\n"));
}

#[test]
fn extended_wrong_usage_exits_with_2() {
    for (line, words) in [
        ("", "Usage: wglm"),
        ("nosuch", "unrecognized subcommand 'nosuch'"),
        ("run -p hi --nosuch", "unexpected argument '--nosuch'"),
        ("run -p", "a value is required for '--prompt <TEXT>'"),
        ("run one two", "unexpected argument 'two'"),
        ("run one -p two", "cannot be used with"),
        ("run -p one -f two", "cannot be used with"),
        ("run -p hi -c few", "invalid value 'few' for '--ctx-size <N>'"),
        ("run -p hi -n 5.5", "invalid value '5.5' for '--n-predict <N>'"),
        ("run -p hi -n 99999999999999999999", "for '--n-predict <N>': too large"),
        ("run -p hi -n -2", "expected -1 or a positive integer"),
        ("run -p hi -n 0", "expected -1 or a positive integer"),
        ("chat -n 0", "expected -1 or a positive integer"),
        ("bench -p 0 -n 0", "-p 0 -n 0 leaves nothing to measure"),
        ("bench --assume-acceptance 0.8,0.9", "--assume-acceptance: expected fractions in descending order"),
        ("run -p hi --repeat-last-n -2", "expected -1, 0 or a positive integer"),
        ("run -p hi --seed -2", "expected -1, 0 or a positive integer"),
        ("run -p hi -c -1", "expected 0 or a positive integer"),
        ("run -p hi --submission-ms 0", "expected a positive integer"),
        ("run -p hi --submission-ms -1", "expected a positive integer"),
        ("run -p hi -ctv f16", "no option '-ctv': keys and values share one KV cache"),
        ("run -hf user/model hi", "no option '-hf': `wglm pull OWNER/REPO:QUANT` downloads a model"),
        ("run -p hi --tiling x", "expected STEP=LANESxROWSxWORKGROUP"),
        ("run -p hi --grouping 9x3x8", "expected FROMxSLOTSxROWS"),
        ("run -p hi --unfuse x", "expected a list of norm, "),
        ("bench -p 4,-1", "expected 0 or a positive integer"),
        ("bench -d ,", "expected 0 or a positive integer"),
        ("perplexity -f x --chunks -2", "expected -1 or a positive integer"),
        ("perplexity -f x --chunks 0", "expected -1 or a positive integer"),
        ("devices --no-subgroups", "unexpected argument"),
        ("completions tcsh", "possible values: bash, "),
        ("run -p hi --seed few", "invalid value 'few' for '--seed <N>'"),
        ("run -p hi --repeat-penalty much", "invalid value 'much' for '--repeat-penalty <N>'"),
        ("run -p hi --repeat-last-n 1.5", "invalid value '1.5' for '--repeat-last-n <N>'"),
        ("run -p hi --logit-bias 5", "expected a token id and a bias, such as 1234+2.5"),
        ("run -p hi -l five+5", "invalid value 'five+5' for '--logit-bias"),
        ("run -p hi -l 5+five", "invalid value '5+five' for '--logit-bias"),
        ("run -p hi -r", "a value is required for '--reverse-prompt <TEXT>'"),
        ("run -p hi --temp warm", "invalid value 'warm' for '--temp <T>': expected 0 or a positive number"),
        ("run -p hi --temp -1", "for '--temp <T>': expected 0 or a positive number"),
        ("run -p hi --temp nan", "for '--temp <T>': expected 0 or a positive number"),
        ("run -p hi --temp inf", "for '--temp <T>': expected 0 or a positive number"),
        ("run -p hi --top-p 2", "for '--top-p <P>': expected a number from 0 to 1"),
        ("run -p hi --top-p -1", "for '--top-p <P>': expected a number from 0 to 1"),
        ("run -p hi --min-p nan", "for '--min-p <P>': expected a number from 0 to 1"),
        ("run -p hi --repeat-penalty 0", "for '--repeat-penalty <N>': expected a positive number"),
        ("run -p hi --presence-penalty inf", "for '--presence-penalty <N>': expected a number"),
        ("run -p hi -l 5+inf", "expected a token id and a bias"),
        ("run", "<PROMPT|--prompt <TEXT>|--file <FILE>>"),
        ("perplexity -f x -c 2", "for '--ctx-size <N>': expected 0 or at least 3 tokens"),
        ("logits --tokens t.i32 --out o.f32 --positions -1", "expected 0 or a positive integer"),
        ("man nosuch", "no command `nosuch` of `wglm`; its commands are run, "),
        ("man models nosuch", "no command `nosuch` of `models`; its commands are rm"),
        ("man run rm", "no command `rm`; `run` has no commands"),
        ("serve --draft-rows 33", "for '--draft-rows <N>': expected a number from 0 to 32"),
        ("serve --cors foo", "for '--cors <ORIGIN>': expected *, null or an origin such as https://example.org"),
        ("serve --cors https://example.org/page", "expected *, null or an origin such as https://example.org"),
        ("serve --allow-host owl:80", "for '--allow-host <NAME>': expected a host name without a port"),
        ("run -p hi --reasoning maybe", "possible values: on, off"),
        ("run -p hi -ub 0", "expected a number from 1 to 4096"),
        ("run -p hi -ub -1", "for '--ubatch-size <N>': expected a number from 1 to 4096"),
        ("run -p hi --ubatch-size 4097", "expected a number from 1 to 4096"),
        ("run -p hi --cache-type q4_0", "possible values: f16, f32, q8_0"),
        ("run -p hi -ctk q4_0", "possible values: f16, f32"),
        ("run -p hi -sys", "a value is required for '--system-prompt <TEXT>'"),
        ("run -p hi --arithmetic f16", "possible values: auto, float, int"),
        ("tokenize", "required arguments were not provided"),
        ("template", "--messages <FILE>"),
        ("logits --tokens t.i32", "--out <FILE>"),
        ("logits --tokens t.i32 --out o.f32 --positions 0,-1", "invalid value '-1' for '--positions <LIST>'"),
        ("logits --tokens t.i32 --out o.f32 --positions 0,,1", "invalid value '' for '--positions <LIST>'"),
        ("plan -d few", "invalid value 'few' for '--depth <N>': expected 0 or a positive integer"),
        ("plan -d -1", "for '--depth <N>': expected 0 or a positive integer"),
        ("bench -r 0", "expected a positive integer"),
        ("bench -r -1", "expected a positive integer"),
        ("profile -r 99999999999", "for '--repetitions <N>': too large"),
        ("bench -o xml", "possible values: md, csv, json, svg"),
        ("bench -p many", "invalid value 'many'"),
        ("profile --drafts 2 -p 3", "'--drafts <N>' cannot be used with '--n-prompt <N>'"),
        ("profile -o xml", "possible values: md, csv, json, svg"),
        ("selftest -o xml", "possible values: md, csv, json"),
        ("selftest -o svg", "invalid value 'svg'"),
        ("plan --device abacus", "possible values: m1-pro, m1-max, m1-ultra, m2, "),
    ] {
        let done = wglm(line);
        assert_eq!(done.code, Some(2), "{line}: {done:?}");
        assert!(done.out.is_empty() && done.err.contains(words), "{line}: expected {words:?}: {done:?}");
    }
}

/// A misspelt command, and a prompt without a command.
#[test]
fn the_intended_command_is_suggested() {
    for (word, tip) in [
        ("rnu", "tip: a similar subcommand exists: 'run'"),
        ("benhc", "tip: a similar subcommand exists: 'bench'"),
        ("Tell me a story", "tip: `wglm run \"Tell me a story\"` answers a prompt"),
        ("hi", "tip: `wglm run \"hi\"` answers a prompt"),
    ] {
        let done = outcome(command([word]));
        assert!(done.code == Some(2) && done.err.contains(tip), "{word}: {done:?}");
    }
}

/// Mistakes with the prompt of `run`.
#[test]
fn ways_to_give_a_prompt_are_suggested() {
    for (line, tip) in [
        ("run", "tip: `wglm run -` reads the prompt from stdin"),
        ("run one two", "tip: a prompt of several words needs quotes: `wglm run \"one two\"`"),
        ("run -n 5 one two three", "tip: a prompt of several words needs quotes"),
    ] {
        let done = wglm(line);
        assert!(done.code == Some(2) && done.err.contains(tip), "{line}: {done:?}");
    }
    assert!(!wglm("run --nosuch hi").err.contains("quotes") && !wglm("tokenize").err.contains("stdin"));
}

/// If the result is JSON, the error is too.
#[test]
fn errors_are_json_too() {
    let demo = json(&succeed("inspect --json").out);
    assert!(demo["error"].is_null() && demo["needs"].is_object(), "{demo}");
    for line in ["inspect --json nosuch.gguf", "tokenize --json -m nosuch.gguf hi", "bench -o json -m nosuch.gguf"] {
        let done = wglm(line);
        let object = json(&done.out);
        assert!(done.code == Some(1) && object["error"].as_str().unwrap().contains("nosuch.gguf"), "{line}: {done:?}");
        assert!(
            object.as_object().unwrap().contains_key("hint") && done.err.starts_with("error: "),
            "{line}: {done:?}"
        );
    }
}

/// If an option is given twice the last one counts, also for lists and for `-o` and `--json`.
#[test]
fn extended_the_last_value_of_an_option_counts() {
    let plan = |rest: &str| json(&succeed(&format!("plan --json {rest}")).out);
    assert_eq!(plan("-c 100 -c 200")["context"], 200);
    assert_eq!(plan("--tiling nosuch=8x1x64 --tiling moe.down=8x2x128"), plan("--tiling moe.down=8x2x128"));
    let tests = |out: &str| out.lines().skip(1).count();
    assert_eq!(tests(&succeed("bench -p 2,3,4 -p 0 -n 1 -n 2,1 -r 1 --json -o csv").out), 2);
    let rows = json(&succeed("bench -p 2 -n 0 -r 1 -o csv --json").out);
    assert_eq!(rows.as_array().unwrap().len(), 1);
    refuses("run hi -m nosuch.gguf -m /dev/null", "/dev/null");
}

#[test]
fn extended_options_of_llama_cpp_have_no_effect_and_say_so() {
    let done = run_prompt(QUESTION, "-ngl 99 -fa on -t 8 --no-mmap --jinja --temp 0");
    assert_eq!(done.out, ANSWER);
    for option in ["-ngl", "-fa", "-t", "--no-mmap", "--jinja"] {
        assert!(done.err.contains(&format!("note: {option} has no effect: ")), "{option}: {done:?}");
    }
}

#[test]
fn an_empty_text_is_wrong_usage() {
    for (args, words) in [
        (vec!["run", "-p", ""], "error: the prompt is empty"),
        (vec!["run", "--json", "   "], "error: the prompt is empty"),
        (vec!["run", "--raw", ""], "error: the prompt is empty"),
        (vec!["run", "-p", "hi", "-r", ""], "a value is required for '--reverse-prompt"),
    ] {
        let done = outcome(command(&args));
        assert_eq!(done.code, Some(2), "{args:?}: {done:?}");
        assert!(done.out.is_empty() && done.err.contains(words), "{done:?}");
    }
}

#[test]
fn values_are_not_changed() {
    let tokens = |args: &[&str]| outcome(command(args)).out;
    assert_eq!(tokens(&["tokenize", "--json", "--", "-ub"]), tokens(&["tokenize", "--json", "-ub"]));
    assert_ne!(tokens(&["tokenize", "--json", "-ub"]), tokens(&["tokenize", "--json", "--", "--ubatch-size"]));
}

/// An empty environment variable counts as unset.
#[test]
fn empty_variables_count_as_unset() {
    let mut plan = command(["plan"]);
    for variable in ["WGLM_TILING", "WGLM_UNFUSE", "WGPU_BACKEND", "WGPU_ADAPTER_NAME", "WGPU_POWER_PREF"] {
        plan.env(variable, "");
    }
    let done = outcome(plan);
    assert_eq!((done.code, &done.out), (Some(0), &succeed("plan").out), "{}", done.err);
}

/// The help states the actual defaults.
#[test]
fn the_help_states_defaults() {
    let SamplerParams { temperature, top_k, top_p, min_p, repeat_penalty, repeat_last_n, .. } =
        SamplerParams::default();
    let help = succeed("run -h").out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(help.contains("recommendations in the model file take precedence"), "{help}");
    for (option, default) in [
        ("--temp <T>", temperature.to_string()),
        ("--top-k <K>", top_k.to_string()),
        ("--top-p <P>", top_p.to_string()),
        ("--min-p <P>", min_p.to_string()),
        ("--repeat-penalty <N>", repeat_penalty.to_string()),
        ("--repeat-last-n <N>", repeat_last_n.to_string()),
    ] {
        let told = help.split_once(option).unwrap().1.split_once("[default: ").unwrap().1;
        assert_eq!(told.split_once(']').unwrap().0, default, "{option}");
    }
}

#[test]
fn completions_and_man_pages_have_every_command() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = succeed(&format!("completions {shell}")).out;
        assert!(["perplexity", "selftest", "ubatch-size"].iter().all(|name| script.contains(name)), "{shell}");
    }
    let page = succeed("man").out;
    assert!(page.contains(".TH wglm 1") && page.contains("wglm\\-perplexity"), "{page}");
    assert!(succeed("man bench").out.contains("\\-\\-n\\-depth"));
    let title = concat!(".TH wglm-run 1  \"wglm ", env!("CARGO_PKG_VERSION"), "\"");
    assert!(succeed("man run").out.contains(title), "{}", succeed("man run").out);
    assert!(succeed("man models").out.contains("wglm\\-models\\-rm(1)"), "{}", succeed("man models").out);
    assert!(succeed("man models rm").out.contains(".TH wglm-models-rm 1"), "{}", succeed("man models rm").out);
}
