//! Speculation over many texts: two hundred prompts with and without thinking, texts that are drawn, and random models.
//! It takes minutes on a CPU, so it runs only on request: `cargo test --test it many_texts -- --ignored --nocapture`.

use crate::common::models::{Synthetic, fable, load};
use wglm::{DraftKind, DraftStats, Event, GenerateOptions, Generation, SamplerParams, Session, Speculation};

const ANIMALS: [&str; 16] = [
    "a fox",
    "an owl",
    "a bear",
    "a frog",
    "a mouse",
    "a rabbit",
    "a turtle",
    "a crow",
    "a swan",
    "a wolf",
    "a hedgehog",
    "a robin",
    "a cat",
    "a duck",
    "a goat",
    "a lizard",
];
const ADJECTIVES: [&str; 16] = [
    "hot", "big", "fast", "happy", "light", "early", "open", "hard", "full", "old", "wet", "loud", "high", "near",
    "strong", "rich",
];
const NUMBERS: [&str; 10] = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"];

/// Questions of the kinds that the demonstration model was trained for.
fn questions() -> Vec<String> {
    let stories =
        ["Tell me a story about", "Please tell a story about", "Write a short story about", "I want a story about"];
    let mut all: Vec<String> =
        ANIMALS.iter().flat_map(|animal| stories.map(|ask| format!("{ask} {animal}."))).collect();
    all.extend(ANIMALS.map(|animal| format!("What color is {animal}?")));
    for ask in ["What is the opposite of", "Tell me the opposite of"] {
        all.extend(ADJECTIVES.map(|word| format!("{ask} {word}?")));
    }
    for (index, number) in NUMBERS.iter().enumerate() {
        all.extend([2, 5, 7].map(|step| format!("What is {number} plus {}?", NUMBERS[(index + step) % NUMBERS.len()])));
        all.extend([3, 4].map(|step| format!("What is {} - {}?", index + step + 9, index + step)));
        all.extend([0, 3].map(|first| format!("Count from {first} to {}.", first + index + 2)));
    }
    all.extend(["Who are you?", "What are you?", "Hello!", "Hi there!", "What can you do?"].map(str::to_owned));
    all.extend((all.len()..200).map(|n| format!("What is {n} + {}?", n / 2)));
    all.truncate(200);
    all
}

/// The text after a prompt, and the statistics of drafts.
fn said(
    session: &mut Session,
    prompt: &[u32],
    sampling: &SamplerParams,
    speculation: Speculation,
) -> (Vec<u32>, DraftStats) {
    let options = GenerateOptions {
        sampling: sampling.clone(),
        max_tokens: Some(100),
        speculation,
        ..GenerateOptions::default()
    };
    let mut stats = DraftStats::default();
    for event in Generation::new(session, prompt.to_vec(), None, options).unwrap() {
        if let Event::Done(done) = event.unwrap() {
            stats = done.drafts;
        }
    }
    (session.tokens()[prompt.len()..].to_vec(), stats)
}

fn kinds() -> Vec<Speculation> {
    let predicted = [1, 2, 3, 4].map(|most| Speculation { kind: DraftKind::Mtp, most: Some(most) });
    let looked_up = Speculation { kind: DraftKind::Lookup, most: Some(7) };
    [looked_up, Speculation::default()].into_iter().chain(predicted).collect()
}

/// The number of texts that differ with speculation of each kind, and the number of texts. Prints the statistics of
/// drafts.
fn compare(precision: &str, prompts: &[Vec<u32>], sampling: impl Fn(usize) -> SamplerParams) -> (usize, usize) {
    let model = fable(precision);
    let mut plain = Session::new(model).unwrap();
    let generate =
        |(number, prompt): (usize, &Vec<u32>)| said(&mut plain, prompt, &sampling(number), Speculation::OFF).0;
    let wanted: Vec<Vec<u32>> = prompts.iter().enumerate().map(generate).collect();
    let tokens: usize = wanted.iter().map(Vec::len).sum();
    let mut others = 0;
    for speculation in kinds() {
        let (mut session, mut total, mut differ) = (Session::new(model).unwrap(), DraftStats::default(), 0);
        for (number, (prompt, wanted)) in prompts.iter().zip(&wanted).enumerate() {
            let (text, stats) = said(&mut session, prompt, &sampling(number), speculation);
            differ += usize::from(text != *wanted);
            total.drafted += stats.drafted;
            total.accepted += stats.accepted;
            total.steps += stats.steps;
        }
        let DraftStats { drafted, accepted, steps, .. } = total;
        // With `auto` it may be that no draft pays.
        assert!(drafted > 0 || speculation.kind == DraftKind::Auto, "{speculation:?} drafted nothing");
        let each = accepted as f64 / steps.max(1) as f64;
        println!(
            "{precision}, {:?} {:?}: {differ} of {} texts differ; {accepted} of {drafted} drafts accepted in {steps} steps, \
             {each:.3} a step, of {tokens} tokens",
            speculation.kind,
            speculation.most,
            prompts.len()
        );
        others += differ;
    }
    (others, prompts.len() * kinds().len())
}

/// Prompts of all questions, answered at once or after thinking.
fn prompts(thinking: bool) -> Vec<Vec<u32>> {
    let tokenizer = fable("q4_0").tokenizer().unwrap();
    let opened = if thinking { "<think>" } else { "</think>" };
    let text = |question: &String| format!("[gMASK]<sop><|user|>{question}<|assistant|>{opened}");
    questions().iter().map(|question| tokenizer.encode(&text(question), true).unwrap()).collect()
}

#[test]
#[ignore = "takes minutes on a CPU"]
fn no_greedy_text_depends_on_drafts() {
    for precision in ["q4_0", "f16"] {
        for thinking in [false, true] {
            let (differ, of) = compare(precision, &prompts(thinking), |_| SamplerParams::greedy());
            assert_eq!(differ, 0, "{precision}, thinking {thinking}: of {of} texts");
        }
    }
}

/// Where a random number lies within rounding of the border between two tokens, either may be drawn.
#[test]
#[ignore = "takes minutes on a CPU"]
fn hardly_a_drawn_text_depends_on_drafts() {
    let some: Vec<Vec<u32>> = prompts(true).into_iter().step_by(4).collect();
    let sampling = |number| SamplerParams { seed: Some(number as u64), ..SamplerParams::default() };
    let (differ, of) = compare("q4_0", &some, sampling);
    assert!(100 * differ <= of, "{differ} of {of} texts");
}

#[test]
#[ignore = "takes minutes on a CPU"]
fn no_text_of_a_random_model_depends_on_drafts() {
    for Synthetic { name, file, tokens, .. } in Synthetic::all() {
        let model = load(&file);
        let room = model.cache().context.min(96);
        let prompt = &tokens[..tokens.len().min(24).min(room / 2)];
        let text = |speculation: Speculation| {
            let mut session = Session::new(&model).unwrap();
            session.set_speculation(&speculation).unwrap();
            session.feed(prompt).unwrap();
            let mut text = Vec::new();
            while text.len() < room / 2 {
                text.extend(session.next_tokens(room / 2 - text.len()).unwrap());
            }
            (text, session.draft_stats())
        };
        let (wanted, _) = text(Speculation::OFF);
        // None of these models has a multi-token-prediction block.
        for speculation in kinds().into_iter().filter(|speculation| speculation.kind != DraftKind::Mtp) {
            let (same, stats) = text(speculation);
            println!("{name}, {:?} {:?}: {stats:?}", speculation.kind, speculation.most);
            assert_eq!(same, wanted, "{name}, {speculation:?}");
        }
    }
}
