//! Arguments for what an answer has to match.

use crate::cli::input;
use anyhow::Context;
use clap::Args;
use std::path::PathBuf;
use wglm::{Constraint, SchemaOptions};

#[derive(Debug, Args)]
#[command(next_help_heading = "Constraints (the thinking before the answer is free)")]
pub struct ConstraintArgs {
    /// Have answers be JSON that is valid by the JSON schema in a file; - reads stdin
    #[arg(long, value_name = "FILE", conflicts_with = "grammar")]
    pub json_schema: Option<PathBuf>,
    /// Have answers match the grammar in a file, in Lark's syntax; - reads stdin
    #[arg(long, value_name = "FILE")]
    pub grammar: Option<PathBuf>,
    /// Let blanks and line ends stand between the parts of the JSON of --json-schema, instead of none
    #[arg(long, requires = "json_schema")]
    pub json_whitespace: bool,
    /// Leave out what of --json-schema cannot be held, instead of refusing it: answers may then not be valid by it
    #[arg(long, requires = "json_schema")]
    pub json_lenient: bool,
}

impl ConstraintArgs {
    /// Reads and checks the constraint that is asked for, if one is.
    pub fn read(&self) -> anyhow::Result<Option<Constraint>> {
        if let Some(path) = &self.json_schema {
            let name = input::name(path);
            let options =
                SchemaOptions::default().with_whitespace(self.json_whitespace).with_lenient(self.json_lenient);
            return Ok(Some(Constraint::json_schema_text(&input::text(path)?, options).with_context(|| name)?));
        }
        let Some(path) = &self.grammar else { return Ok(None) };
        let constraint = Constraint::lark(&input::text(path)?).with_context(|| input::name(path));
        Ok(Some(constraint?))
    }
}
