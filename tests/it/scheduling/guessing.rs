//! Replies side by side that guess tokens: each is what it would be alone, without guesses.

use super::{alone, by_turns, greedy, model, request, said, scheduler_with, stats};
use wglm::{ChatState, DraftKind, Event, GenerateOptions, Pool, SamplerParams, SchedulerOptions, Session, Speculation};

/// The most rows of a step.
const ROWS: usize = 32;

const PROMPTS: [&str; 8] = [
    "Tell me a story about an owl.",
    "What is seven plus five?",
    "Say this again: the owl and the fox, the owl and the fox, the owl and the fox, the owl and the fox.",
    "My name is Anna.",
    "Tell me a story about a mouse.",
    "Tell me about the moon.",
    "What is two plus two?",
    "Who are you?",
];
/// The most tokens of their replies.
const LENGTHS: [usize; 8] = [16, 18, 20, 22, 12, 14, 17, 19];

/// Requests of different lengths, greedy or drawn with seeds, some with penalties, which guess in a way or not at all.
fn requests(count: usize, drawn: bool, speculation: Speculation) -> Vec<ChatState> {
    let sampling = |number: usize| match (drawn, number % 3) {
        (false, 2) => SamplerParams { repeat_penalty: 1.2, ..SamplerParams::greedy() },
        (false, _) => SamplerParams::greedy(),
        (true, 2) => SamplerParams { frequency_penalty: 0.2, seed: Some(9), top_k: 40, ..SamplerParams::default() },
        (true, _) => SamplerParams { temperature: 0.9, seed: Some(number as u64), ..SamplerParams::default() },
    };
    let ask = |(number, text): (usize, &&str)| {
        let options = GenerateOptions { sampling: sampling(number), speculation, ..greedy(LENGTHS[number]) };
        ChatState { options, ..request(text, 0) }
    };
    PROMPTS.iter().take(count).enumerate().map(ask).collect()
}

fn without(request: &ChatState) -> ChatState {
    let mut request = request.clone();
    request.options.speculation = Speculation::OFF;
    request
}

/// The replies to requests side by side are those that each gets alone without guesses. Returns their events.
#[track_caller]
fn are_those_of_each_alone(requests: &[ChatState]) -> Vec<Vec<Event>> {
    let options =
        SchedulerOptions { sessions: requests.len(), drafted_rows: Some(ROWS), ..SchedulerOptions::default() };
    let all = by_turns(&scheduler_with(options), requests);
    for (request, events) in requests.iter().zip(&all) {
        let want = alone(&without(request));
        assert_eq!(said(events), said(&want), "{:?}", request.options);
        let (got, want) = (stats(events), stats(&want));
        assert_eq!((got.stop, got.generated), (want.stop, want.generated), "{:?}", request.options);
    }
    all
}

/// Two, four and eight conversations, with guesses from the text and by the block.
#[test]
fn extended_guesses_change_no_text() {
    let lookup = Speculation { kind: DraftKind::Lookup, most: Some(3) };
    let predicted = Speculation { kind: DraftKind::Mtp, most: Some(3) };
    for (count, drawn, speculation) in
        [(2, true, lookup), (2, false, predicted), (4, false, lookup), (8, true, predicted)]
    {
        let all = are_those_of_each_alone(&requests(count, drawn, speculation));
        let drafts = all.iter().map(|events| stats(events).drafts);
        let [drafted, accepted] = drafts.fold([0, 0], |[all, right], it| [all + it.drafted, right + it.accepted]);
        println!("{count} {speculation:?}, drawn {drawn}: {accepted} of {drafted} drafts accepted");
        // Texts as short as these rarely repeat themselves.
        let are_right = accepted > 0 || speculation.kind == DraftKind::Lookup;
        assert!(drafted > 0 && are_right, "{count} {speculation:?}: {accepted} of {drafted} drafts accepted");
    }
}

/// Conversations that guess in different ways, or not, share steps.
#[test]
fn long_different_guesses_share_steps() {
    let kinds = [DraftKind::Mtp, DraftKind::Lookup, DraftKind::Off, DraftKind::Auto];
    let mut requests = requests(4, false, Speculation::OFF);
    for (request, kind) in requests.iter_mut().zip(kinds) {
        request.options.speculation = Speculation { kind, most: Some(2) };
    }
    let all = are_those_of_each_alone(&requests);
    assert!(stats(&all[0]).drafts.accepted > 0 && stats(&all[2]).drafts.drafted == 0);
}

/// Beside conversations that a grammar restricts, and those themselves before their answer.
#[cfg(feature = "constrain")]
#[test]
fn long_guesses_beside_a_grammar() {
    use wglm::Constraint;
    for kind in [DraftKind::Lookup, DraftKind::Mtp] {
        let mut requests = requests(4, false, Speculation { kind, most: Some(3) });
        requests.remove(0);
        requests[0].options.constraint = Some(Constraint::regex("((owl|fox|hen|cat),? ){9}!").unwrap());
        requests[2].options.constraint = Some(Constraint::regex("[a-z]{5}[0-9]{3}").unwrap());
        requests[2].reasoning = Some(true);
        requests[2].options.sampling = SamplerParams { seed: Some(4), ..SamplerParams::default() };
        let all = are_those_of_each_alone(&requests);
        let drafted: usize = all.iter().map(|events| stats(events).drafts.drafted).sum();
        println!("{kind:?}: {drafted} drafts");
        // The block has a draft after every token; a text may have none.
        assert!(drafted > 0 || kind == DraftKind::Lookup, "{kind:?}");
    }
}

/// Steps of several conversations with guesses are fewer than their tokens: a step is for all of them.
#[test]
fn extended_accepted_guesses_save_steps() {
    let rounds = |speculation: Speculation| {
        let mut requests = requests(4, false, speculation);
        for (request, most) in requests.iter_mut().zip([24, 27, 30, 33]) {
            request.options.max_tokens = Some(most);
        }
        let options = SchedulerOptions { sessions: 4, drafted_rows: Some(ROWS), ..SchedulerOptions::default() };
        let scheduler = scheduler_with(options);
        by_turns(&scheduler, &requests);
        scheduler.state().counts.rounds
    };
    let (plain, guessed) = (rounds(Speculation::OFF), rounds(Speculation { kind: DraftKind::Mtp, most: Some(3) }));
    assert!(guessed + 8 < plain, "{guessed} rounds with guesses, {plain} without");
}

/// With no rows for guesses, fewer are made: only while a conversation is alone.
#[test]
fn long_guesses_can_be_left_to_who_is_alone() {
    let requests = requests(3, false, Speculation { kind: DraftKind::Mtp, most: Some(3) });
    let [few, many] = [0, ROWS].map(|rows| {
        let options = SchedulerOptions { sessions: 3, drafted_rows: Some(rows), ..SchedulerOptions::default() };
        let all = by_turns(&scheduler_with(options), &requests);
        for (request, events) in requests.iter().zip(&all) {
            assert_eq!(said(events), said(&alone(&without(request))));
        }
        all.iter().map(|events| stats(events).drafts.drafted).sum::<usize>()
    });
    assert!(2 * few < many, "{few} drafts without rows for them, {many} with");
}

/// Of assumed drafts of several sessions as many are accepted as was said, or more, and the sessions go on.
#[test]
fn assumed_drafts_of_several_sessions() {
    let pool = Pool::new(model(), 3, wglm::CacheShape { context: 256, ..model().cache() }, 3 * 256).unwrap();
    let mut sessions: Vec<Session> = (0..3).map(|_| pool.session().unwrap()).collect();
    for (session, token) in sessions.iter_mut().zip([3, 4, 5]) {
        session.feed(&[token, 7, 9]).unwrap();
    }
    for (accepted, from_text) in [(2, false), (0, false), (3, false), (1, true), (3, true)] {
        let before: Vec<usize> = sessions.iter().map(|session| session.tokens().len()).collect();
        let mut together: Vec<&mut Session> = sessions.iter_mut().collect();
        let fed = pool.predict_assumed(&mut together, (3, accepted), from_text).unwrap();
        for ((fed, session), before) in fed.into_iter().zip(&sessions).zip(before) {
            let fed = fed.unwrap();
            assert!((1 + accepted..=4).contains(&fed.len()), "{fed:?}, of which {accepted} drafts are right");
            assert_eq!(session.tokens()[before..], fed);
        }
    }
    let mut together: Vec<&mut Session> = sessions.iter_mut().collect();
    assert!(pool.predict_assumed(&mut together, (10, 1), false).is_err(), "33 rows");
}
