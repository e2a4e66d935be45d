//! Accepts options as llama.cpp spells them: long names with one dash, and options that have no effect here.
//!
//! clap would parse `-ngl 99` as `-n gl`, and `-fa` as a file named `a`. So such arguments are replaced or removed
//! before clap reads them, but never after `--`, and never if they are the value of an option.

use super::Arguments;
use clap::error::ErrorKind;
use clap::{Arg, Command, CommandFactory};
use std::ffi::OsString;

/// Names with one dash, and the options that they stand for.
const SPELLINGS: [(&str, &str); 6] = [
    ("-sys", "--system-prompt"),
    ("-ctk", "--cache-type"),
    ("-ub", "--ubatch-size"),
    ("-md", "--model-draft"),
    ("-np", "--parallel"),
    ("-jf", "--json-schema-file"),
];

/// An option of llama.cpp that wglm does not have.
struct LlamaOption {
    names: &'static [&'static str],
    /// Whether the word after the option is its value.
    takes: fn(&str) -> bool,
    handling: Handling,
}

/// How an option of llama.cpp is handled.
enum Handling {
    /// The option is ignored with a note that gives this reason.
    NoEffect(&'static str),
    /// The option is an error, with this remedy.
    Refused(&'static str),
}

const NOTHING: fn(&str) -> bool = |_| false;
const ANYTHING: fn(&str) -> bool = |_| true;
const SWITCH: fn(&str) -> bool = |word| ["on", "off", "auto", "0", "1"].contains(&word);

const LLAMA_OPTIONS: [LlamaOption; 14] = [
    no_effect(&["-ngl", "--gpu-layers", "--n-gpu-layers"], ANYTHING, "all layers run on the GPU"),
    no_effect(&["-fa", "--flash-attn"], SWITCH, "attention is always fused"),
    no_effect(&["-t", "--threads", "-tb", "--threads-batch"], ANYTHING, "the GPU computes"),
    no_effect(&["-b", "--batch-size"], ANYTHING, "-ub alone sets the prompt batch size"),
    no_effect(&["--mlock", "--mmap", "--no-mmap"], NOTHING, "weights are copied to GPU memory"),
    no_effect(&["-mmp", "--numa"], ANYTHING, "weights are copied to GPU memory"),
    no_effect(&["--jinja"], NOTHING, "the file's chat template is always used"),
    no_effect(&["--warmup", "--no-warmup"], NOTHING, "loading a model warms it up"),
    refused(&["-ctv", "--cache-type-v"], "keys and values share one KV cache; set its type with --cache-type"),
    refused(
        &["-mg", "--main-gpu", "-sm", "--split-mode", "-ts", "--tensor-split", "-dev", "--device"],
        "a model runs on one GPU; choose it by name with --gpu",
    ),
    refused(
        &["-ot", "--override-tensor", "-cmoe", "--cpu-moe", "-ncmoe", "--n-cpu-moe", "-nkvo", "--no-kv-offload"],
        "the whole model runs on the GPU; a smaller file or a smaller context (-c) needs less memory",
    ),
    refused(
        &["-cnv", "--conversation", "-no-cnv", "--no-conversation", "-st", "--single-turn"],
        "`wglm run` answers one prompt (--raw: without the chat template), `wglm chat` holds a conversation",
    ),
    refused(
        &["-hf", "-hfr", "--hf-repo", "-hff", "--hf-file", "-mu", "--model-url"],
        "`wglm pull OWNER/REPO:QUANT` downloads a model, and -m takes the same name",
    ),
    refused(&["--lora"], "wglm runs one unmodified model file; omit this option"),
];

const fn no_effect(names: &'static [&'static str], takes: fn(&str) -> bool, why: &'static str) -> LlamaOption {
    LlamaOption { names, takes, handling: Handling::NoEffect(why) }
}

const fn refused(names: &'static [&'static str], remedy: &'static str) -> LlamaOption {
    LlamaOption { names, takes: NOTHING, handling: Handling::Refused(remedy) }
}

/// Arguments for clap, and notes about options that have no effect.
#[derive(Debug)]
pub struct TranslatedArguments {
    pub args: Vec<OsString>,
    pub notes: Vec<String>,
}

/// Replaces llama.cpp's names with wglm's, and removes options that have no effect.
pub fn translated(args: impl IntoIterator<Item = OsString>) -> Result<TranslatedArguments, clap::Error> {
    let mut root = Arguments::command();
    root.build();
    let mut words = args.into_iter().peekable();
    let mut done = TranslatedArguments { args: words.next().into_iter().collect(), notes: Vec::new() };
    let mut command = &root;
    while let Some(word) = words.next() {
        let text = word.to_str().unwrap_or_default();
        if text == "--" {
            done.args.push(word);
            done.args.extend(words);
            break;
        }
        if let Some((llama_option, attached)) = llama_option(command, text) {
            match llama_option.handling {
                Handling::NoEffect(why) => done.notes.push(format!("{} has no effect: {why}", name(text))),
                Handling::Refused(remedy) => {
                    let message = format!("no option '{}': {remedy}", name(text));
                    return Err(command.clone().error(ErrorKind::UnknownArgument, message));
                }
            }
            if !attached {
                words.next_if(|value| value.to_str().is_some_and(llama_option.takes));
            }
            continue;
        }
        let value_follows = takes_next(command, text);
        if std::ptr::eq(command, &root) {
            command = root.find_subcommand(text).unwrap_or(command);
        }
        done.args.push(spelled(command, text).map_or(word.clone(), OsString::from));
        if value_follows {
            done.args.extend(words.next());
        }
    }
    Ok(done)
}

/// The name of an option without a value that is attached by `=`.
fn name(word: &str) -> &str {
    word.split_once('=').map_or(word, |(name, _)| name)
}

/// A word with the command's own name for the option, if that differs.
fn spelled(command: &Command, word: &str) -> Option<String> {
    let (_, long) = SPELLINGS.iter().find(|(short, _)| *short == name(word))?;
    option(command, long)?;
    Some(word.replacen(name(word), long, 1))
}

/// The llama.cpp option that a word means, if the command has none of that name, and whether its value is attached.
/// Only commands that load a model accept such options.
fn llama_option(command: &Command, word: &str) -> Option<(&'static LlamaOption, bool)> {
    option(command, "--ubatch-size").filter(|_| option(command, name(word)).is_none())?;
    let found = LLAMA_OPTIONS.iter().find(|llama_option| llama_option.names.contains(&name(word)))?;
    Some((found, word.contains('=')))
}

/// The command's option with a long name, or with one letter.
fn option<'a>(command: &'a Command, name: &str) -> Option<&'a Arg> {
    if let Some(long) = name.strip_prefix("--") {
        let is = |arg: &&Arg| arg.get_long() == Some(long) || arg.get_all_aliases().is_some_and(|a| a.contains(&long));
        return command.get_arguments().find(is);
    }
    let mut letters = name.strip_prefix('-')?.chars();
    let letter = letters.next().filter(|_| letters.next().is_none());
    command.get_arguments().find(|arg| letter.is_some() && arg.get_short() == letter)
}

/// Whether the word after this one is its value: if this word is an option that takes a value, or a group of letters
/// that ends with such an option, and no value is attached.
fn takes_next(command: &Command, word: &str) -> bool {
    let takes = |name: &str| option(command, name).is_some_and(|arg| arg.get_action().takes_values());
    if word.starts_with("--") || SPELLINGS.iter().any(|(short, _)| *short == word) {
        let long = spelled(command, word).unwrap_or_else(|| word.to_owned());
        return !word.contains('=') && takes(&long);
    }
    let Some(letters) = word.strip_prefix('-').filter(|letters| !letters.is_empty()) else { return false };
    letters
        .char_indices()
        .find(|(_, letter)| takes(&format!("-{letter}")))
        .is_some_and(|(at, letter)| at + letter.len_utf8() == letters.len())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{LLAMA_OPTIONS, SPELLINGS, translated};
    use std::ffi::OsString;

    /// A translated command line, split at spaces, and the number of notes.
    fn of(line: &str) -> (String, usize) {
        let done = translated(line.split(' ').map(OsString::from)).unwrap();
        let words: Vec<&str> = done.args.iter().map(|word| word.to_str().unwrap()).collect();
        (words.join(" "), done.notes.len())
    }

    #[test]
    fn names_are_translated_and_values_are_not() {
        for (line, wanted) in [
            ("wglm run -ub 5 -sys -ub hi", "wglm run --ubatch-size 5 --system-prompt -ub hi"),
            ("wglm run -ub=5", "wglm run --ubatch-size=5"),
            ("wglm run -p -ub -ctk f16", "wglm run -p -ub --cache-type f16"),
            ("wglm run --prompt -sys -r -ngl", "wglm run --prompt -sys -r -ngl"),
            ("wglm run --prompt=x -ub 5", "wglm run --prompt=x --ubatch-size 5"),
            ("wglm run -px -ub 5", "wglm run -px --ubatch-size 5"),
            ("wglm run -jf a.json -j {}", "wglm run --json-schema-file a.json -j {}"),
            ("wglm run -- -ub", "wglm run -- -ub"),
            ("wglm tokenize -ub", "wglm tokenize -ub"),
            ("wglm tokenize -- -ngl 99", "wglm tokenize -- -ngl 99"),
            ("wglm -ub run", "wglm -ub run"),
            ("wglm plan --device m3", "wglm plan --device m3"),
            ("wglm bench --no-warmup", "wglm bench --no-warmup"),
        ] {
            assert_eq!(of(line), (wanted.to_owned(), 0), "{line}");
        }
    }

    #[test]
    fn what_has_no_effect_is_dropped_with_its_value() {
        for (line, wanted, notes) in [
            ("wglm run -ngl 99 hi", "wglm run hi", 1),
            ("wglm run --n-gpu-layers=99 hi", "wglm run hi", 1),
            ("wglm run -fa hi", "wglm run hi", 1),
            ("wglm run -fa on --mlock -t 8 hi", "wglm run hi", 3),
            ("wglm bench -ngl 99 -p 4 -b 2048", "wglm bench -p 4", 2),
        ] {
            assert_eq!(of(line), (wanted.to_owned(), notes), "{line}");
        }
    }

    #[test]
    fn what_cannot_be_done_is_refused() {
        for line in ["run -ctv f16", "chat -hf user/model", "run -cnv", "bench -ot exps=CPU", "run -mg 0"] {
            let refused = translated(format!("wglm {line}").split(' ').map(OsString::from)).unwrap_err();
            let option = line.split(' ').nth(1).unwrap();
            assert!(refused.to_string().contains(&format!("no option '{option}': ")), "{refused}");
        }
    }

    #[test]
    fn every_name_stands_once() {
        let mut names: Vec<&str> = LLAMA_OPTIONS.iter().flat_map(|llama_option| llama_option.names).copied().collect();
        names.extend(SPELLINGS.map(|(short, _)| short));
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
