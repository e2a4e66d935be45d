//! llama.cpp's `/completion`: text that continues a prompt, without the chat template. `/infill`, whose prompt has a
//! gap, has the same answer.

use crate::serve::body::JsonBody;
use crate::serve::failure::{Dialect, Failure};
use crate::serve::fields::{Fields, TOP_LOGPROBS, at_most, integer, max_tokens};
use crate::serve::figures::{LlamaLogprobs, prompt_progress, timings};
use crate::serve::infill::GapFields;
use crate::serve::interface::{Interface, Prompt, Request};
use crate::serve::prompts::Prompts;
use crate::serve::reply::{Delta, Finish, FinishReason, Progress, Reply, TokenProbability};
use crate::serve::server::{LoadedModel, Server};
use crate::serve::stream::Events;
use crate::serve::unmet::OtherFields;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use wglm_engine::Stop;

/// The fields in addition to the common ones. `cache_prompt` and `id_slot` are not among them: the cache is always
/// used, and the slot is chosen by what it holds.
#[derive(Debug, Deserialize)]
pub struct Body {
    prompt: Option<Prompts>,
    #[serde(default, deserialize_with = "integer")]
    n_predict: Option<i64>,
    #[serde(default, deserialize_with = "integer")]
    max_tokens: Option<i64>,
    #[serde(default, deserialize_with = "integer")]
    n_probs: Option<u64>,
    return_tokens: Option<bool>,
    post_sampling_probs: Option<bool>,
    json_schema: Option<Value>,
    #[serde(flatten)]
    gap: GapFields,
    #[serde(flatten)]
    fields: Fields,
    #[serde(flatten)]
    others: OtherFields,
}

/// Refuses fields that a client would otherwise assume to have taken effect.
fn check_supported(body: &Body) -> Result<(), Failure> {
    for (is_asked_for, field, wrong) in [
        (body.json_schema.is_some(), "json_schema", "not supported here; use /v1/chat/completions"),
        (
            body.post_sampling_probs == Some(true),
            "post_sampling_probs",
            "not supported; n_probs gives log-probabilities",
        ),
    ] {
        if is_asked_for {
            return Err(Failure::of_field(field, wrong).with_code("unsupported"));
        }
    }
    Ok(())
}

/// The interface. `INFILLS` says whether the prompt has a gap.
pub struct Completion<const INFILLS: bool> {
    model: String,
    stops: Vec<String>,
    /// Whether probabilities are reported, and whether the ids of tokens are.
    probabilities: bool,
    tokens: bool,
    /// Whether the answer is a list.
    several: bool,
    /// Whether each reply has a line end so far.
    new_lines: Vec<bool>,
}

/// A piece of a reply in a stream.
#[derive(Serialize)]
struct Chunk<'a> {
    index: usize,
    content: &'a str,
    tokens: Vec<u32>,
    id_slot: i64,
    stop: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    completion_probabilities: Option<LlamaLogprobs<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_progress: Option<Value>,
}

/// The end of a reply in a stream, or a whole reply.
#[derive(Serialize)]
struct End<'a> {
    #[serde(flatten)]
    chunk: Chunk<'a>,
    model: &'a str,
    tokens_predicted: usize,
    tokens_evaluated: usize,
    tokens_cached: usize,
    truncated: bool,
    has_new_line: bool,
    stop_type: &'static str,
    stopping_word: &'a str,
    timings: Value,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    warnings: &'a [String],
}

impl<const INFILLS: bool> Completion<INFILLS> {
    fn chunk<'a>(&self, index: usize, content: &'a str, all: Vec<&'a TokenProbability>) -> Chunk<'a> {
        let tokens = all.iter().filter(|_| self.tokens).map(|token| token.chosen.id).collect();
        let completion_probabilities = self.probabilities.then_some(LlamaLogprobs(all));
        Chunk { index, content, tokens, id_slot: -1, stop: false, completion_probabilities, prompt_progress: None }
    }

    fn end_of<'a>(&'a self, chunk: Chunk<'a>, has_new_line: bool, finish: &'a Finish) -> End<'a> {
        let stats = &finish.stats;
        let evaluated = stats.prompt.cached + stats.prompt.new;
        let stop_type = match finish.reason {
            _ if stats.stop == Stop::Cancelled => "none",
            FinishReason::Stop | FinishReason::Calls => "eos",
            FinishReason::StopString => "word",
            FinishReason::Length => "limit",
        };
        End {
            chunk: Chunk { stop: true, ..chunk },
            model: &self.model,
            tokens_predicted: stats.generated,
            tokens_evaluated: evaluated,
            tokens_cached: evaluated + stats.generated,
            truncated: stats.stop == Stop::Context,
            has_new_line,
            stop_type,
            stopping_word: finish.stop_string(&self.stops).unwrap_or_default(),
            timings: timings(stats),
            warnings: &finish.warnings,
        }
    }
}

/// A value as JSON.
fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default() // nothing in it can fail to be serialised
}

impl<const INFILLS: bool> Interface for Completion<INFILLS> {
    type Body = Body;

    fn memory(body: &JsonBody) -> usize {
        body.completion()
    }

    fn request(body: Body, server: &Server, loaded: &LoadedModel) -> Result<(Prompt, Request<Self>), Failure> {
        check_supported(&body)?;
        let mut warnings = match INFILLS {
            // Editors send a time limit in addition to the limit on tokens, and an indentation.
            true => body.others.read_ignoring(&["n_indent", "t_max_predict_ms"])?,
            false => body.others.read()?,
        };
        body.fields.of_conversations().for_each(|field| warnings.ignored(field));
        let most = max_tokens([("n_predict", body.n_predict), ("max_tokens", body.max_tokens)])?;
        let most = most.or(loaded.defaults.max_tokens);
        let (several, prompts) = match (INFILLS, body.prompt) {
            (true, prompt) => (false, vec![body.gap.read(prompt)?.tokens("input_suffix", most, loaded)?]),
            (false, None) => return Err(Failure::invalid("there is no prompt").with_param("prompt")),
            (false, Some(given)) => {
                body.gap.warn(&mut warnings);
                at_most("prompt", given.count(), server.limits.choices, "prompts")?;
                (matches!(given, Prompts::Several(_)), given.tokens(loaded)?)
            }
        };
        let alternatives = usize::try_from(body.n_probs.unwrap_or(0)).unwrap_or(usize::MAX);
        at_most("n_probs", alternatives, TOP_LOGPROBS, "tokens")?;
        let (stream, mut options) = (body.fields.stream(), body.fields.options(loaded)?);
        options.max_tokens = most;
        let (probabilities, tokens) = (alternatives > 0, alternatives > 0 || body.return_tokens == Some(true));
        options.logprobs = tokens.then_some(alternatives);
        let (model, stops) = (loaded.name.clone(), options.stop.clone());
        let interface = Self { model, stops, probabilities, tokens, several, new_lines: vec![false; prompts.len()] };
        let request = Request { choices: 1, stream, one_call: false, held: 0, warnings: warnings.texts(), interface };
        Ok((Prompt::Tokens(prompts, Box::new(options)), request))
    }

    fn delta(&mut self, index: usize, delta: Delta, to: &mut Events) {
        match delta {
            Delta::Text { text, tokens } => {
                self.new_lines[index] |= text.contains('\n');
                to.line(&json(&self.chunk(index, &text, tokens.iter().collect())));
            }
            Delta::End(finish) => {
                let chunk = self.chunk(index, "", finish.rest.iter().collect());
                to.line(&json(&self.end_of(chunk, self.new_lines[index], &finish)));
            }
            // Without a template there is neither thinking nor a function to call.
            Delta::Prompt(_) | Delta::PromptToken(_) | Delta::Thinking(_) => {}
            Delta::Call { .. } | Delta::Arguments(_) | Delta::CallEnd { .. } => {}
        }
    }

    fn alive(&mut self, index: usize, progress: Option<Progress>, to: &mut Events) {
        match progress {
            None => to.comment("waiting"),
            Some(progress) => {
                let prompt_progress = Some(prompt_progress(progress));
                to.line(&json(&Chunk { prompt_progress, ..self.chunk(index, "", Vec::new()) }));
            }
        }
    }

    fn end(&mut self, _: &mut Events) {}

    fn failed(&mut self, failure: &Failure, to: &mut Events) {
        to.data(&failure.body(Dialect::OpenAi));
    }

    fn whole(self, replies: Vec<Reply>) -> String {
        let answer = |(index, reply): (usize, &Reply)| {
            let chunk = self.chunk(index, &reply.text, reply.tokens.iter().chain(&reply.finish.rest).collect());
            json(&self.end_of(chunk, reply.text.contains('\n'), &reply.finish))
        };
        let answers: Vec<String> = replies.iter().enumerate().map(answer).collect();
        if self.several { format!("[{}]", answers.join(",")) } else { answers.concat() }
    }
}
