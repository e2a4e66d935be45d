//! `/v1/rerank`: orders documents by how well they answer a query. The loaded model, which is not a reranker, is asked
//! about each document, and the score is the probability of *yes* among those of *yes* and *no* as the first token of
//! its reply.

use super::conversation::template_input;
use super::failure::Failure;
use super::fields::at_most;
use super::interface::{Interface, Prompt, Request, Stream};
use super::prompts::{Encoder, start_tokens};
use super::reply::{Delta, Progress, Reply};
use super::server::{LoadedModel, Server};
use super::stream::Events;
use super::unmet::OtherFields;
use serde::{Deserialize, Serialize};
use wglm_engine::{ChatState, Message, Tokenizer};

/// The maximum number of documents in a request.
const DOCUMENTS: usize = 64;

/// What the model is asked to do. The query comes before the document, so that the cache has it for the next one.
const TASK: &str = "Judge whether the document answers the query. The answer can only be \"yes\" or \"no\".";

/// The answers, in the forms in which a reply may begin.
const YES: [&str; 2] = ["yes", "Yes"];
const NO: [&str; 2] = ["no", "No"];

const WARNING: &str = "this server's model is not a reranker; each score is the model's probability of answering yes";

#[derive(Debug, Deserialize)]
pub struct Body {
    query: Option<String>,
    #[serde(default)]
    documents: Vec<Document>,
    /// The documents in the form of TEI (Text Embeddings Inference), which has an answer of its own.
    texts: Option<Vec<Document>>,
    top_n: Option<u64>,
    return_documents: Option<bool>,
    return_text: Option<bool>,
    #[serde(flatten)]
    others: OtherFields,
}

/// A document, or an object that has one.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "expected a string, or an object with a string in its field text")]
enum Document {
    Text(String),
    Object { text: String },
}

impl Document {
    fn into_text(self) -> String {
        match self {
            Self::Text(text) | Self::Object { text } => text,
        }
    }
}

pub struct Rerank {
    model: String,
    /// The first tokens of *yes*.
    yes: Vec<u32>,
    top: usize,
    /// The documents, if the answer repeats them.
    documents: Vec<String>,
    /// Whether the answer has TEI's form.
    tei: bool,
}

#[derive(Serialize)]
struct Answer<'a> {
    model: &'a str,
    object: &'static str,
    usage: Usage,
    results: Vec<Ranked<'a>>,
    warnings: Vec<&'a str>,
}

#[derive(Serialize)]
struct Usage {
    prompt_tokens: usize,
    total_tokens: usize,
}

#[derive(Serialize)]
struct Ranked<'a> {
    index: usize,
    relevance_score: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    document: Option<Text<'a>>,
}

#[derive(Serialize)]
struct Text<'a> {
    text: &'a str,
}

/// A document in TEI's form, whose answer is a list of these, with no place for warnings.
#[derive(Serialize)]
struct Scored<'a> {
    index: usize,
    score: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
}

/// The tokens with which one of some words can begin.
fn first_tokens(words: &[&str], tokenizer: &Tokenizer) -> Result<Vec<u32>, Failure> {
    let start = start_tokens(tokenizer)?;
    let mut tokens = Vec::with_capacity(words.len());
    for word in words {
        tokens.extend(tokenizer.encode(word, false)?.get(start));
    }
    Ok(tokens)
}

/// The prompt about a document. One that does not fit is refused before the next one is encoded.
fn prompt(query: &str, document: &str, loaded: &LoadedModel) -> Result<Vec<u32>, Failure> {
    let messages = vec![Message::system(TASK), Message::user(format!("Query: {query}\n\nDocument: {document}"))];
    let chat = ChatState { messages, reasoning: Some(false), ..ChatState::default() };
    let (template, tokenizer, context) =
        (loaded.model.template()?, loaded.model.tokenizer()?, loaded.scheduler.context());
    let tokens = template.prompt_within(&template_input(&chat), tokenizer, context)?.tokens;
    Encoder::of_text(loaded)?.fits(tokens.len())?;
    Ok(tokens)
}

impl Interface for Rerank {
    type Body = Body;

    fn request(body: Body, server: &Server, loaded: &LoadedModel) -> Result<(Prompt, Request<Self>), Failure> {
        let warnings = body.others.read()?;
        let query = body.query.ok_or_else(|| Failure::invalid("there is no query").with_param("query"))?;
        let tei = body.texts.is_some();
        let field = if tei { "texts" } else { "documents" };
        if tei && !body.documents.is_empty() {
            return Err(Failure::of_field("texts", "expected either texts or documents, found both"));
        }
        let documents: Vec<String> =
            body.texts.unwrap_or(body.documents).into_iter().map(Document::into_text).collect();
        if documents.is_empty() {
            return Err(Failure::invalid("there are no documents").with_param(field));
        }
        let most = DOCUMENTS.min(server.limits.replies);
        at_most(field, documents.len(), most, "documents")?;
        let mut prompts = Vec::with_capacity(documents.len());
        for document in &documents {
            prompts.push(prompt(&query, document, loaded)?);
        }
        let tokenizer = loaded.model.tokenizer()?;
        let (yes, no) = (first_tokens(&YES, tokenizer)?, first_tokens(&NO, tokenizer)?);
        let mut options = loaded.defaults.clone();
        (options.max_tokens, options.logprobs, options.stop) = (Some(1), Some(0), Vec::new());
        options.logprob_tokens = [yes.as_slice(), &no].concat();
        let top = body.top_n.and_then(|top| usize::try_from(top).ok()).unwrap_or(usize::MAX);
        let repeats = if tei { body.return_text } else { body.return_documents } == Some(true);
        let documents = if repeats { documents } else { Vec::new() };
        let held = documents.iter().map(String::len).sum::<usize>() * 2; // with the answer
        let interface = Self { model: loaded.name.clone(), yes, top, documents, tei };
        let stream = Stream { is_on: false, progress: false };
        let request = Request { choices: 1, stream, one_call: false, held, warnings: warnings.texts(), interface };
        Ok((Prompt::Tokens(prompts, Box::new(options)), request))
    }

    // There are no streams of scores.
    fn delta(&mut self, _: usize, _: Delta, _: &mut Events) {}
    fn end(&mut self, _: &mut Events) {}
    fn failed(&mut self, _: &Failure, _: &mut Events) {}
    fn alive(&mut self, _: usize, _: Option<Progress>, _: &mut Events) {}

    fn whole(self, replies: Vec<Reply>) -> String {
        let text = |index: usize| self.documents.get(index).map(|text| Text { text });
        let ranked = |(index, reply)| Ranked { index, relevance_score: self.score(reply), document: text(index) };
        let mut results: Vec<Ranked<'_>> = replies.iter().enumerate().map(ranked).collect();
        results.sort_by(|a, b| b.relevance_score.total_cmp(&a.relevance_score));
        results.truncate(self.top);
        if self.tei {
            let scored = |Ranked { index, relevance_score: score, document }| Scored {
                index,
                score,
                text: document.map(|document: Text| document.text),
            };
            let list: Vec<Scored> = results.into_iter().map(scored).collect();
            return serde_json::to_string(&list).unwrap_or_default(); // nothing in it can fail to be serialised
        }
        let tokens =
            replies.iter().map(|reply| reply.finish.stats.prompt).map(|prompt| prompt.cached + prompt.new).sum();
        let usage = Usage { prompt_tokens: tokens, total_tokens: tokens };
        let mut warnings = vec![WARNING];
        for warning in replies.iter().flat_map(|reply| &reply.finish.warnings) {
            if !warnings.contains(&warning.as_str()) {
                warnings.push(warning);
            }
        }
        let answer = Answer { model: &self.model, object: "list", usage, results, warnings };
        serde_json::to_string(&answer).unwrap_or_default() // nothing in it can fail to be serialised
    }
}

impl Rerank {
    /// The probability of *yes* among those of *yes* and *no*, by the first token of a reply.
    fn score(&self, reply: &Reply) -> f64 {
        let (mut yes, mut all) = (0.0, 0.0);
        for token in reply.tokens.iter().chain(&reply.finish.rest).take(1).flat_map(|token| &token.top) {
            let probability = f64::from(token.logprob).exp();
            all += probability;
            yes += if self.yes.contains(&token.id) { probability } else { 0.0 };
        }
        if all > 0.0 { yes / all } else { 0.5 }
    }
}
