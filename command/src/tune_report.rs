//! Prints what `tune` tried and found to stdout.

use super::args::OutputFormat;
use super::output;
use super::table::{self, Column, Record, csv, head, row};
use serde_json::json;
use wglm_engine::tune::{Comparison, Figure, Outcome, Trial, Tuning};

const TRIALS: [Column; 6] = [
    Column { title: "step", width: 32, right: false },
    Column { title: "candidate", width: 24, right: false },
    Column { title: "work", width: 14, right: false },
    Column { title: "ms", width: 22, right: true },
    Column { title: "gain", width: 17, right: true },
    Column { title: "outcome", width: 18, right: false },
];
const WHOLE: [Column; 3] = [
    Column { title: "all together", width: 14, right: false },
    Column { title: "ms", width: 22, right: true },
    Column { title: "gain", width: 17, right: true },
];

/// The fields of a trial in CSV.
const FIELDS: [&str; 9] =
    ["step", "candidate", "work", "before_seconds", "after_seconds", "gain", "spread", "turns", "outcome"];

/// Prints a tuning: JSON as in its file, CSV with a header and a line for each trial, or a table of the trials that
/// were compared alternately.
pub fn report(format: OutputFormat, tuning: &Tuning) -> anyhow::Result<()> {
    match format {
        OutputFormat::Csv => {
            let records = tuning.trials.iter().map(record).collect::<anyhow::Result<Vec<Record>>>()?;
            output::lines([FIELDS.join(",")])?;
            csv(&records, false)
        }
        OutputFormat::Md => people(tuning),
        _ => output::say(&tuning.to_string()),
    }
}

fn people(tuning: &Tuning) -> anyhow::Result<()> {
    let is_shown = |trial: &&Trial| trial.turns > 0 || matches!(trial.outcome, Outcome::Failed(_) | Outcome::Wrong(_));
    let compared: Vec<&Trial> = tuning.trials.iter().filter(is_shown).collect();
    if !compared.is_empty() {
        output::lines(head(&TRIALS))?;
        output::lines(compared.iter().flat_map(|trial| rows(trial)))?;
        output::lines([String::new()])?;
    }
    if !tuning.comparison.is_empty() {
        output::lines(head(&WHOLE))?;
        output::lines(tuning.comparison.iter().map(|Comparison { figure, gain, spread, .. }| {
            row(&WHOLE, &[figure.work.clone(), milliseconds(figure), parts(*gain, *spread)])
        }))?;
        output::lines([String::new()])?;
    }
    let others = tuning.trials.len() - compared.len();
    let all = output::count(tuning.trials.len(), "candidate");
    output::lines([format!("{all} tried, {others} of them measured only once (-o json and -o csv list them)")])
}

/// The rows of a trial, one for each workload. Only the first has what all of them share.
fn rows(trial: &Trial) -> Vec<String> {
    let gain = if trial.turns > 0 { parts(trial.gain, trial.spread) } else { String::new() };
    let shared = [trial.question.clone(), trial.candidate.clone(), gain, trial.outcome.to_string()];
    let line = |index: usize| {
        let [step, candidate, gain, outcome] = if index == 0 { shared.clone() } else { Default::default() };
        let figure = trial.figures.get(index);
        let [work, time] =
            figure.map_or_else(Default::default, |figure: &Figure| [figure.work.clone(), milliseconds(figure)]);
        row(&TRIALS, &[step, candidate, work, time, gain, outcome])
    };
    (0..trial.figures.len().max(1)).map(line).collect()
}

fn milliseconds(figure: &Figure) -> String {
    format!("{:.4} → {:.4}", 1e3 * figure.before, 1e3 * figure.after)
}

fn parts(gain: f64, spread: f64) -> String {
    format!("{:+.2} ± {:.2} %", 100.0 * gain, 100.0 * spread)
}

/// A trial in one line, with a column for each field.
fn record(trial: &Trial) -> anyhow::Result<Record> {
    let Trial { question, candidate, figures, gain, spread, turns, outcome, .. } = trial;
    let column = |of: fn(&Figure) -> serde_json::Value| figures.iter().map(of).collect::<Vec<_>>();
    table::record(&json!({
        "step": question,
        "candidate": candidate,
        "work": column(|figure| json!(figure.work)),
        "before_seconds": column(|figure| json!(figure.before)),
        "after_seconds": column(|figure| json!(figure.after)),
        "gain": gain,
        "spread": spread,
        "turns": turns,
        "outcome": outcome.to_string(),
    }))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{FIELDS, record};
    use serde_json::json;

    #[test]
    fn the_header_names_the_fields_of_a_trial() {
        let trial = json!({
            "question": "moe.down", "candidate": "8x1x64", "figures": [], "gain": 0.0, "spread": 0.0, "turns": 0,
            "outcome": "kept",
        });
        let record = record(&serde_json::from_value(trial).unwrap()).unwrap();
        assert_eq!(record.keys().collect::<Vec<_>>(), FIELDS);
    }
}
