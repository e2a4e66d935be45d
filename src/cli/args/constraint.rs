//! Arguments for what an answer has to match.

use crate::cli::input;
use anyhow::Context;
use clap::Args;
use std::path::PathBuf;
use wglm::{Constraint, serde_json};

#[derive(Debug, Args)]
#[command(next_help_heading = "Constraints (the thinking before the answer is free)")]
pub struct ConstraintArgs {
    /// Have answers be JSON that is valid by the JSON schema in a file; - reads stdin
    #[arg(long, value_name = "FILE", conflicts_with = "grammar")]
    pub json_schema: Option<PathBuf>,
    /// Have answers match the grammar in a file, in Lark's syntax; - reads stdin
    #[arg(long, value_name = "FILE")]
    pub grammar: Option<PathBuf>,
}

impl ConstraintArgs {
    /// Reads and checks the constraint that is asked for, if one is.
    pub fn read(&self) -> anyhow::Result<Option<Constraint>> {
        if let Some(path) = &self.json_schema {
            let name = input::name(path);
            let schema = serde_json::from_str(&input::text(path)?).with_context(|| format!("{name} is not JSON"))?;
            return Ok(Some(Constraint::json_schema(schema).with_context(|| name)?));
        }
        let Some(path) = &self.grammar else { return Ok(None) };
        let constraint = Constraint::lark(&input::text(path)?).with_context(|| input::name(path));
        Ok(Some(constraint?))
    }
}
