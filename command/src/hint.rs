//! Explains, after the demonstration model's first answer, how to get a real model.

use super::args::FileArgs;
use super::output;
use wglm_engine::Model;
use wglm_engine::catalog::{Places, local_models};
use wglm_engine::offers::recommended;

/// Lines that explain how to get a real model that fits; none if the model is a real one, or none is known to fit.
pub fn real_model(model: &Model, args: &FileArgs) -> Vec<String> {
    if args.model.is_some() { Vec::new() } else { lines(model.gpu().report().memory) }
}

pub fn tell(lines: Vec<String>) {
    lines.into_iter().for_each(|line| output::note(format_args!("{line}")));
}

/// The lines for `memory` bytes of memory, if that is known.
fn lines(memory: Option<u64>) -> Vec<String> {
    let Some(repo) = recommended(memory).next().map(|repository| repository.name) else { return Vec::new() };
    let command = output::command();
    let mut lines = vec!["That was the demonstration model. For a real one that fits this machine:".to_owned()];
    let is_of = |name: &str| name.split(':').next().is_some_and(|own| own.eq_ignore_ascii_case(repo));
    let here = local_models(&Places::default()).into_iter().find(|model| model.whole && is_of(&model.name));
    if here.is_none() {
        lines.push(format!("  {command} pull {repo}"));
    }
    lines.push(format!("  {command} chat -m {}", here.map_or(repo.to_owned(), |model| model.name)));
    lines
}

#[cfg(test)]
mod tests {
    use super::lines;

    #[test]
    fn what_is_offered_fits() {
        let offered = |gigabytes: u64| lines(Some(gigabytes * 1_000_000_000)).last().cloned().unwrap_or_default();
        assert!(offered(24).ends_with("/GLM-4.7-Flash-GGUF"), "{}", offered(24));
        assert!(offered(11).ends_with("REAP-23B-A3B-GGUF"), "{}", offered(11));
        assert!(offered(4).ends_with("/Youtu-LLM-2B-GGUF"), "{}", offered(4));
        assert_eq!(offered(2), "");
        assert!(lines(None).last().is_some_and(|line| line.ends_with("/GLM-4.7-Flash-GGUF")));
    }
}
