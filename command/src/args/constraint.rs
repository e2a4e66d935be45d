//! Arguments for the schema or grammar of answers: text, as for llama.cpp's options of the same names, or files.

use crate::input;
use crate::reply::Form;
use anyhow::{Context, ensure};
use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use std::path::{Path, PathBuf};
use wglm_engine::{Constraint, SchemaOptions};

#[derive(Debug, Args)]
#[command(next_help_heading = "Constraints (thinking before the answer is not constrained)")]
pub struct ConstraintArgs {
    /// Make answers JSON that is valid against this JSON schema: the schema itself or its file name; - reads stdin
    #[arg(short, long, value_name = "SCHEMA|FILE", value_parser = NonEmptyStringValueParser::new(),
        group = "schema", conflicts_with_all = ["json_schema_file", "grammar", "grammar_file"])]
    pub json_schema: Option<String>,
    /// Like --json-schema, from a file (also -jf)
    #[arg(long, value_name = "FILE", group = "schema", conflicts_with_all = ["grammar", "grammar_file"])]
    pub json_schema_file: Option<PathBuf>,
    /// Make answers match this grammar in Lark's syntax: the grammar itself or its file name; - reads stdin
    #[arg(long, value_name = "GRAMMAR|FILE", value_parser = NonEmptyStringValueParser::new(), conflicts_with = "grammar_file")]
    pub grammar: Option<String>,
    /// Like --grammar, from a file
    #[arg(long, value_name = "FILE")]
    pub grammar_file: Option<PathBuf>,
    /// Allow whitespace between the tokens of JSON that --json-schema constrains
    #[arg(long, requires = "schema")]
    pub json_whitespace: bool,
    /// Ignore parts of --json-schema that cannot be enforced instead of refusing it; answers may then be invalid
    /// against the schema
    #[arg(long, requires = "schema")]
    pub json_lenient: bool,
    /// Allow only the properties that --json-schema names, except where it has additionalProperties
    #[arg(long, requires = "schema")]
    pub json_closed: bool,
}

impl ConstraintArgs {
    /// The form that an answer must have.
    pub fn form(&self) -> Form {
        match self {
            Self { json_schema: None, json_schema_file: None, grammar: None, grammar_file: None, .. } => Form::Free,
            Self { grammar: None, grammar_file: None, .. } => Form::Json,
            _ => Form::Grammar,
        }
    }

    /// Reads and checks the constraint, if one is given.
    pub fn read(&self) -> anyhow::Result<Option<Constraint>> {
        let schema = given(self.json_schema.as_deref(), self.json_schema_file.as_deref(), is_schema, "--json-schema")?;
        if let Some((text, name)) = schema {
            let options = SchemaOptions::default().with_whitespace(self.json_whitespace);
            let options = options.with_lenient(self.json_lenient).with_closed(self.json_closed);
            return Ok(Some(Constraint::json_schema_text(&text, options).with_context(|| name)?));
        }
        let grammar = given(self.grammar.as_deref(), self.grammar_file.as_deref(), is_grammar, "--grammar")?;
        let Some((text, name)) = grammar else { return Ok(None) };
        ensure!(!is_gbnf(&text), "{name}: {GBNF}");
        Ok(Some(Constraint::lark(&text).with_context(|| name)?))
    }
}

/// The given text, itself or from the named file, and its name in errors.
fn given(
    text: Option<&str>,
    file: Option<&Path>,
    is_itself: fn(&str) -> bool,
    option: &str,
) -> anyhow::Result<Option<(String, String)>> {
    match (text, file) {
        (Some(text), _) if !Path::new(text).exists() && is_itself(text) => Ok(Some((text.into(), option.into()))),
        (None, None) => Ok(None),
        (text, file) => {
            let path = text.map(Path::new).or(file).unwrap_or(Path::new("-"));
            Ok(Some((input::text(path)?, input::name(path))))
        }
    }
}

/// Whether a text is a schema rather than the name of a file: schemas are objects, or true or false.
fn is_schema(text: &str) -> bool {
    text.trim_start().starts_with(['{', '[', '"']) || ["true", "false"].contains(&text.trim())
}

/// Whether a text is a grammar rather than the name of a file: it has several lines, or the rule `start` of every
/// grammar.
fn is_grammar(text: &str) -> bool {
    let begins =
        |line: &str| line.trim_start().strip_prefix("start").is_some_and(|rest| rest.trim_start().starts_with(':'));
    text.contains('\n') || begins(text) || is_gbnf(text)
}

/// Whether a grammar is in the syntax of llama.cpp, whose rules are `name ::= …`.
fn is_gbnf(text: &str) -> bool {
    let named = |line: &str| {
        let name = line.split_once("::=").map_or("", |(name, _)| name.trim());
        !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '-' || c == '_')
    };
    text.lines().any(named)
}

/// The remedy for such a grammar.
const GBNF: &str = "this is a grammar in llama.cpp's GBNF syntax; wglm accepts Lark's syntax. Write \
                    `start: …` for `root ::= …` and `name: …` for `name ::= …`, with names of lower-case letters and _, \
                    regular expressions /[a-z]+/ for [a-z]+, and // before comments";

#[cfg(test)]
mod tests {
    use super::{is_gbnf, is_grammar, is_schema};

    #[test]
    fn text_is_told_from_names_of_files() {
        for (text, schema, grammar) in [
            ("{\"type\": \"object\"}", true, false),
            (" {}", true, false),
            ("true", true, false),
            ("schema.json", false, false),
            ("start: \"a\"", false, true),
            ("start : \"a\"", false, true),
            ("A: \"a\"\nstart: A", false, true),
            ("start.lark", false, false),
            ("C:\\start.lark", false, false),
            ("root ::= \"a\"", false, true),
        ] {
            assert_eq!((is_schema(text), is_grammar(text)), (schema, grammar), "{text}");
        }
    }

    #[test]
    fn grammars_of_llama_cpp_are_known() {
        assert!(is_gbnf("# comment\nroot ::= item+\n") && is_gbnf("root  ::= [a-z]"));
        assert!(!is_gbnf("start: \"a ::= b\"") && !is_gbnf("start: /::=/"));
    }
}
